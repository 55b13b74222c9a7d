"""The notebooks' shape, and that `pytest --nbval` really compares what they print."""

import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from _tools import ROOT, tool
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

notebooks = tool("notebooks")
PRINTING = (
    "import distlab",
    "print('whole', 6 * 7)\nprint('part', 0.125)",
    "sum(range(5))",
)
PLOT = "plt.plot([1]); plt.show()"
ODD = (
    "import sys; print('oh', file=sys.stderr)",
    "1 / 0",
    "from IPython.display import SVG; SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>')",
    f"import matplotlib.pyplot as plt; {PLOT}",
    f"plt.rcParams['figure.facecolor'] = 'none'; {PLOT}",
    f"from distlab import plots; plt.rcdefaults(); plots.use_style(); {PLOT}",
)


def save(path: Path, *sources: str) -> Path:
    setup = tool("setup_cell").setup_cell()
    cells = [new_markdown_cell("# A title"), *map(new_code_cell, (setup, *sources))]
    for cell in cells:
        if cell.source == "1 / 0":
            cell.metadata.tags = ["raises-exception"]
    nbformat.write(new_notebook(cells=cells), path)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Small notebooks that the tool has run, each in a kernel of its own; one has failed."""
    folder = tmp_path_factory.mktemp("run")
    small = save(folder / "small.ipynb", *PRINTING)
    again = nbformat.read(small, as_version=4)
    again.cells[3].outputs = [new_output("stream", text="of an earlier run\n")]
    nbformat.write(again, folder / "again.ipynb")
    save(folder / "odd.ipynb", *ODD)
    before = save(folder / "broken.ipynb", "raise ValueError('the reason')").read_bytes()
    command = [sys.executable, ROOT / "tools" / "notebooks.py", "run", *folder.iterdir()]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 1
    assert "broken.ipynb failed and stays as it was" in ran.stderr
    assert "the reason" in ran.stderr
    assert (folder / "broken.ipynb").read_bytes() == before
    return folder


@pytest.fixture
def small(folder, tmp_path) -> Path:
    return Path(shutil.copy(folder / "small.ipynb", tmp_path))


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


def test_a_run_notebook_is_in_shape_and_what_was_stored_before_changes_nothing(folder):
    assert notebooks.problems(folder / "small.ipynb") == []
    assert (folder / "again.ipynb").read_bytes() == (folder / "small.ipynb").read_bytes()


def test_nbval_passes_what_is_stored_and_fails_each_changed_number(folder, small):
    change(small, "whole 42", "whole 43")
    change(small, '"10"', '"11"')
    command = [sys.executable, "-m", "pytest", "--nbval", "--rootdir", small.parent, "-q", "-rf"]
    ran = subprocess.run(
        [*command, "-p", "no:cacheprovider", folder / "small.ipynb", small],
        cwd=small.parent,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 1
    assert "2 failed, 6 passed" in ran.stdout
    failed = [line for line in ran.stdout.splitlines() if line.startswith("FAILED ")]
    assert [line.split()[1:4] for line in failed] == [
        ["small.ipynb::Cell", "2", "-"],
        ["small.ipynb::Cell", "3", "-"],
    ]


def test_what_an_editor_adds_is_named_and_taken_out_again_but_tags_stay(small, monkeypatch, capsys):
    def tool(action: str) -> int:
        monkeypatch.setattr(sys, "argv", ["notebooks.py", action, str(small)])
        return notebooks.main()

    notebook = nbformat.read(small, as_version=4)
    notebook.cells[2].metadata.tags = ["nbval-ignore-output"]
    nbformat.write(notebook, small)
    before = small.read_bytes()
    assert tool("check") == 0
    notebook.metadata.language_info.version = "3.13.0"
    notebook.metadata.colab = {"provenance": []}
    notebook.cells[2].metadata.execution = {"iopub.execute_input": "2024-01-01T00:00:00Z"}
    notebook.cells[2].metadata.collapsed = True
    folded = {"cellView": "form", "jupyter": {"source_hidden": True}}
    assert notebook.cells[1].metadata == folded
    notebook.cells[1].metadata = nbformat.from_dict({})
    nbformat.write(notebook, small)
    assert tool("check") == 1
    said = capsys.readouterr().out
    assert "the set-up cell is not folded" in said
    assert "would change on the next save" in said
    assert tool("tidy") == 0
    assert small.read_bytes() == before
    notebook = nbformat.read(small, as_version=4)
    notebook.cells[2].metadata.jupyter = {"outputs_hidden": True}
    nbformat.write(notebook, small)
    assert tool("tidy") == 0  # as JupyterLab would save it
    assert nbformat.read(small, as_version=4).cells[2].metadata.collapsed
    change(small, "@title Set-up", "@title A set-up")
    (problem,) = notebooks.problems(small)
    assert "the first code cell is not the one in tools/setup_cell.py" in problem


def test_what_differs_between_runs_is_named(subtests):
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
        "at most 2e-07": "a rounding error: '2e-07'",
    }
    fine = ["/device:CPU:0", "/job:worker/task:0", "a/tmp/b", "1/2 and 3:4", "</tmp>", "port 1"]
    fine += ["Timeout (0:00:02)!", "within 1e-05", "off by 8e-03"]
    for text in (*named, *fine):
        with subtests.test(text):
            cell = new_code_cell("1", outputs=[new_output("stream", name="stdout", text=text)])
            expected = [f"stores {named[text]}"] if text in named else []
            assert list(notebooks.problems_of_cell(cell)) == expected


def test_a_folded_check_needs_its_tag_and_stores_no_failure():
    folded, checks = {"jupyter": {"source_hidden": True}}, "total = 1\nassert total == 1, 'one'"
    problems = [
        list(notebooks.problems_of_cell(new_code_cell(checks, metadata=folded | tagged)))
        for tagged in ({}, {"tags": ["raises-exception"]})
    ]
    assert [len(each) for each in problems] == [1, 0]
    assert list(notebooks.problems_of_cell(new_code_cell(checks))) == []
    failed = new_output("error", ename="AssertionError", evalue="one")
    cell = new_code_cell(checks, metadata={"tags": ["raises-exception"]}, outputs=[failed])
    assert "should not be there" in next(notebooks.problems_of_cell(cell))


def test_stderr_errors_pictures_and_a_wrong_order_are_named(folder, tmp_path):
    odd = Path(shutil.copy(folder / "odd.ipynb", tmp_path))
    ground = "stores a plot with a ground of its own: distlab.plots.use_style() takes it away"
    found = [
        "2 stores what went to stderr",
        "4 stores an SVG as such, which JupyterLab hides until the notebook is trusted",
        f"5 {ground}",
        f"6 {ground}",
    ]
    assert notebooks.problems(odd) == [f"odd.ipynb: code cell {line}" for line in found]
    change(odd, '     "raises-exception"\n', "")
    error = "code cell 3 stores an error that should not be there: ZeroDivisionError"
    assert f"odd.ipynb: {error}" in notebooks.problems(odd)
    order = "broken.ipynb: the cells were not run once each, in order"
    assert order in notebooks.problems(folder / "broken.ipynb")
