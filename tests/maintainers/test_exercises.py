"""Every printed solution is run: it takes the place of the answer, and the check says "Right."."""

import re
from pathlib import Path

import nbformat
import pytest
from _lessons import code, exercise, prose, save
from _tools import ROOT, tool
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

exercises = tool("exercises")
lessons = tool("lessons")
LESSONS = [path for path in sorted(lessons.FOLDER.glob("*.ipynb")) if path.name != lessons.START]
PATIENCE = 300
"""Seconds for one cell."""


def wrong_solutions(path: Path) -> list[str]:
    """Run a lesson to its last check, with the solutions as answers; what other checks said."""
    notebook = nbformat.read(path, as_version=4)
    assert list(exercises.problems(notebook.cells)) == []
    found = exercises.exercises(notebook.cells)
    for one in found:
        notebook.cells[one.answer].source = one.solution
        # What fails is told with the rest; whatever else fails ends the run.
        for at in (one.answer, one.check):
            notebook.cells[at].metadata.tags.append("raises-exception")
    del notebook.cells[found[-1].check + 1 :]
    NotebookClient(
        notebook,
        timeout=PATIENCE,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
    ).execute()
    wrong = []
    for one in found:
        answer, check = notebook.cells[one.answer], notebook.cells[one.check]
        errors = [o.ename for c in (answer, check) for o in c.outputs if o.output_type == "error"]
        if errors or exercises.said(check) != exercises.RIGHT:
            wrong.append(f"exercise {one.number}: {errors[:1] or exercises.said(check)}")
    return wrong


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_the_solutions_of_a_lesson_are_right(path, monkeypatch):
    monkeypatch.setenv("DISTLAB_PROGRESS", "off")  # which a slow machine shows beside "Right."
    assert wrong_solutions(path) == []


def test_the_guide_shows_a_solution_of_the_right_shape():
    guide = (ROOT / "docs" / "writing.md").read_text()
    (shown,) = re.findall(r"^````markdown\n(.*?)\n````$", guide, re.DOTALL | re.MULTILINE)
    cells = [*exercise("1. Average.", ANSWER, CHECK, "")[:3], prose(shown)]
    assert list(exercises.problems(cells)) == []


CHECK = "print('Right.' if double(3) == base else 'Not yet: something is missing.')"
ANSWER = "def double(x):\n    return x"


def test_solutions_that_are_none_are_named(tmp_path):
    cells = [
        prose("# Small"),
        code("base = 6"),
        *exercise("1. Right.", ANSWER, CHECK, "def double(x):\n    return 2 * x"),
        *exercise("2. Wrong.", ANSWER, CHECK, "def double(x):\n    return x * x"),
        *exercise("3. A slip.", ANSWER, CHECK, "def double(x):\n    return 2 * y"),
        *exercise("4. No Python.", ANSWER, CHECK, "def double(x):"),
        *exercise("5. Chatter.", ANSWER, f"print(base)\n{CHECK}", "double = lambda x: x + x"),
        *exercise("6. Silence.", ANSWER, "pass", "double = lambda x: x + x"),
        *exercise("7. Right.", ANSWER, CHECK, "double = lambda x: x + x"),
        code("raise RuntimeError('what comes after the exercises is not run')"),
    ]
    assert wrong_solutions(save(tmp_path / "small.ipynb", cells)) == [
        "exercise 2: Not yet: something is missing.\n",
        "exercise 3: ['NameError']",
        "exercise 4: ['SyntaxError']",
        "exercise 5: 6\nRight.\n",
        "exercise 6: ",
    ]


def test_an_error_before_the_exercises_is_not_lost(tmp_path):
    cells = [code("base = 1 / 0"), *exercise("1. Right.", ANSWER, CHECK, "double = str")]
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        wrong_solutions(save(tmp_path / "small.ipynb", cells))


def test_a_solution_may_run_on_ranks(tmp_path):
    start = "import os\n\nimport distlab\n\n\ndef number():\n    return int(os.environ['RANK'])"
    check = (
        "ranks = distlab.run(squares, nprocs=2)\n"
        "print('Right.' if ranks == [0, 1] else 'Not yet: something is missing.')"
    )
    solution = "def squares():\n    return number() ** 2"
    cells = [code(start), *exercise("1. Square.", "def squares():\n    pass", check, solution)]
    assert wrong_solutions(save(tmp_path / "small.ipynb", cells)) == []
