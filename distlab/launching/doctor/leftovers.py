"""What a run that was cut short may have left behind: processes that go on, and directories.

A supervisor ends all it has started when its kernel ends, however that happens. Something may
stay where the supervisor could not act: it was killed together with the kernel, or was stopped.
"""

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distlab.launching import processes
from distlab.launching.protocol.files import KERNEL

_YOUNG = 10.0
"""Seconds within which a directory may be waiting for its supervisor to start."""
_DYING = 2.0
"""Seconds within which a supervisor ends whose kernel has just ended, with all it started."""


@dataclass(frozen=True)
class Leftovers:
    """What nobody uses any more.

    Attributes:
        processes: Process ids, and in words what each process is.
        directories: Directories of supervisors that are gone, and of kernels.
    """

    processes: dict[int, str]
    directories: list[Path]

    def __bool__(self) -> bool:
        return bool(self.processes or self.directories)


@dataclass(frozen=True)
class _Process:
    """A process that distlab started, or one of its ranks.

    Attributes:
        process: Its handle.
        lineage: Its own id, its parent's, and so on.
        supervisor: The name of the directory of the supervisor it belongs to.
        kernel: The process id of that supervisor's kernel, where it is known.
        command: What it is.
    """

    process: Any
    lineage: list[int]
    supervisor: str
    kernel: int | None
    command: str


def find() -> Leftovers:
    """Look for what this user's earlier runs have left behind."""
    import psutil

    everything = list(_processes())
    # A forked rank has its supervisor's command line, but not the kernel as its parent.
    living = {
        each.lineage[0]: each.supervisor for each in everything if each.kernel in each.lineage[1:2]
    }
    lost = {
        each.process: each.command
        for each in everything
        if each.supervisor not in living.values() and not living.keys() & each.lineage
    }
    _, staying = psutil.wait_procs(lost, timeout=_DYING)
    directories = [path for path in _directories() if path.name not in living.values()]
    directories += _deserted()
    return Leftovers({process.pid: lost[process] for process in staying}, directories)


def remove(leftovers: Leftovers) -> None:
    """Kill the processes and remove the directories."""
    import psutil

    doomed = []
    for pid in leftovers.processes:
        with contextlib.suppress(psutil.Error):
            doomed.append(psutil.Process(pid))
            doomed[-1].kill()
    psutil.wait_procs(doomed, timeout=5)
    for directory in leftovers.directories:
        shutil.rmtree(directory, ignore_errors=True)


def _processes() -> Iterator[_Process]:
    """This user's processes, less this one, that have to do with distlab."""
    import psutil

    me = psutil.Process()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.username() != me.username() or process == me:
                continue
            if not _counts_as_here(process.pid):
                continue
            command = process.cmdline()
            kernel = None
            supervisor = (processes.job_of(process.pid) or "").rpartition("-")[0]
            if (
                len(command) == 8
                and "from distlab.launching.supervisor.bootstrap import entry" in command[2]
            ):
                supervisor, kernel = Path(command[-2]).name, int(command[-1])
                command = ["a supervisor or a rank"]
            if supervisor:
                lineage = [process.pid, *(parent.pid for parent in process.parents())]
                yield _Process(process, lineage, supervisor, kernel, " ".join(command))


def _directories() -> list[Path]:
    """Directories of supervisors, as far as they are this user's and not brand-new."""
    found = []
    for path in sorted(Path(tempfile.gettempdir()).glob("distlab-*")):
        with contextlib.suppress(OSError):
            log = (path / "supervisor.log").stat()
            if _is_ours(path, log.st_uid) and time.time() - log.st_mtime > _YOUNG:
                found.append(path)
    return found


def _deserted() -> list[Path]:
    """Directories of jobs on other engines whose kernel is gone."""
    import psutil

    found = []
    for path in sorted(Path(tempfile.gettempdir()).glob(f"distlab-*/{KERNEL}")):
        with contextlib.suppress(OSError, ValueError):
            own = _is_ours(path.parent, path.stat().st_uid)
            if own and not psutil.pid_exists(int(path.read_text())):
                found.append(path.parent)
    return found


def _counts_as_here(pid: int) -> bool:
    """Whether process ids mean to a process what they mean here; not in a container, say."""
    spaces = [Path(f"/proc/{who}/ns/pid") for who in ("self", pid)]
    try:
        own, its = (space.readlink() for space in spaces)
    except OSError:  # a system without namespaces, or a process that has ended
        return True
    return own == its


def _is_ours(directory: Path, owner: int) -> bool:
    """Whether a directory is this user's and of this machine: elsewhere process ids are others."""
    mine = not hasattr(os, "getuid") or owner == os.getuid()
    return mine and (directory / processes.MACHINE).read_text() == processes.machine()
