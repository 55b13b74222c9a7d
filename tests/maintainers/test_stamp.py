"""Stamping: what it writes, that it can be repeated and taken back, and what it refuses."""

import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from _tools import ROOT, tool

PIP = 'pip install "distlab @ git+https://github.com/OWNER/NAME"'
ROW = "| [One](notebooks/one.ipynb) | a thing | JAX | 5 min |"


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    """A project with two notebooks that have outputs, and a table that names one of them."""
    folder = tmp_path_factory.mktemp("original")
    shutil.copytree(ROOT / "tools", folder / "tools")
    (folder / "README.md").write_text(f"# Lab\n\n| lesson |\n| --- |\n{ROW}\n\n{PIP}\n\nÜber\n")
    (folder / "notebooks").mkdir()
    setup = (ROOT / "tools" / "setup_cell.py").read_text().rstrip("\n")
    cells = [
        nbformat.v4.new_markdown_cell("# Título\n\nTwo sentences.\n\nAnd a third."),
        nbformat.v4.new_code_cell(setup, execution_count=1),
        nbformat.v4.new_code_cell(
            "print('é')",
            execution_count=2,
            outputs=[nbformat.v4.new_output("stream", name="stdout", text="é\n")],
        ),
    ]
    for name in ("one", "two"):
        path = folder / "notebooks" / f"{name}.ipynb"
        nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    subprocess.run([sys.executable, folder / "tools" / "notebooks.py", "tidy"], check=True)
    return folder


@pytest.fixture
def project(original, tmp_path) -> Path:
    return shutil.copytree(original, tmp_path, dirs_exist_ok=True)


def contents(project: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in [project / "README.md", *project.glob("n*/*")]}


def stamp(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, project / "tools" / "stamp.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_a_stamp_is_a_source_and_badges_and_nothing_else(project):
    before = contents(project)
    stamped = stamp(project, "ada/dist.lab")
    assert stamped.returncode == 0, stamped.stderr
    link = "https://colab.research.google.com/github/ada/dist.lab/blob/main/notebooks/one.ipynb"
    image = "https://colab.research.google.com/assets/colab-badge.svg"
    badge = f"[![Open in Colab]({image})]({link})"
    for path, old in before.items():
        text = path.read_text()
        if path.name == "README.md":
            with_badge = old.decode().replace("one.ipynb)", f"one.ipynb) {badge}")
            assert text == with_badge.replace("OWNER/NAME", "ada/dist.lab")
        elif path.name == "one.ipynb":
            assert text == old.decode().replace(
                '"# Título\\n",\n    "\\n",\n',
                f'"# Título\\n",\n    "\\n",\n    "{badge}\\n",\n    "\\n",\n',
            ).replace('SOURCE = \\"\\"', 'SOURCE = \\"git+https://github.com/ada/dist.lab\\"')
    checked = [sys.executable, project / "tools" / "notebooks.py", "check"]
    assert subprocess.run(checked).returncode == 0


def test_it_can_be_repeated_changed_and_taken_back(project):
    before = contents(project)
    stamp(project, "ada/lab")
    once = contents(project)
    assert "nothing" in stamp(project, "ada/lab").stdout
    assert contents(project) == once
    stamp(project, "grace/other")
    assert not any(b"ada/lab" in text for text in contents(project).values())
    assert all(b"grace/other" in text for text in contents(project).values())
    stamp(project, "ada/lab")
    assert contents(project) == once
    assert stamp(project, "--clear").returncode == 0
    assert contents(project) == before


def test_a_bad_name_is_refused_in_one_line_and_nothing_is_written(project):
    before = contents(project)
    refused = stamp(project, "https://github.com/ada/lab")
    assert refused.returncode == 1
    assert refused.stderr == (
        "'https://github.com/ada/lab' is not of the form OWNER/NAME, as in ada/distlab."
        " Nothing was changed.\n"
    )
    assert stamp(project).returncode == 2
    assert contents(project) == before


def test_what_is_no_repository(subtests):
    module = tool("stamp")
    for wrong in (
        "lab", "ada/", "/lab", "a da/lab", "ada/lab/tree", "ada/lab.git", "ada/..", "ada/l)b",
        'ada/l"b', "-ada/lab", "ada/lab\n",
    ):  # fmt: skip
        with subtests.test(wrong), pytest.raises(module.StampError, match="OWNER/NAME"):
            module.stamp(wrong)


def test_a_notebook_without_the_cell_stops_it_before_anything_is_written(project):
    two = project / "notebooks" / "two.ipynb"
    two.write_text(two.read_text().replace("import importlib", "import  importlib"))
    before = contents(project)
    refused = stamp(project, "ada/lab")
    assert refused.stderr == (
        "two.ipynb does not begin with the set-up cell. Nothing was changed.\n"
    )
    assert contents(project) == before


def test_all_notebooks_have_the_same_stamp():
    sources = set()
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        cells = nbformat.read(path, as_version=4).cells
        setup = next(cell.source for cell in cells if cell.cell_type == "code")
        sources.add(next(line for line in setup.splitlines() if line.startswith("SOURCE = ")))
    assert len(sources) <= 1
