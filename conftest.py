"""What holds for notebooks and tests alike, however pytest was started."""

import contextlib
import gc
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from _tools import tool

pytest_plugins = ["_schedule", "_servers", "_solutions"]

# The folders of `make test`: a home that cannot be written to would make Matplotlib complain.
os.environ.update(tool("run").variables(cpu_only=not os.environ.get("GPU")))
os.environ.update(tool("run").STILL)

# A job in a shell's background ignores Ctrl-C, and under nohup SIGHUP. What the tests start would
# ignore them, too; a signal that has a handler here is at its default there.
for _number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)

TEMPORARY = pytest.StashKey[Path]()
KEPT = pytest.StashKey[bool]()
NEEDS = {"16_beyond_one_machine.ipynb": "ray"}
"""What a notebook needs that the other extras do not bring."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the cells of notebooks that need more than the others."""
    for item in items:
        if item.path.name in NEEDS:
            item.add_marker(pytest.mark.needs(NEEDS[item.path.name]))


def pytest_collection_finish() -> None:
    """Have ranks get the functions of a test's module, instead of its name.

    They would import the module, and pytest with it: a fifth of a second for each rank.
    """
    if module := sys.modules.get("tests"):
        cloudpickle.register_pickle_by_value(module)


OURS = "distlab-*"
"""What distlab calls its directories for temporary files."""
PATIENCE = 10.0
"""Seconds for a supervisor to remove its own when its kernel has just been killed."""


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give the whole run a directory of its own for temporary files.

    Kernels and launchers that are killed leave files of TensorFlow's or torchrun's.
    """
    if hasattr(config, "workerinput"):
        return
    config.stash[TEMPORARY] = Path(tempfile.mkdtemp(prefix="t-"))  # short: sockets are in there
    _use(config.stash[TEMPORARY])


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail where distlab has left something."""
    if client := sys.modules.get("distlab.launching.kernel.client"):
        while client._clients:
            client._clients.popitem()[1].close()
    gc.collect()  # what nobody holds any more has a directory, too
    if hasattr(session.config, "workerinput"):
        return
    terminal: Any = session.config.pluginmanager.getplugin("terminalreporter")
    directory = session.config.stash[TEMPORARY]
    deadline = time.monotonic() + PATIENCE
    while left := sorted(path.name for path in directory.glob(OURS)):
        if time.monotonic() > deadline:
            for name in left:
                terminal.write_line(f"distlab has left {name}", red=True)
                _tell_of(directory / name, terminal)
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED
            break
        time.sleep(0.05)
    if session.exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.config.stash[KEPT] = True
        terminal.write_line(f"What the tests have written is kept in {directory}")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the directory, unless it may show what has failed."""
    if directory := config.stash.get(TEMPORARY, None):
        _use(directory.parent)
        if not config.stash.get(KEPT, False):
            shutil.rmtree(directory, ignore_errors=True)


def _tell_of(directory: Path, terminal: Any) -> None:
    """Say what is in a directory that was left, and which processes have to do with it."""
    import psutil

    for path in sorted(directory.rglob("*")):
        terminal.write_line(f"  {path.relative_to(directory)}, {path.lstat().st_size} bytes")
    for process in psutil.process_iter(["pid", "ppid", "status", "cmdline"]):
        with contextlib.suppress(psutil.Error):
            if directory.name in f"{process.info['cmdline']}{process.environ()}":
                terminal.write_line(f"  {process.info}")


def _use(directory: Path) -> None:
    os.environ["TMPDIR"] = str(directory)
    tempfile.tempdir = None
