"""The lesson about puzzles begins with the package's stubs and gives hints."""

import re
from pathlib import Path

import nbformat
import pytest

from distlab.puzzles import PUZZLES

LESSON = Path(__file__).resolve().parent.parent / "notebooks" / "23_puzzles.ipynb"
CELLS = {cell.id: cell for cell in nbformat.read(LESSON, as_version=4).cells}
HINT = re.compile(r"<details><summary>Hint \d</summary>\n\n(.*?)\n\n</details>", re.DOTALL)


@pytest.mark.parametrize("number", PUZZLES)
def test_each_puzzle_begins_with_its_stub(number):
    stub, check = PUZZLES[number].stub.strip(), f"puzzles.check({number}, solve)"
    code = CELLS[f"pz-{number}-stub"].source
    assert code.startswith(stub)
    assert check in code.removeprefix(stub)


@pytest.mark.parametrize("number", [number for number in PUZZLES if number > 1])
def test_each_puzzle_that_the_reader_solves_gives_three_hints(number):
    text = CELLS[f"pz-{number}-text"].source
    assert PUZZLES[number].title in text
    assert len(set(HINT.findall(text))) == 3
