"""Making the environment: a small project in place of ours, a real Python and pip, no network."""

import functools
import inspect
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import threading
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import distribution
from pathlib import Path

import pytest
from _hardship import small_disk
from _tools import ROOT, tool

# What builds the small project; taken from this environment, since there may be no network.
TOOLS = (
    "pip",
    "setuptools",
    "hatchling",
    "packaging",
    "pathspec",
    "pluggy",
    "tomlkit",
    "trove-classifiers",
)


def write_wheel(folder: Path, name: str, version: str) -> str:
    wheel = f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(f"{folder}/{wheel}", "w") as file:
        file.writestr(f"{name}.py", f"version = {version!r}\n")
        about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        file.writestr(f"{info}/METADATA", about)
        kind = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        file.writestr(f"{info}/WHEEL", kind)
        file.writestr(f"{info}/RECORD", "")
    return wheel


MAKING = "Making the environment .venv"
# A test that names a gate holds pip in the building of `slow` until it opens the other end.
BACKEND = f"""
import os, zipfile
from pathlib import Path
{inspect.getsource(write_wheel)}
def build_wheel(folder, config_settings=None, metadata_directory=None):
    if gate := os.environ.get("GATE"):
        open(gate).read()
    return write_wheel(folder, "slow", "1.0")
"""


@pytest.fixture(scope="module")
def index(tmp_path_factory) -> Path:
    """A folder that pip can install everything from that the small project needs."""
    folder = tmp_path_factory.mktemp("index")
    for name in TOOLS:
        package = distribution(name)
        stem = f"{name.replace('-', '_')}-{package.version}"
        with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
            for file in package.files or []:
                if ".." not in file.parts and file.suffix != ".pyc" and file.name != "INSTALLER":
                    wheel.write(file.locate(), str(file))
    for version in ("1.0", "2.0"):
        write_wheel(folder, "quick", version)
    source = folder / "slow-1.0"
    source.mkdir()
    (source / "backend.py").write_text(BACKEND)
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "slow"\nversion = "1.0"\n'
    )
    (source / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: slow\nVersion: 1.0\n")
    shutil.make_archive(str(source), "gztar", folder, source.name)
    shutil.rmtree(source)
    return folder


class Checkout:
    """A project with this project's tools and two small packages."""

    def __init__(self, root: Path, index: Path) -> None:
        self.root = root
        self.index = index
        self.home = root.parent / "home"
        self.home.mkdir()
        shutil.copytree(ROOT / "tools", root / "tools", ignore=shutil.ignore_patterns("__pyc*"))
        shutil.copy(ROOT / "Makefile", root)
        (root / "small.py").touch()
        (root / "pyproject.toml").write_text(
            '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
            '[project]\nname = "small"\nversion = "1"\n'
            '[project.optional-dependencies]\ndev = ["quick", "slow"]\n'
            '[tool.hatch.build]\ndev-mode-dirs = ["."]\ninclude = ["small.py"]\n'
        )
        self.pin("1.0")

    def pin(self, version: str) -> None:
        lines = [f"{name}=={distribution(name).version}" for name in TOOLS]
        (self.root / "constraints.txt").write_text("\n".join([*lines, f"quick=={version}"]))

    def start(
        self, command: str = "environment", stdout: int = subprocess.PIPE, **variables: str
    ) -> subprocess.Popen[str]:
        environment = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        environment |= {
            "HOME": str(self.home),
            # Pip asks rustc for its version, which would make rustup fill that home.
            "RUSTUP_HOME": os.environ.get("RUSTUP_HOME", str(Path.home() / ".rustup")),
            "PYTHON": sys.executable,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": self.index.as_uri(),
            **variables,
        }
        return subprocess.Popen(
            ["sh", "tools/python.sh", "tools/run.py", command],
            cwd=self.root,
            env=environment,
            stdout=stdout,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, command: str = "environment", **variables: str) -> tuple[int, str]:
        process = self.start(command, **variables)
        output, _ = process.communicate(timeout=300)
        return process.returncode, output

    def cached(self) -> list[str]:
        return [path.name for path in (self.root / ".cache").iterdir()]

    def ask(self, code: str) -> str:
        command = [self.root / ".venv" / "bin" / "python", "-c", code]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path, index) -> Checkout:
    root = tmp_path / "a folder with spaces"
    root.mkdir()
    return Checkout(root, index)


