"""README can be read in a minute, and what it and its pages say can be copied and run.

Their links are tried in test_collection.py.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "docs/package.md")
EXAMPLES = [
    pytest.param(code, id=f"{name} {number}")
    for name in PAGES
    for number, code in enumerate(
        re.findall(r"^```python\n(.*?)^```", (ROOT / name).read_text(), re.DOTALL | re.MULTILINE)
    )
]
ROW = re.compile(r"^\| \[(\d+)\. (.*?)\]\(notebooks/(\d+)_\w+\.ipynb\) \| (.*?) \| (.*?) \|$", re.M)


@pytest.mark.parametrize("code", EXAMPLES)
def test_the_python_of_the_pages_runs(tmp_path, code):
    if "torch" in code:
        pytest.importorskip("torch")
    script = tmp_path / "readme.py"
    script.write_text(code)
    ran = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    for line in re.findall(r"print\(.*\)  # (\[.*\])$", code, re.MULTILINE):
        assert line in ran.stdout.splitlines()


def test_the_readme_is_short_and_has_each_lesson_once_in_one_line():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 130
    rows = ROW.findall(text)
    lessons = len(list((ROOT / "notebooks").glob("*.ipynb"))) - 1
    assert [int(number) for number, *_ in rows] == list(range(1, lessons + 1))
    for number, title, file, seen, minutes in rows:
        assert int(file) == int(number)
        assert len(f"{title} {seen} {minutes}".split()) <= 12, title
    assert len(re.findall(r"^\| \*\*", text, re.M)) == 5
