"""The lesson about puzzles begins each with a stub, and gives hints."""

import re

import nbformat
import pytest
from _tools import ROOT

from distlab import puzzles

LESSON = ROOT / "notebooks" / "23_puzzles.ipynb"
CELLS = {cell.id: cell for cell in nbformat.read(LESSON, as_version=4).cells}
HINT = re.compile(r"<details><summary>Hint \d</summary>\n\n(.*?)\n\n</details>", re.DOTALL)


@pytest.mark.parametrize("number", puzzles.PUZZLES)
def test_a_stub_is_short_and_runs_and_fails(number):
    code, check = CELLS[f"pz-{number}-stub"].source, f"puzzles.check({number}, solve)"
    stub, _, _ = code.partition("\n\n\n")
    assert check in code.removeprefix(stub)
    assert len(stub.splitlines()) <= 10
    names = {}
    exec(stub, names)
    result = puzzles.check(number, names["solve"])
    assert not result.passed
    assert "Error" not in result.message


@pytest.mark.parametrize("number", [number for number in puzzles.PUZZLES if number > 1])
def test_each_puzzle_that_the_reader_solves_gives_three_hints(number):
    text = CELLS[f"pz-{number}-text"].source
    assert puzzles.PUZZLES[number].title in text
    assert len(set(HINT.findall(text))) == 3
