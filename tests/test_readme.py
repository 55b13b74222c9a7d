"""What README.md says can be copied and run. Its links are tried in test_collection.py."""

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("code", EXAMPLES, ids=["devices and data", "ranks"])
def test_the_python_of_the_readme_runs(tmp_path, code):
    if "torch" in code:
        pytest.importorskip("torch")
    script = tmp_path / "readme.py"
    script.write_text(code)
    ran = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    for line in re.findall(r"print\(.*\)  # (\[.*\])$", code, re.MULTILINE):
        assert line in ran.stdout.splitlines()


def test_reading_times_are_those_that_the_lessons_give():
    cells_of = {
        path.name: nbformat.read(path, as_version=4).cells
        for path in (ROOT / "notebooks").glob("*.ipynb")
    }
    start = "\n".join(cell.source for cell in cells_of.pop("00_start_here.ipynb"))
    times = {
        name: int(re.search(r"About (\d+) minutes to read", cells[0].source)[1])
        for name, cells in cells_of.items()
    }
    rows = re.findall(
        r"^\| \[[^]]*\]\(notebooks/([\w.]+)\).* \| (\d+) min \|$", README, re.MULTILINE
    )
    assert {name: int(minutes) for name, minutes in rows} == times
    shortest, longest = min(times.values()), max(times.values())
    assert f"A lesson takes {shortest} to {longest} minutes to read." in start
