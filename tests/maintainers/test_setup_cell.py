"""The set-up cell where distlab is missing, as in Colab.

Colab is played by a Python that has everything this one has but distlab, in an empty folder. What
that Python asks of GitHub a server on this machine answers: git rewrites the address. Run with an
environment that has Colab's versions, these tests say what happens to those.
"""

import functools
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
from pathlib import Path

import nbformat
import pytest
from _tools import ROOT, tool
from jupyter_client.manager import start_new_kernel
from nbclient import NotebookClient

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
    """What git has of the package."""
    folder = tmp_path_factory.mktemp("clone") / "NAME"
    folder.mkdir()
    for name in ("LICENSE", "README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "distlab", folder / "distlab")
    return folder


@pytest.fixture(scope="module")
def wheel(checkout, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder]
    built = subprocess.run([*command, checkout], capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    return next(folder.glob("distlab-*.whl"))


class GitHub(http.server.SimpleHTTPRequestHandler):
    """As GitHub does, it asks for a password where a repository is private or not there."""

    def send_error(self, code, message=None, explain=None):
        if code != http.HTTPStatus.NOT_FOUND or "/OWNER/NAME/" in self.path:
            super().send_error(code, message, explain)
            return
        self.send_response(http.HTTPStatus.UNAUTHORIZED)
        self.send_header("WWW-Authenticate", 'Basic realm="GitHub"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        """What was asked for is not said on stderr."""


@pytest.fixture(scope="module")
def github(checkout, tmp_path_factory):
    """The address at which github.com/OWNER/NAME is served on this machine."""
    folder = tmp_path_factory.mktemp("github")
    work = shutil.copytree(checkout, tmp_path_factory.mktemp("work") / "NAME")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", work]
    bare = folder / "OWNER" / "NAME"
    for command in (
        [*git, "init", "-q"],
        [*git, "add", "."],
        [*git, "commit", "-q", "-m", "all"],
        ["git", "clone", "-q", "--bare", work, bare],
        ["git", "-C", bare, "update-server-info"],
    ):
        subprocess.run(command, check=True)
    handler = functools.partial(GitHub, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


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

    def play(self, *sources: str, errors: bool = False, folder: Path | None = None):
        """Run cells one after the other in a new kernel, and return them with their outputs."""
        cells = [nbformat.v4.new_code_cell(source) for source in sources]
        return self.play_notebook(nbformat.v4.new_notebook(cells=cells), errors, folder).cells

    def play_notebook(self, notebook, errors: bool = False, folder: Path | None = None):
        client = NotebookClient(
            notebook,
            timeout=300,
            kernel_name="colab",
            allow_errors=errors,
            coalesce_streams=True,
            resources={"metadata": {"path": str(folder or self.folder)}},
        )
        return client.execute()


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


def run_all(*sources: str) -> tuple[list[str], list[str]]:
    """Send all cells at once, as Run All does; return each one's fate, and all that is shown."""
    manager, client = start_new_kernel(kernel_name="colab", cwd=os.environ["CONTENT"])
    try:
        with tempfile.TemporaryDirectory() as directory:
            # A cell that comes after another has failed is not aborted: first they all are there.
            sent_all = Path(directory, "sent")
            wait = "pause = __import__('time').sleep\n"
            wait += f"while not __import__('os').path.exists({str(sent_all)!r}): pause(0.05)"
            first = client.execute(wait, silent=True)
            sent = [client.execute(source) for source in sources]
            sent_all.touch()
            while client.get_shell_msg(timeout=120)["parent_header"]["msg_id"] != first:
                pass
        fates: dict[str, str] = {}
        while not fates.keys() >= set(sent):  # the kernel's first reply may still come, too
            reply = client.get_shell_msg(timeout=120)
            fates[reply["parent_header"]["msg_id"]] = reply["content"]["status"]
        shown = []
        # Outputs come in order: after the last cell's there are none.
        while True:
            message = client.get_iopub_msg(timeout=120)
            if message["msg_type"] == "error":
                shown.append("\n".join(message["content"]["traceback"]))
            elif message["msg_type"] == "stream":
                shown.append(message["content"]["text"])
            idle = message["content"].get("execution_state") == "idle"
            if idle and message["parent_header"]["msg_id"] == sent[-1]:
                return [fates[one] for one in sent], shown
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def message_of(colab: Colab) -> str:
    """Return what the set-up cell says that knows no address."""
    [cell] = colab.play(UNSTAMPED, errors=True)
    [output] = cell.outputs
    return output.text


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
    assert list(colab.folder.iterdir()) == []
    colab.assert_has_only_distlab_more()


def test_a_folder_of_that_name_is_no_package(colab):
    (colab.folder / "distlab").mkdir()
    colab.play(STAMPED, "import distlab.devices")
    colab.assert_has_only_distlab_more()


def test_without_an_address_run_all_stops_with_one_message(colab, monkeypatch):
    monkeypatch.setenv("CONTENT", str(colab.folder))
    fates, shown = run_all(UNSTAMPED, "import distlab", "devices = distlab", "print(devices)")
    assert fates == ["error", "aborted", "aborted", "aborted"]
    message = "".join(shown)
    assert message.startswith("UsageError: distlab is not installed.")
    assert WAYS.findall(message) == ["  !pip install -q git+https://github.com/OWNER/NAME\n"]
    assert message.count("distlab is not installed") == 1
    assert "\\n" not in message
    assert max(map(len, message.splitlines())) <= 80
    assert colab.ships() == colab.before


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("git+https://github.com/OWNER/OTHER", "fatal: could not read Username for .*"),
        ("git+http://127.0.0.1:1/OWNER/NAME", "fatal: unable to access "),
    ],
    ids=["private, or not there", "no network"],
)
def test_where_pip_fails_run_all_stops_with_its_words_and_one_message(
    colab, monkeypatch, address, reason
):
    monkeypatch.setenv("CONTENT", str(colab.folder))
    fates, shown = run_all(setup_cell(address), "import distlab", "distlab")
    assert fates == ["error", "aborted", "aborted"]
    said, _, message = "".join(shown).partition("UsageError: ")
    assert re.search(reason, said), said
    assert "Traceback" not in said + message
    assert message.startswith("distlab is missing; pip says why above.\nIs there a network? Is the")
    assert len(message.splitlines()) == 2
    assert max(map(len, message.splitlines())) <= 100
    assert colab.ships() == colab.before


@pytest.mark.parametrize("way", ["GitHub", "wheel"])
def test_what_the_message_and_the_readme_say_to_do_works(colab, wheel, tmp_path, way):
    [line] = WAYS.findall(message_of(colab))
    [upload] = UPLOAD.findall((ROOT / "README.md").read_text())
    stand_in = tmp_path / "stand-in" / "google" / "colab"
    stand_in.mkdir(parents=True)
    (stand_in / "files.py").write_text(
        f"import shutil\n\n\ndef upload_file(name):\n    shutil.copy({str(wheel)!r}, name)\n"
    )
    assert upload.count(wheel.name) == 2
    paste = {"GitHub": line, "wheel": upload}[way]
    _, installing, *after = colab.play(
        UNSTAMPED, paste, UNSTAMPED, "import distlab.devices", errors=True
    )
    assert [cell.outputs for cell in after] == [[], []], after
    assert "restart" not in str(installing.outputs)
    colab.assert_has_only_distlab_more()