@pytest.fixture
def gate(tmp_path) -> Path:
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory, index) -> Checkout:
    """A checkout whose environment was made; a test leaves it in order, with whatever pins."""
    checkout = Checkout(tmp_path_factory.mktemp("a folder with spaces"), index)
    their_cache = checkout.root.parent / "their cache"
    # What the user told pip stays in force, unless packages would go elsewhere.
    told = {"PIP_CACHE_DIR": str(their_cache), "PIP_USER": "1", "PIP_TARGET": "/no/such/place"}
    code, output = checkout.run(**told)
    assert code == 0, output
    assert output.startswith(
        f"{MAKING}: a few minutes, and 1.2 GB to download, or 3.7 GB with CUDA.\n"
    )
    assert their_cache.is_dir()
    return checkout


def test_it_is_made_whole_and_nowhere_else(made):
    assert made.ask("import quick, slow, small; print(slow.version)") == "1.0"
    assert {path.name for path in made.root.iterdir()} == {
        ".cache", ".venv", "Makefile", "constraints.txt", "pyproject.toml", "small.py", "tools"
    }  # fmt: skip
    assert made.cached() == ["environment.lock"]
    assert list(made.home.iterdir()) == []


def test_the_second_run_finds_it_and_asks_nobody(made):
    assert made.run(PIP_FIND_LINKS="/no/such/place") == (0, "")


def test_new_pins_update_it_and_what_the_user_added_stays(made):
    added = made.root / ".venv" / "added"
    added.touch()
    for version in ("2.0", "1.0"):
        made.pin(version)
        code, output = made.run()
        assert code == 0, output
        assert output.startswith(f"{MAKING}: new requirements.\n")
        assert made.ask("import quick; print(quick.version)") == version
    assert added.exists()
    assert made.run() == (0, "")


def test_an_update_that_fails_says_what_to_do_and_the_old_pins_work_without_a_network(made):
    before = (made.root / "constraints.txt").read_text()
    made.pin("3.0")
    code, output = made.run()
    assert code == 1
    assert "quick==3.0" in output  # pip's own words
    assert "\npip failed. Mend the cause, above" in output
    assert "Traceback" not in output
    (made.root / "constraints.txt").write_text(before)
    assert made.run(PIP_FIND_LINKS="/no/such/place")[0] == 0
    assert made.run() == (0, "")


def test_a_moved_project_gets_a_new_one_which_two_runs_at_once_make_once(made, checkout, gate):
    shutil.copytree(made.root, checkout.root, symlinks=True, dirs_exist_ok=True)
    first = checkout.start(GATE=str(gate))
    with gate.open("w"):
        second = checkout.start()
        assert second.stdout.readline().startswith("Another run is making the environment")
    output, _ = first.communicate(timeout=300)
    assert output.startswith(f"{MAKING}: new place.\n")
    assert second.communicate(timeout=300)[0] == ""
    assert (first.returncode, second.returncode) == (0, 0)
    assert checkout.ask("import small; print(small.__file__)") == str(checkout.root / "small.py")
    assert checkout.run("clean") == (0, "")
    assert not any((checkout.root / name).exists() for name in (".venv", ".cache"))


