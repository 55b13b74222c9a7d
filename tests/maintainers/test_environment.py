"""Making the environment: a small project in place of ours, a real Python and pip, no network."""

import ast
import functools
import inspect
import os
import shutil
import signal
import subprocess
import sys
import threading
import zipfile
from collections import Counter
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import distribution
from pathlib import Path

import pytest
from _tools import ROOT

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

    def start(self, command: str = "environment", **variables: str) -> subprocess.Popen[str]:
        environment = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        environment |= {
            "HOME": str(self.home),
            "PYTHON": sys.executable,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": self.index.as_uri(),
            **variables,
        }
        return subprocess.Popen(
            ["sh", "tools/python.sh", "tools/run.py", command],
            cwd=self.root,
            env=environment,
            stdout=subprocess.PIPE,
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
    assert output.startswith("Making the environment .venv: there is none.\n")
    assert output.endswith("The environment is ready.\n")
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
        assert output.startswith("Updating the environment .venv: the pinned packages have changed")
        assert made.ask("import quick; print(quick.version)") == version
    assert added.exists()
    assert made.run() == (0, "")


def test_an_update_that_fails_says_why_and_what_to_do_and_leaves_the_old_environment(
    made, subtests
):
    before = (made.root / "constraints.txt").read_text()
    nobody = "http://127.0.0.1:9/simple"
    offline = {"PIP_NO_INDEX": "0", "PIP_INDEX_URL": nobody, "PIP_RETRIES": "1"}
    for version, variables, why, what in (
        ("3.0", {}, "quick==3.0", "Pip found no build of a package for this machine"),
        ("2.0", {"PIP_REQUIRE_HASHES": "1"}, "ERROR: ", "Pip failed, and its own words are above."),
        ("2.0", {**offline, "PIP_FIND_LINKS": ""}, "refused", "No package index answered. Connect"),
    ):
        with subtests.test(what):
            made.pin(version)
            code, output = made.run(**variables)
            assert code == 1
            assert why in output
            assert output.splitlines()[-1].startswith(what)
            assert "Traceback" not in output
            (made.root / "constraints.txt").write_text(before)
            assert made.run() == (0, "")


def test_a_moved_project_gets_a_new_one_which_two_runs_at_once_make_once(made, checkout, gate):
    shutil.copytree(made.root, checkout.root, symlinks=True, dirs_exist_ok=True)
    first = checkout.start(GATE=str(gate))
    with gate.open("w"):
        second = checkout.start()
        assert second.stdout.readline().startswith("Another run is making the environment")
    output, _ = first.communicate(timeout=300)
    assert output.startswith("Making the environment .venv: the project has moved.\n")
    assert output.endswith("The environment is ready.\n")
    assert second.communicate(timeout=300)[0] == ""
    assert (first.returncode, second.returncode) == (0, 0)
    assert checkout.ask("import small; print(small.__file__)") == str(checkout.root / "small.py")
    assert checkout.run("clean") == (0, "")
    assert not (checkout.root / ".venv").exists()
    assert checkout.cached() == ["environment.lock"]


class Index(SimpleHTTPRequestHandler):
    """Serves the folder as a package index, whose files a client may keep, and counts requests."""

    asked: Counter[str]

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "max-age=600")
        super().end_headers()

    def log_request(self, *arguments: object) -> None:
        self.asked[Path(self.path).name] += 1


@pytest.fixture
def served(index, tmp_path) -> Iterator[tuple[str, Counter[str]]]:
    """The index behind an address, and how often each of its files was asked for."""
    for file in index.iterdir():
        project = tmp_path / "served" / file.name.split("-")[0].replace("_", "-")
        project.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, project)
    asked: Counter[str] = Counter()
    handler = type("Counting", (Index,), {"asked": asked})
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(handler, directory=tmp_path / "served")
    ) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


def test_killed_in_the_middle_the_next_run_waits_for_pip_and_starts_anew(checkout, served, gate):
    address, asked = served
    online = {"PIP_NO_INDEX": "0", "PIP_INDEX_URL": address, "PIP_FIND_LINKS": ""}
    online["PIP_TRUSTED_HOST"] = address.removeprefix("http://")  # pip caches no other http
    killed = checkout.start(GATE=str(gate), **online)
    with gate.open("w"):  # pip is in the middle now, and stays there until the end of this block
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        following = checkout.start(**online)
        assert following.stdout.readline().startswith("Another run is making the environment")
    output, _ = following.communicate(timeout=300)
    assert following.returncode == 0, output
    assert "Making the environment .venv: the last run did not finish it.\n" in output
    assert checkout.ask("import quick, slow, small; print(quick.version)") == "1.0"
    assert asked["quick-1.0-py3-none-any.whl"] == 1, "the second run fetched it again"
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
    for name in ("sh", "dirname"):
        (tools / name).symlink_to(shutil.which(name))
    code, output = checkout.run(PYTHON="", PATH=str(tools))
    assert code == 1
    assert "Found:\n  no Python at all" in output
    # A shim on PATH that stands for nothing is passed over.
    (tools / "python3").write_text("#!/bin/sh\necho 'python3: command not found' >&2; exit 127\n")
    (tools / "python3").chmod(0o755)
    (tools / "python").symlink_to(sys.executable)
    assert checkout.run("help", PYTHON="", PATH=str(tools))[0] == 0


def test_the_users_own_choice_of_folders_wins(checkout):
    code = (
        "import sys; sys.path.insert(0, 'tools'); import run; print(run.variables(cpu_only=True))"
    )

    def variables() -> dict[str, str]:
        said = subprocess.check_output(
            [sys.executable, "-c", code],
            cwd=checkout.root,
            env={"HOME": str(checkout.home), "KERAS_HOME": "/mine"},
            text=True,
        )
        return ast.literal_eval(said)

    found = variables()
    assert found["KERAS_HOME"] == "/mine"
    assert found["IPYTHONDIR"] == str(checkout.root / ".cache" / "ipython")
    assert found["TFDS_DATA_DIR"] == str(checkout.root / ".cache" / "tensorflow_datasets")
    assert found["CUDA_VISIBLE_DEVICES"] == "-1"
    (checkout.home / "tensorflow_datasets").mkdir()
    assert "TFDS_DATA_DIR" not in variables()
