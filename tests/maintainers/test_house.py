"""Who imports whom, what can be used alone, how large files are, and that tools are listed."""

import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict

from _tools import ROOT, TOOLS, tool


def test_an_import_from_above_is_found(tmp_path):
    """The same contract over the package with one import too many."""
    shutil.copytree(ROOT / "distlab", tmp_path / "distlab")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    ports = tmp_path / "distlab" / "ports.py"
    ports.write_text(ports.read_text() + "\n\nfrom distlab.launching.kernel import job\n")
    done = subprocess.run(
        [sys.executable, "-c", tool("run").LINT_IMPORTS, "--no-cache"],
        cwd=tmp_path, env={"PYTHONPATH": str(tmp_path), "PYTHONUTF8": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "distlab.ports -> distlab.launching.kernel" in done.stdout.replace("\n", " ")


def test_launching_can_be_used_alone(tmp_path):
    """In a distlab without the other rooms, which no kernel, supervisor or rank can import then."""
    others = shutil.ignore_patterns("checkpoints", "costs", "layouts", "lessons", "puzzles")
    shutil.copytree(ROOT / "distlab", tmp_path / "distlab", ignore=others)
    code = "import distlab; print(distlab.__file__, distlab.run(lambda: 1, 2))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == f"{tmp_path}/distlab/__init__.py [1, 1]\n", done.stderr


def test_few_rooms_and_small_files():
    assert len([*ROOT.glob("distlab/*.py")]) <= 10
    assert len([*ROOT.glob("distlab/*/__init__.py")]) <= 6
    files = [*ROOT.glob("distlab/**/*.py"), *TOOLS.glob("**/*.py")]
    lines = {file: len(file.read_text().splitlines()) for file in files}
    assert [(str(file.relative_to(ROOT)), n) for file, n in lines.items() if n > 320] == []


def test_the_tools_are_listed_each_once():
    listed = re.findall(r"^- `([\w./-]+)`: .", (TOOLS / "README.md").read_text(), re.MULTILINE)
    files = [path for path in TOOLS.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    there = {path.relative_to(TOOLS).as_posix() for path in files} - {"README.md"}
    assert sorted(listed) == sorted(there)


def test_no_two_classes_have_one_name():
    found = defaultdict(list)
    for file in sorted((ROOT / "distlab").rglob("*.py")):
        for line in file.read_text().splitlines():
            if line.startswith("class "):
                found[line.removeprefix("class ").partition("(")[0].rstrip(":")].append(file.name)
    assert {name: files for name, files in found.items() if len(files) > 1} == {}
