"""What README.md says can be copied and run. Its links are tried in test_collection.py."""

import re
import subprocess
import sys
from pathlib import Path

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
