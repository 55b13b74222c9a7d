"""The set-up cell where distlab is missing, as in Colab.

Colab is played by a Python that has everything this one has but distlab, in an empty folder. What
that Python asks of GitHub git takes from a folder: it rewrites the address. Run with an environment
that has Colab's versions, these tests say what happens to those.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import nbformat
import pytest
from _tools import ROOT, tool
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode

setup_cell = tool("setup_cell").setup_cell
ADDRESS = "git+https://github.com/OWNER/NAME"
UNSTAMPED, STAMPED = setup_cell(), setup_cell(ADDRESS)
# No package index, and no isolated build, which would need one; pip reads 0 as "no isolation".
OFFLINE = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_CACHE_DIR": "1"}
# Of every distribution its version, its place and when it was written; of distlab only that it is.
SHIPPED = """
import importlib.metadata, json, pathlib
found = {}
for one in importlib.metadata.distributions():
    record = pathlib.Path(one.locate_file(""), one._path.name, "RECORD")
    written = record.stat().st_mtime_ns if record.exists() else 0
    found.setdefault(one.name, [one.version, str(record), written])
print(json.dumps(found))
"""
WAYS = re.compile(r"(?:^  .+\n?)+", re.MULTILINE)
UPLOAD = re.compile(r"^ *from google\.colab import files.*\n(?: *!pip .*\n)", re.MULTILINE)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """What git has of the package, in one commit."""
    folder = tmp_path_factory.mktemp("clone") / "NAME"
    shutil.copytree(ROOT / "distlab", folder / "distlab")
    for name in ("LICENSE", "README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", folder]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "all"]):
        subprocess.run([*git, *words], check=True)
    return folder


@pytest.fixture(scope="module")
def wheel(checkout, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder]
    built = subprocess.run([*command, checkout], capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    return next(folder.glob("distlab-*.whl"))


@pytest.fixture(scope="module")
def github(checkout, tmp_path_factory) -> str:
    """The address of a folder that git takes for github.com; it has OWNER/NAME."""
    folder = tmp_path_factory.mktemp("github")
    bare = folder / "OWNER" / "NAME"
    subprocess.run(["git", "clone", "-q", "--bare", checkout, bare], check=True)
    return f"{folder.as_uri()}/"


class Colab:
    """A Python with this environment's packages but without distlab, and a folder to work in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "content"
        self.folder.mkdir()
        environment = folder / "python"
        command = [sys.executable, "-m", "venv", "--without-pip", environment]
        subprocess.run(command, check=True)
        self.python = environment / "bin" / "python"
        # Colab's pip is that of its kernel's Python.
        pip = environment / "bin" / "pip"
        pip.write_text(f'#!/bin/sh\nexec "{self.python}" -m pip "$@"\n')
        pip.chmod(0o755)
        self.packages = next(environment.glob("lib/python*/site-packages"))
        shared = folder / "shared"
        shared.mkdir()
        for entry in Path(sysconfig.get_path("purelib")).iterdir():
            if not entry.name.startswith(("distlab", "_distlab")):
                (shared / entry.name).symlink_to(entry)
        # The stand-in for google.colab, which only Colab has.
        (self.packages / "shared.pth").write_text(f"{shared}\n{folder / 'stand-in'}\n")
        self.before = self.ships()

    def ships(self) -> dict[str, list]:
        command = [self.python, "-c", SHIPPED]
        ran = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=True)
        return json.loads(ran.stdout)

    def assert_has_only_distlab_more(self) -> None:
        now = self.ships()
        _, record, _ = now.pop("distlab")
        assert Path(record).is_relative_to(self.packages)
        assert now == self.before
        own = {path.name for path in self.packages.iterdir()} - {"__pycache__", "shared.pth"}
        assert {name.partition("-")[0] for name in own} == {"distlab"}

    def play(self, *sources: str) -> list[NotebookNode]:
        """Run cells one after the other in a new kernel, and return them with their outputs."""
        cells = [nbformat.v4.new_code_cell(source) for source in sources]
        self.play_notebook(nbformat.v4.new_notebook(cells=cells))
        return cells

    def play_notebook(self, notebook: NotebookNode) -> None:
        resources = {"metadata": {"path": str(self.folder)}}
        options = {"timeout": 300, "kernel_name": "colab", "coalesce_streams": True}
        NotebookClient(notebook, resources=resources, **options).execute()

    def stopped(self, setup: str) -> str:
        """Run all cells of a notebook whose first cell stops that; return what it shows."""
        cells = [nbformat.v4.new_code_cell(source) for source in (setup, "import distlab", "1")]
        with pytest.raises(CellExecutionError):
            self.play_notebook(nbformat.v4.new_notebook(cells=cells))
        assert [cell.outputs for cell in cells[1:]] == [[], []]
        assert self.ships() == self.before
        return "".join(output.text for output in cells[0].outputs)


