"""With a lesson's cells `pytest --nbval` runs its solutions: their checks say "Right."."""

import itertools
from collections import defaultdict
from pathlib import Path

import pytest
from _tools import tool
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_output
from nbval.plugin import IPyNbCell

exercises = tool("exercises")


class Addition(IPyNbCell):
    """A cell that runs in the kernel of a lesson, and is not in the lesson."""

    def reportinfo(self) -> tuple[Path, int, str]:
        """Say what it is, where nbval would give a cell's number."""
        return self.path, 0, self.nodeid


def _addition(name: str, after: IPyNbCell, cell: NotebookNode, compare: bool) -> Addition:
    options = defaultdict(bool, check=compare)
    parts = {"cell_num": after.cell_num, "cell": cell, "options": options}
    return Addition.from_parent(after.parent, name=name, **parts)


def with_solutions(cells: list[IPyNbCell]) -> list[IPyNbCell]:
    """Return a lesson's cells; behind each check are the solution, and the check once more."""
    notebook = cells[0].parent.nb.cells
    if list(exercises.problems(notebook)):  # which another test names
        return cells
    at = {id(cell.cell): place for place, cell in enumerate(cells)}
    behind: dict[int, list[IPyNbCell]] = {}
    for one in exercises.exercises(notebook):
        place = at[id(notebook[one.check])]
        right = new_output("stream", name="stdout", text=exercises.RIGHT)
        check = new_code_cell(notebook[one.check].source, execution_count=1, outputs=[right])
        behind[place] = [
            _addition(f"Solution {one.number}", cells[place], new_code_cell(one.solution), False),
            _addition(f"Check of solution {one.number}", cells[place], check, True),
        ]
    return [item for place, cell in enumerate(cells) for item in (cell, *behind.get(place, ()))]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Add the solutions to all lessons."""
    items[:] = [
        item
        for path, cells in itertools.groupby(items, lambda item: item.path)
        for item in (with_solutions(list(cells)) if path.suffix == ".ipynb" else cells)
    ]
