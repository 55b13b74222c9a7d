"""The notebooks' shape, and that `pytest --nbval` really compares what they print."""

import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from _tools import ROOT
from _tools import tool as module

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def tool(action: str, *notebooks: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "tools" / "notebooks.py", action, *notebooks]
    return subprocess.run(command, capture_output=True, text=True)


def save(path: Path, *sources: str) -> Path:
    setup = module("setup_cell").setup_cell()
    cells = [nbformat.v4.new_markdown_cell("# A title")]
    cells += [nbformat.v4.new_code_cell(source) for source in (setup, *sources)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return path


@pytest.fixture(scope="module")
def executed(tmp_path_factory) -> Path:
    """A small notebook with three cells that print, run by the tool."""
    path = save(
        tmp_path_factory.mktemp("executed") / "small.ipynb",
        "import distlab",
        "print('whole', 6 * 7)\nprint('part', 0.125)",
        "sum(range(5))",
    )
    ran = tool("run", path)
    assert ran.returncode == 0, ran.stderr
    return path


@pytest.fixture
def small(executed, tmp_path) -> Path:
    return Path(shutil.copy(executed, tmp_path))


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


def nbval(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "--nbval", "--rootdir", path.parent, "-p"]
    return subprocess.run(
        [*command, "no:cacheprovider", path], cwd=path.parent, capture_output=True, text=True
    )


def test_the_notebooks_are_in_shape():
    checked = tool("check", *NOTEBOOKS)
    assert checked.returncode == 0, checked.stdout


def test_a_run_notebook_is_in_shape_and_running_it_again_changes_nothing(small):
    before = small.read_bytes()
    assert tool("check", small).stdout.startswith("1 notebooks, 0 to put right")
    assert tool("run", small).returncode == 0
    assert small.read_bytes() == before


def test_nbval_passes_what_is_stored(small):
    unchanged = nbval(small)
    assert unchanged.returncode == 0, unchanged.stdout
    assert "4 passed" in unchanged.stdout


def test_nbval_fails_one_changed_number_that_was_printed_and_one_that_was_returned(small):
    change(small, "whole 42", "whole 43")
    change(small, '"10"', '"11"')
    changed = nbval(small)
    assert changed.returncode == 1
    assert "2 failed, 2 passed" in changed.stdout


def test_what_an_editor_adds_is_named_and_taken_out_again(small):
    before = small.read_bytes()
    notebook = nbformat.read(small, as_version=4)
    notebook.metadata.language_info.version = "3.13.0"
    notebook.metadata.colab = {"provenance": []}
    notebook.cells[2].metadata.execution = {"iopub.execute_input": "2024-01-01T00:00:00Z"}
    notebook.cells[2].metadata.collapsed = True
    nbformat.write(notebook, small)
    checked = tool("check", small)
    assert checked.returncode == 1
    assert "would change on the next save" in checked.stdout
    assert tool("tidy", small).returncode == 0
    assert small.read_bytes() == before


def test_tags_stay(small):
    notebook = nbformat.read(small, as_version=4)
    notebook.cells[2].metadata.tags = ["nbval-ignore-output"]
    nbformat.write(notebook, small)
    assert tool("check", small).returncode == 0
    tool("tidy", small)
    assert nbformat.read(small, as_version=4).cells[2].metadata == {"tags": ["nbval-ignore-output"]}


def printing(folder: Path, texts) -> Path:
    """A notebook whose third and later code cells store these texts as their output."""
    path = save(folder / "printing.ipynb", *["1"] * len(texts))
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for number, (cell, text) in enumerate(zip(code, ["", *texts], strict=True), start=1):
        cell.execution_count = number
        if text:
            cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=text)]
    nbformat.write(notebook, path)
    tool("tidy", path)
    return path


def test_what_differs_between_runs_is_named(tmp_path):
    named = {
        "in /home/ada/lab.py": "an absolute path: '/home/a'",
        "in /tmp/tmp1/rank0.log": "an absolute path: '/tmp/t'",
        r"C:\Users": r"an absolute path: 'C:\\U'",
        "<object at 0x7f00deadbeef>": "a memory address: '0x7f00deadbeef'",
        "grpc://127.0.0.1:40123": "a port: '127.0.0.1:40123'",
        "port=40123": "a port: 'port=40123'",
        "PID 4711": "a process id: 'PID 4711'",
        "at 12:30:59": "a time: '12:30:59'",
        "48/48 3ms/step": "a time: '3ms/step'",
    }
    checked = tool("check", printing(tmp_path, list(named))).stdout.splitlines()
    assert checked[:-1] == [
        f"printing.ipynb: code cell {number} stores {problem}"
        for number, problem in enumerate(named.values(), start=2)
    ]


def test_what_only_looks_like_it_is_not(tmp_path):
    texts = ["/device:CPU:0", "/job:worker/task:0", "a/tmp/b", "1/2 and 3:4", "</tmp>", "port 1"]
    checked = tool("check", printing(tmp_path, texts))
    assert checked.returncode == 0, checked.stdout


def test_stderr_errors_and_a_wrong_order_are_named(tmp_path):
    path = save(tmp_path / "odd.ipynb", "import sys; print('oh', file=sys.stderr)", "1 / 0", "2")
    assert "odd.ipynb: the cells were not run once each, in order" in tool("check", path).stdout
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[3].metadata.tags = ["raises-exception"]
    nbformat.write(notebook, path)
    assert tool("run", path).returncode == 0
    named = tool("check", path).stdout
    assert "code cell 2 stores what went to stderr" in named
    assert "raises-exception" not in named
    change(path, '     "raises-exception"\n', "")
    assert "without the tag raises-exception: ZeroDivisionError" in tool("check", path).stdout


def test_pictures_that_not_every_reader_sees_well_are_named(tmp_path):
    svg = "from IPython.display import SVG; SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>')"
    plot = "import matplotlib.pyplot as plt; plt.plot([1]); plt.show()"
    clear = "plt.rcParams['figure.facecolor'] = 'none'; plt.plot([1]); plt.show()"
    ours = (
        "from distlab import plots; plt.rcdefaults(); plots.use_style(); plt.plot([1]); plt.show()"
    )
    path = save(tmp_path / "pictures.ipynb", svg, plot, clear, ours)
    assert tool("run", path).returncode == 0
    named = tool("check", path).stdout
    assert "code cell 2 stores an SVG as such" in named
    found = [
        cell for cell in range(3, 6) if f"code cell {cell} stores a plot with a ground" in named
    ]
    assert found == [3, 4], named


def test_a_notebook_that_fails_is_named_and_stays_as_it_was(tmp_path):
    path = save(tmp_path / "broken.ipynb", "raise ValueError('the reason')")
    before = path.read_bytes()
    ran = tool("run", path)
    assert ran.returncode == 1
    assert "broken.ipynb failed" in ran.stderr
    assert "the reason" in ran.stderr
    assert path.read_bytes() == before


def test_another_setup_cell_is_named(small):
    change(small, "@title Set-up", "@title A set-up")
    assert (
        "the first code cell is not the one in tools/setup_cell.py" in tool("check", small).stdout
    )


def test_the_setup_cell_is_folded(small):
    before = small.read_bytes()
    notebook = nbformat.read(small, as_version=4)
    assert notebook.cells[1].metadata == {"cellView": "form", "jupyter": {"source_hidden": True}}
    notebook.cells[1].metadata = {}
    nbformat.write(notebook, small)
    assert "the set-up cell is not folded" in tool("check", small).stdout
    assert tool("tidy", small).returncode == 0
    assert small.read_bytes() == before