@pytest.fixture
def colab(tmp_path, monkeypatch, github) -> Colab:
    for name, value in {
        **OFFLINE,
        "CUDA_VISIBLE_DEVICES": "-1",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{github}.insteadOf",
        "GIT_CONFIG_VALUE_0": "https://github.com/",
        "IPYTHONDIR": str(tmp_path / "ipython"),
        "JAX_PLATFORMS": "cpu",
        "JUPYTER_PATH": str(tmp_path / "jupyter"),
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    played = Colab(tmp_path)
    monkeypatch.setenv("PATH", str(played.python.parent), prepend=os.pathsep)
    kernel = tmp_path / "jupyter" / "kernels" / "colab"
    kernel.mkdir(parents=True)
    command = [str(played.python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    described = {"argv": command, "display_name": "Colab", "language": "python"}
    (kernel / "kernel.json").write_text(json.dumps(described))
    return played


def test_it_is_six_short_lines_at_most():
    for cell in (UNSTAMPED, STAMPED):
        assert len(cell.splitlines()) <= 6
        assert max(len(line.replace(ADDRESS, "")) for line in cell.splitlines()) <= 100
        assert cell.startswith("# @title ")


def test_where_distlab_is_there_nothing_happens(tmp_path):
    (tmp_path / "distlab").mkdir()
    cells = [nbformat.v4.new_code_cell(one) for one in (UNSTAMPED, setup_cell("/no/such/place"))]
    notebook = nbformat.v4.new_notebook(cells=cells)
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, kernel_name="python3", resources=resources).execute()
    assert [cell.outputs for cell in cells] == [[], []]


def test_a_stamped_lesson_runs_to_its_end_and_nothing_is_replaced(colab):
    (colab.folder / "distlab").mkdir()  # a folder of that name is no package
    lesson = tool("stamp").stamped_notebook(
        ROOT / "notebooks" / "00_start_here.ipynb", "OWNER/NAME"
    )
    notebook = nbformat.reads(lesson, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code[0].source == STAMPED
    for cell in code:
        cell.outputs = []
    colab.play_notebook(notebook)
    assert all(cell.execution_count for cell in code)
    assert any(cell.outputs for cell in code[1:])
    assert code[0].outputs == []
    assert [path.name for path in colab.folder.iterdir()] == ["distlab"]
    colab.assert_has_only_distlab_more()


def test_where_pip_fails_run_all_stops_with_its_words_and_one_message(colab, subtests):
    for address, reason in {
        "git+https://github.com/OWNER/OTHER": "fatal: .*/OWNER/OTHER/?' does not appear to be",
        "git+http://127.0.0.1:1/OWNER/NAME": "fatal: unable to access ",  # no network
    }.items():
        with subtests.test(address):
            said, _, message = colab.stopped(setup_cell(address)).partition("UsageError: ")
            assert re.search(reason, said), said
            assert "Traceback" not in said + message
            first = "distlab is missing; pip says why above.\nIs there a network? Is the"
            assert message.startswith(first)
            assert len(message.splitlines()) == 2
            assert max(map(len, message.splitlines())) <= 100


@pytest.mark.parametrize("way", ["GitHub", "wheel"])
def test_without_an_address_run_all_stops_and_what_message_and_readme_say_to_do_works(
    colab, wheel, tmp_path, way
):
    message = colab.stopped(UNSTAMPED)
    assert message.startswith("UsageError: distlab is not installed.")
    assert message.count("distlab is not installed") == 1
    assert "\\n" not in message
    assert max(map(len, message.splitlines())) <= 80
    [line] = WAYS.findall(message)
    assert line == "  !pip install -q git+https://github.com/OWNER/NAME\n"
    [upload] = UPLOAD.findall((ROOT / "docs" / "online.md").read_text())
    stand_in = tmp_path / "stand-in" / "google" / "colab"
    stand_in.mkdir(parents=True)
    (stand_in / "files.py").write_text(
        f"import shutil\n\n\ndef upload_file(name):\n    shutil.copy({str(wheel)!r}, name)\n"
    )
    assert upload.count(wheel.name) == 2
    paste = {"GitHub": line, "wheel": upload}[way]
    installing, *after = colab.play(paste, UNSTAMPED, "import distlab.devices")
    assert [cell.outputs for cell in after] == [[], []], after
    assert "restart" not in str(installing.outputs)
    colab.assert_has_only_distlab_more()
