"""The exercises of a lesson: where they are, and whether they have the shape that can be run."""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cells import blocks, python, shown
from nbformat import NotebookNode

TITLE = re.compile(r"\*\*(\d+)\. ([^*]+[.?!])\*\*(?=\s)")
SOLUTION = re.compile(r"<details><summary>Solution</summary>\n\n(.*)\n\n</details>", re.DOTALL)
RIGHT = "Right.\n"
NOT_YET = "Not yet: "


@dataclass(frozen=True)
class Exercise:
    """One exercise: where it is checked, and the code of its solution.

    Attributes:
        number: As it is printed.
        check: The cell after the one that the reader edits.
        solution: What replaces the answer cell.
    """

    number: int
    check: int
    solution: str


def titles(cells: Sequence[NotebookNode]) -> dict[int, re.Match[str]]:
    """Returns the titles of exercises, by the numbers of the cells that pose them."""
    return {
        at: title
        for at, cell in enumerate(cells)
        if cell.cell_type == "markdown" and (title := TITLE.match(cell.source))
    }


def exercises(cells: Sequence[NotebookNode]) -> list[Exercise]:
    """Returns the exercises of a notebook that has no `problems`."""
    found = []
    for start, title in titles(cells).items():
        (code,) = blocks(cells[start + 3].source)
        found.append(Exercise(int(title[1]), start + 2, code.rstrip("\n")))
    return found


def is_bare(source: str) -> bool:
    """Tells whether an answer cell only names what the reader is to fill in.

    Example:
        >>> is_bare("answer = None  # bytes"), is_bare("rules = {}")
        (True, False)
    """
    blank = None, Ellipsis
    return all(
        isinstance(statement, ast.Assign)
        and isinstance(statement.value, ast.Constant)
        and statement.value.value in blank
        for statement in ast.parse(python(source)).body
    )


def problems(cells: Sequence[NotebookNode]) -> Iterator[tuple[int, str]]:
    """Yields what is wrong with the exercises: the number of a cell, and what to do."""
    found = titles(cells)
    if not found:
        yield len(cells) - 1, "there is no exercise: begin one with **1. Title.**"
        return
    for number, (start, title) in enumerate(found.items(), start=1):
        if int(title[1]) != number:
            yield start, f"this is exercise {number}, not {title[1]}: number them from 1"
        yield from _problems_of_one(cells, start)
    answers = [start + 1 for start in found if start + 1 < len(cells)]
    if all(cells[at].cell_type == "code" and is_bare(cells[at].source) for at in answers):
        yield (
            min(found),
            "every answer is a value to fill in: let at least one exercise give code to change"
            " or to repair in its answer cell",
        )
    for at, cell in enumerate(cells):
        place = {"exercise": 1, "check": 2}
        for tag in place.keys() & cell.metadata.get("tags", []):
            if at - place[tag] not in found:
                yield at, f"a cell with the tag {tag} that belongs to no exercise"


def _problems_of_one(cells: Sequence[NotebookNode], start: int) -> Iterator[tuple[int, str]]:
    if start + 3 >= len(cells):
        yield start, "after the text come the answer cell, the check cell and the solution"
        return
    answer, check, solution = cells[start + 1 : start + 4]
    for offset, cell, tag in ((1, answer, "exercise"), (2, check, "check")):
        if cell.cell_type != "code" or tag not in cell.metadata.get("tags", []):
            yield start + offset, f"here should be the code cell with the tag {tag}"
        elif tag == "check" and not (text := shown(cell)).startswith(NOT_YET):
            yield (
                start + 2,
                f"says {text!r} before the reader has done anything: it should say what is missing,"
                f" beginning with {NOT_YET.strip()!r}",
            )
    body = SOLUTION.fullmatch(solution.source) if solution.cell_type == "markdown" else None
    if body is None:
        yield (
            start + 3,
            "here should be the solution: <details><summary>Solution</summary>, an empty line,"
            " prose and code, an empty line, </details>",
        )
        return
    code = blocks(body[1])
    if len(code) != 1:
        yield start + 3, f"the solution has {len(code)} python blocks: it should have exactly one"
    elif not body[1].replace(code[0], "").replace("```python", "").strip("`\n "):
        yield start + 3, "the solution is code alone: say in a sentence why it is right"
    elif answer.cell_type == "code" and code[0].strip() == answer.source.strip():
        yield start + 3, "the solution is the answer cell as it stands"
