"""Every printed solution is run after the answer that stands there, and its check says "Right."."""

import os
import re
import subprocess
import sys
from pathlib import Path

from _lessons import code, exercise, prose, save
from _tools import ROOT, tool

exercises = tool("exercises")


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