class Index(SimpleHTTPRequestHandler):
    """Serves the folder as a package index, whose files a client may keep, and counts requests.

    The connection breaks in the middle of the first answer with the file `breaks`.
    """

    asked: Counter[str]
    breaks = ""

    def do_GET(self) -> None:
        path = Path(self.translate_path(self.path))
        if path.name != self.breaks:
            super().do_GET()
            return
        content, asked = path.read_bytes(), self.headers.get("Range")
        begin = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        self.send_response(206 if asked else 200)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", '"same"')
        self.send_header("Content-Length", str(len(content) - begin))
        self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        self.wfile.write(content[begin:] if asked else content[: len(content) // 2])

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "max-age=600")
        super().end_headers()

    def log_request(self, *arguments: object) -> None:
        self.asked[Path(self.path).name] += 1


@pytest.fixture
def served(index, tmp_path) -> Iterator[tuple[dict[str, str], type[Index]]]:
    """The variables that have pip ask the index at an address, and what answers there."""
    for file in index.iterdir():
        project = tmp_path / "served" / file.name.split("-")[0].replace("_", "-")
        project.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, project)
    handler = type("Counting", (Index,), {"asked": Counter()})
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(handler, directory=tmp_path / "served")
    ) as server:
        threading.Thread(target=server.serve_forever).start()
        place = f"127.0.0.1:{server.server_port}"
        online = {"PIP_NO_INDEX": "0", "PIP_INDEX_URL": f"http://{place}", "PIP_FIND_LINKS": ""}
        yield online | {"PIP_TRUSTED_HOST": place}, handler  # pip caches no other http
        server.shutdown()


def test_a_broken_download_is_gone_on_with(checkout, served):
    online, handler = served
    handler.breaks = "quick-1.0-py3-none-any.whl"
    code, output = checkout.run(**online)
    assert code == 0, output
    assert handler.asked[handler.breaks] == 2, output
    assert checkout.ask("import quick; print(quick.version)") == "1.0"


def test_killed_in_the_middle_the_next_run_waits_for_pip_and_starts_anew(checkout, served, gate):
    online, handler = served
    killed = checkout.start(GATE=str(gate), **online)
    with gate.open("w"):  # pip is in the middle now, and stays there until the end of this block
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        following = checkout.start(**online)
        assert following.stdout.readline().startswith("Another run is making the environment")
    output, _ = following.communicate(timeout=300)
    assert following.returncode == 0, output
    assert f"{MAKING}: a few minutes, and 1.2 GB to download, or 3.7 GB with CUDA.\n" in output
    assert checkout.ask("import quick, slow, small; print(quick.version)") == "1.0"
    assert handler.asked["quick-1.0-py3-none-any.whl"] == 1, "the second run fetched it again"
    assert checkout.cached() == ["environment.lock"]
    killed.stdout.close()


def test_ctrl_c_is_one_line(checkout, gate):
    process = checkout.start(GATE=str(gate))
    with gate.open("w"):
        os.killpg(process.pid, signal.SIGINT)  # what a terminal does
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert output.endswith("\nStopped. The same command goes on from here.\n")
    assert "Traceback" not in output


def test_on_a_terminal_what_pip_says_takes_one_line_with_a_clock(checkout, gate):
    ours, theirs = pty.openpty()
    process = checkout.start(stdout=theirs, GATE=str(gate))
    os.close(theirs)
    said = bytearray()
    with os.fdopen(ours, "rb") as terminal:
        with gate.open("w"):  # pip is in the middle now, and stays there until this block ends
            while len(re.findall(rb"packages  (Preparing|Building|Getting)", said)) < 2:
                said += terminal.read1()
        with suppress(OSError):  # Linux: it is closed
            while part := terminal.read1():
                said += part
    assert process.wait() == 0
    first, shown = said.decode().split("\r\n")
    assert first.startswith(MAKING)
    assert all(
        re.fullmatch(r" *\d+ s, +\d+ of about 240 packages  .{46}", words)
        for words in shown.split("\r")[:-1]
    )


def test_a_small_disk_is_one_line(checkout, tmp_path):
    room = tmp_path / "room"
    room.mkdir()
    there = 'cp -r "$0/." "$1" && cd "$1" && exec sh tools/python.sh tools/run.py environment'
    command = [*small_disk(room, "9m"), "sh", "-c", there, checkout.root, room]
    environment = os.environ | {"PYTHON": sys.executable}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ran.returncode == 1
    assert ran.stderr == f"The environment takes 6 GB, and {room} has 0.0 GB left: free some.\n"


