"""Every printed solution is run after the answer that stands there, and its check says "Right.".

Every wrong answer in tests/wrong_answers is run as well, and refused.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from _lessons import code, exercise, prose, save
from _solutions import wrong_answers
from _tools import ROOT, tool
from nbformat.v4 import new_output

exercises = tool("exercises")
lessons = tool("lessons")


def failures(path: Path) -> list[str]:
    """Run a lesson's cells and solutions; return those that fail."""
    command = [sys.executable, "-m", "pytest", "--nbval", "--nbval-current-env", "-q", "-rf"]
    apart = ["-p", "_solutions", "-p", "no:cacheprovider", "--rootdir", path.parent, path]
    ran = subprocess.run(
        [*command, *apart],
        cwd=path.parent,
        env=os.environ | {"PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
    )
    return re.findall(r"^FAILED .*::(.*?)(?: - .*)?$", ran.stdout, re.MULTILINE)


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
    ]
    assert failures(save(tmp_path / "small.ipynb", cells)) == [
        "Check of solution 2",
        "Check of solution 3",
        "Solution 4",
        "Check of solution 4",
        "Cell 10",  # the answer as it stands has more to say as well
        "Check of solution 5",
        "Cell 12",
        "Check of solution 6",
    ]


def test_a_check_that_a_reader_may_run_past_fails_a_test(tmp_path):
    tags = ["nbval-ignore-output", "raises-exception"]
    cells = [code("total = 1"), code("assert total == 2", tags=tags), code("1 / 0", tags=tags[1:])]
    cells[2].outputs = [new_output("error", ename="ZeroDivisionError", evalue="division by zero")]
    cells[2].execution_count = 3
    assert failures(save(tmp_path / "small.ipynb", cells)) == ["Cell 1"]


def test_a_wrong_answer_that_passes_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("DISTLAB_WRONG_ANSWERS", "1")
    cells = [
        prose("# Small"),
        code("base = 6"),
        *exercise("1. Right.", ANSWER, CHECK, "def double(x):\n    return 2 * x"),
    ]
    folder = tmp_path / "wrong_answers"
    folder.mkdir()
    (folder / "small.md").write_text(
        "## 1. A square\n\n```python\ndef double(x):\n    return x * x\n```\n\n"
        "## 1. A constant\n\n```python\ndef double(x):\n    return 6\n```\n"
    )
    assert failures(save(tmp_path / "small.ipynb", cells)) == ["Refusal of it, A constant"]


def test_each_exercise_has_refused_three_wrong_answers(subtests):
    for path in sorted(lessons.FOLDER.glob("*.ipynb")):
        with subtests.test(path.stem):
            found = wrong_answers(path.stem)
            posed = exercises.exercises(lessons.nbformat.read(path, as_version=4).cells)
            assert {one.number for one in posed} == set(found)
            assert all(len(answers) >= 3 for answers in found.values())
