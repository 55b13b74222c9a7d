"""The set-up cell, run by a Python that has everything but distlab, as on Colab."""

import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.metadata import distributions
from pathlib import Path

import pytest
from _tools import ROOT

CELL = (ROOT / "tools" / "setup_cell.py").read_text()
REPORT = "\nimport distlab\nprint(distlab.__file__)"
# No network, and no isolated build, which would need one; pip reads 0 as "no isolation".
OFFLINE = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_CACHE_DIR": "1"}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """What git has of the project."""
    folder = tmp_path_factory.mktemp("clone") / "distlab"
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


class Colab:
    """A Python with this environment's packages but without distlab, and a folder to work in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "content"
        self.folder.mkdir()
        environment = folder / "python"
        command = [sys.executable, "-m", "venv", "--without-pip", environment]
        subprocess.run(command, check=True)
        self.python = environment / "bin" / "python"
        self.packages = next(environment.glob("lib/python*/site-packages"))
        shared = folder / "shared"
        shared.mkdir()
        for entry in Path(sysconfig.get_path("purelib")).iterdir():
            if not entry.name.startswith(("distlab", "_distlab")):
                (shared / entry.name).symlink_to(entry)
        (self.packages / "shared.pth").write_text(str(shared))

    def run(self, cell: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **OFFLINE}
        environment.pop("PYTHONPATH", None)
        command = [self.python, "-c", cell]
        return subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True
        )

    def assert_installs_only_distlab(self, cell: str) -> None:
        ran = self.run(cell + REPORT)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert ran.stdout == f"{self.packages / 'distlab' / '__init__.py'}\n"
        assert ran.stderr == ""
        installed = distributions(path=[str(self.packages)])
        assert [distribution.name for distribution in installed] == ["distlab"]


@pytest.fixture
def colab(tmp_path) -> Colab:
    return Colab(tmp_path)


def stamped(source: str) -> str:
    assert CELL.count('SOURCE = ""') == 1
    return CELL.replace('SOURCE = ""', f'SOURCE = "{source}"')


def test_where_distlab_is_there_nothing_happens():
    command = [sys.executable, "-c", stamped("/no/such/place")]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_a_wheel_beside_the_notebook(colab, wheel):
    shutil.copy(wheel, colab.folder)
    colab.assert_installs_only_distlab(CELL)


def test_the_newest_of_two_wheels(colab, wheel):
    old = colab.folder / "distlab-0.0.9-py3-none-any.whl"
    old.write_text("not a wheel: pip would refuse it")
    os.utime(old, (0, 0))
    shutil.copy(wheel, colab.folder)
    colab.assert_installs_only_distlab(CELL)


@pytest.mark.parametrize("place", ["distlab", ".."])
def test_a_checkout_beside_or_around_the_notebook(colab, checkout, place):
    shutil.copytree(checkout, colab.folder / place, dirs_exist_ok=True)
    colab.assert_installs_only_distlab(CELL)


def test_a_stamped_git_repository(colab, checkout, tmp_path):
    repository = shutil.copytree(checkout, tmp_path / "repository")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", repository]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "all"]):
        subprocess.run([*git, *arguments], check=True)
    colab.assert_installs_only_distlab(stamped(f"git+file://{repository}"))


def test_nothing_to_install_is_said_in_one_sentence(colab):
    ran = colab.run(CELL)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: distlab is missing: "
        "put its wheel or checkout beside this notebook and run again"
    )
    assert ran.stderr.count("Traceback") == 1


def test_what_pip_says_is_shown_when_it_fails(colab):
    ran = colab.run(stamped("/no/such/place"))
    assert ran.returncode == 1
    assert "pip install /no/such/place failed:" in ran.stderr
    assert "File '/no/such/place' does not exist" in ran.stderr
    assert ran.stderr.count("Traceback") == 1
