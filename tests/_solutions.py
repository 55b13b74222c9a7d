"""With a lesson's cells `pytest --nbval` runs solutions, and the check of each.

A check tagged raises-exception, past which a reader's Run All goes on, fails as any other cell.

With `DISTLAB_WRONG_ANSWERS=1` it runs wrong answers, too: a seventh of the time of all lessons.

The check of a solution says "Right.", that of a wrong answer "Not yet:". The wrong answers are in
tests/wrong_answers, a file for each lesson: a heading such as `## 2. The sum is too late` for an
answer to exercise 2, and below it the code that replaces the answer cell.
"""

import itertools
import os
import re
from collections import defaultdict
from pathlib import Path

import pytest
from _tools import ROOT, tool
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_output
from nbval.plugin import IPyNbCell

exercises = tool("exercises")
WRONG = ROOT / "tests" / "wrong_answers"
ANSWER = re.compile(r"^## (\d+)\. ([^\n]+)\n\n```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def wrong_answers(lesson: str, folder: Path = WRONG) -> dict[int, dict[str, str]]:
    """Return a lesson's wrong answers: of each exercise the code, by what is wrong with it."""
    path = folder / f"{lesson}.md"
    found: dict[int, dict[str, str]] = defaultdict(dict)
    for number, what, code in ANSWER.findall(path.read_text() if path.exists() else ""):
        found[int(number)][what] = code.rstrip("\n")
    return found


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
    for cell in cells:  # nbval would tell no more of an error than that it is one, or nothing
        stored = [output.output_type for output in cell.cell.outputs]
        cell.options["check_exception"] = "error" in stored
    notebook = cells[0].parent.nb.cells
    if list(exercises.problems(notebook)):  # which another test names
        return cells
    wrong = wrong_answers(cells[0].path.stem, cells[0].path.parent / "wrong_answers")
    wrong.update(wrong_answers(cells[0].path.stem))
    if not os.environ.get("DISTLAB_WRONG_ANSWERS"):
        wrong.clear()
    at = {id(cell.cell): place for place, cell in enumerate(cells)}
    behind: dict[int, list[IPyNbCell]] = {}
    for one in exercises.exercises(notebook):
        place = at[id(notebook[one.check])]
        refused = []
        for what, code in wrong[one.number].items():
            # What the check says besides differs from one answer to the next.
            said = new_code_cell(f"%%capture said\n{notebook[one.check].source}")
            begins = new_output("stream", name="stdout", text=exercises.NOT_YET + "\n")
            start = f"print(str(said)[:{len(exercises.NOT_YET)}])"
            told = new_code_cell(start, execution_count=1, outputs=[begins])
            name = f"Wrong answer {one.number}, {what}"
            refused += [
                _addition(name, cells[place], new_code_cell(code), False),
                _addition(f"Check of it, {what}", cells[place], said, False),
                _addition(f"Refusal of it, {what}", cells[place], told, True),
            ]
        right = new_output("stream", name="stdout", text=exercises.RIGHT)
        check = new_code_cell(notebook[one.check].source, execution_count=1, outputs=[right])
        behind[place] = [
            *refused,
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
