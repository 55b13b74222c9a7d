"""The servers that some tests need besides the project's environment.

A test says what it needs: `@pytest.mark.needs("slurm")`. Where that is missing the test is left
out, and the end of the run has one line for each server, with the command that installs it. A
server that DISTLAB_REQUIRE names, as in DISTLAB_REQUIRE=slurm,mpi, must not be missing: its tests
fail then.
"""

import functools
import os
import re
import shutil
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import pytest

BINARIES = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
"""Where daemons are, which are not on everybody's PATH."""


@dataclass(frozen=True)
class Server:
    """Something that is no package of the project's environment.

    Attributes:
        title: Its name in a sentence.
        install: The command that brings it here.
        lacks: Says what is missing; an empty string if nothing is.
    """

    title: str
    install: str
    lacks: Callable[[], str]


def _programs(*names: str) -> str:
    return ", ".join(name for name in names if shutil.which(name, path=BINARIES) is None)


def _lacks_slurm() -> str:
    if missing := _programs("munged", "slurmctld", "slurmd", "scontrol", "srun", "sbatch"):
        return missing
    if os.getuid() != 0:
        return "root's rights, which slurmd needs to start jobs"
    try:  # as Slurm's daemons do; where there is no address but 127.0.0.1 nothing is found
        socket.getaddrinfo(socket.gethostname(), 0, socket.AF_INET, flags=socket.AI_ADDRCONFIG)
    except OSError:
        return "an address for this machine's name: ip address add 127.0.0.2/8 dev lo"
    return ""


def _lacks_hosts() -> str:
    if missing := _programs("ip", "nsenter", "unshare"):
        return missing
    kinds = ["--mount", "--net", "--pid", "--fork"]
    kinds += [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    tried = subprocess.run(["unshare", *kinds, "true"], capture_output=True, text=True)
    return tried.stderr.strip()


def _lacks_index() -> str:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir", "--quiet"]
    command += ["--retries=0", "--timeout=10", "--dest", os.devnull, "iniconfig==999"]
    # There is no such version: an index says which there are.
    said = subprocess.run(command, capture_output=True, text=True).stderr
    return "" if re.search(r"from versions: \d", said) else "an answer"


SERVERS = {
    "hosts": Server("Network namespaces", "apt-get install iproute2 util-linux", _lacks_hosts),
    "index": Server("A package index", "connect to the network", _lacks_index),
    "mpi": Server("Open MPI", "apt-get install openmpi-bin", lambda: _programs("mpirun")),
    "ray": Server(
        "Ray",
        "pip install 'distlab[ray]'",
        lambda: "" if find_spec("ray") else "the package ray",
    ),
    "slurm": Server("Slurm", "apt-get install slurm-wlm munge", _lacks_slurm),
}


@functools.cache
def lacks(name: str) -> str:
    """What is missing for a server; an empty string if it can be started here."""
    return SERVERS[name].lacks()


def required() -> set[str]:
    """The servers that must not be missing."""
    names = {name for name in os.environ.get("DISTLAB_REQUIRE", "").split(",") if name}
    if unknown := names - set(SERVERS):
        raise pytest.UsageError(
            f"DISTLAB_REQUIRE names {', '.join(sorted(unknown))}; it may name {', '.join(SERVERS)}."
        )
    return names


def _needs(item: pytest.Item) -> list[str]:
    return [name for mark in item.iter_markers("needs") for name in mark.args]


class Servers:
    """Leaves tests out, makes them fail, and says why."""

    def __init__(self) -> None:
        self.required = required()
        self.left_out: Counter[str] = Counter()

    @pytest.hookimpl(trylast=True)  # after -k and -m, so that only what was asked for is counted
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Leave out what has no server."""
        without = {
            item: name
            for item in items
            for name in _needs(item)
            if name not in self.required and lacks(name)
        }
        self.left_out = Counter(without.values())
        items[:] = [item for item in items if item not in without]
        if hasattr(config, "workeroutput"):
            config.workeroutput["left out"] = dict(self.left_out)

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Fail where a server is missing that was asked for."""
        for name in _needs(item):
            if missing := lacks(name):
                server = SERVERS[name]
                pytest.fail(
                    f"DISTLAB_REQUIRE asks for {name}, and this is missing: {missing}. "
                    f"To have it: {server.install}",
                    pytrace=False,
                )

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Hear from a worker what it has left out: each has the same."""
        self.left_out = Counter(getattr(node, "workeroutput", {}).get("left out", {}))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what was left out, a line for each server."""
        for name, count in sorted(self.left_out.items()):
            server = SERVERS[name]
            tests = f"{count} test{'s' * (count > 1)}"
            missing = lacks(name)
            terminalreporter.write_line(
                f"{server.title} is missing ({missing}), so {tests} did not run. "
                f"To run them: {server.install}"
            )


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark, and what acts on it."""
    config.addinivalue_line("markers", "needs(server, ...): what the test needs; see _servers.py")
    config.pluginmanager.register(Servers(), "distlab-servers")