def test_an_environment_of_somebody_else_is_left_alone(checkout):
    mine = checkout.root / ".venv" / "mine"
    mine.parent.mkdir()
    mine.touch()
    code, output = checkout.run()
    assert code == 1
    assert "was not made by this tool" in output
    assert mine.exists()
    assert checkout.run("clean")[0] == 1
    assert mine.exists()


def test_without_a_fitting_python_the_message_says_what_was_found(checkout, tmp_path):
    code, output = checkout.run(PYTHON="/no/such/python")
    assert code == 1
    assert (
        "distlab needs Python 3.11, 3.12 or 3.13. Found:\n  PYTHON=/no/such/python does not run"
        in output
    )
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "sh").symlink_to(shutil.which("sh"))
    code, output = checkout.run(PYTHON="", PATH=str(tools))
    assert code == 1
    assert "Found:\n  no Python at all" in output
    # A shim on PATH that stands for nothing is passed over.
    (tools / "python3").write_text("#!/bin/sh\necho 'python3: command not found' >&2; exit 127\n")
    (tools / "python3").chmod(0o755)
    (tools / "python").symlink_to(sys.executable)
    # So is one that is too old.
    old = "import sys; sys.version_info = (3, 9, 18); exec(sys.argv[1])"
    (tools / "python3.12").write_text(f"#!/bin/sh\nexec {sys.executable} -c '{old}' \"$2\"\n")
    (tools / "python3.12").chmod(0o755)
    assert checkout.run("help", PYTHON="", PATH=str(tools))[0] == 0
    (tools / "python").unlink()
    code, output = checkout.run("help", PYTHON="", PATH=str(tools))
    assert code == 1
    assert "Found:\n  python3.12 is Python 3.9.18\nInstall one of them" in output


def test_the_users_own_choice_of_folders_wins(tmp_path, monkeypatch):
    run = tool("run")
    for name in (*run.HOMES, "TFDS_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KERAS_HOME", "/mine")
    found = run.variables(cpu_only=True)
    assert found["KERAS_HOME"] == "/mine"
    assert found["IPYTHONDIR"] == str(ROOT / ".cache" / "ipython")
    assert found["TFDS_DATA_DIR"] == str(ROOT / ".cache" / "tensorflow_datasets")
    assert found["CUDA_VISIBLE_DEVICES"] == "-1"
    (tmp_path / "tensorflow_datasets").mkdir()
    assert "TFDS_DATA_DIR" not in run.variables(cpu_only=True)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere PyTorch has no CUDA")
def test_the_smaller_pytorch_is_asked_for_where_its_index_answers(served, tmp_path, monkeypatch):
    environment = tool("environment")
    (tmp_path / "served" / "torch").mkdir()
    (tmp_path / "served" / "torch" / "torch-1.0-py3-none-any.whl").touch()
    monkeypatch.setattr(environment, "PYTHON", Path(sys.executable))
    monkeypatch.setenv("PATH", str(tmp_path))  # no nvidia-smi
    variables, handler = served
    monkeypatch.setattr(environment, "CPU_TORCH", variables["PIP_INDEX_URL"])
    bare = {"PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    option = [f"--extra-index-url={variables['PIP_INDEX_URL']}"]
    assert environment.cpu_torch(bare) == option
    assert environment.cpu_torch(bare | {"PIP_INDEX_URL": "https://example.org"}) == []
    assert handler.asked == {"torch": 1}
    (tmp_path / "nvidia-smi").touch(0o755)
    assert environment.cpu_torch(bare) == []
    (tmp_path / "nvidia-smi").unlink()
    monkeypatch.setattr(environment, "CPU_TORCH", "http://127.0.0.1:9")
    assert environment.cpu_torch(bare) == []
