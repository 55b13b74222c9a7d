"""Is all well on this machine? Versions, groups of ranks, what was left behind."""

import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from distlab.frameworks import FRAMEWORKS
from distlab.launching import processes
from distlab.launching.launch import launch
from distlab.launching.rank_errors import RankError

PACKAGES = ("torch", "tensorflow", "jax", "keras", "tf_keras", "numpy")
"""What distlab works with."""
_PATIENCE = 45.0
"""Seconds a group may take to form; on a slow machine most of them go into the import."""
_DYING = 2.0
"""Seconds within which all ends that a kernel which has just ended had started."""


def examine(clean: bool = False) -> Iterator[tuple[str, Iterable[tuple[str, str]]]]:
    """Look at one thing after the other.

    Args:
        clean: End and remove what earlier runs have left behind.

    Yields:
        What was looked at, and what is found there: a level, which is `ok`, `note` for what is good
        to know, `problem`, or empty for a mere fact; and words.
    """
    versions = installed()
    yield "Versions", _versions(versions)
    yield "Groups of two ranks", _groups([name for name in FRAMEWORKS if versions[name]])
    yield "Left over from earlier runs", _left_over(clean)


def installed() -> dict[str, str | None]:
    """The version of each of `PACKAGES`, None where it is not installed."""
    known = metadata.packages_distributions()  # tensorflow may be tensorflow-cpu's
    return {name: metadata.version(known[name][0]) if name in known else None for name in PACKAGES}


def _versions(found: dict[str, str | None]) -> Iterator[tuple[str, str]]:
    yield "", f"python {sys.version.split()[0]} ({sys.executable})"
    yield "", f"distlab is in {Path(__file__).parents[1]}"
    for name, version in found.items():
        yield "", f"{name} {version}" if version else f"{name}: not installed"


def _groups(installed: list[str]) -> Iterator[tuple[str, str]]:
    if not installed:
        yield "", "no framework is installed"
    began = time.monotonic()
    with contextlib.ExitStack() as stack:  # all at once: most of the time goes into imports
        jobs = {name: stack.enter_context(launch(_SUMS[name], 2, name)) for name in installed}
        for name, job in jobs.items():
            try:
                sums = job.results(timeout=max(0.1, began + _PATIENCE - time.monotonic()))
            except RankError as error:
                yield "problem", f"{name}: {error}"
                continue
            if sums != [3.0, 3.0]:
                yield "problem", f"{name}: the ranks summed 1 + 2 to {sums}"
                continue
            taken = max(status.ended or 0 for status in job.status) - began
            yield "ok", f"{name}: formed and summed, {taken:.1f} s with the import"


# Each rank gives its rank plus one to the group, and returns the sum of all.


def _sum_torch() -> float:
    import torch
    import torch.distributed

    torch.distributed.init_process_group("gloo")
    total = torch.tensor(torch.distributed.get_rank() + 1.0)
    torch.distributed.all_reduce(total)
    torch.distributed.destroy_process_group()
    return float(total)


def _sum_tensorflow() -> float:
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    def share() -> object:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        return tf.cast(replica + 1, tf.float32)

    return float(strategy.reduce("SUM", strategy.run(share), axis=None))


def _sum_jax() -> float:
    import jax
    import numpy as np
    from jax.experimental import multihost_utils

    jax.distributed.initialize()
    shares = multihost_utils.process_allgather(np.float32(jax.process_index() + 1))
    return float(np.sum(shares))


_SUMS: dict[str, Callable[[], float]] = {
    "jax": _sum_jax,
    "tensorflow": _sum_tensorflow,
    "torch": _sum_torch,
}


# What a run that was cut short has left behind. A supervisor ends all it has started when its
# kernel ends; a process of the kernel's holds each directory, and removes it then. Something
# stays where these could not act: they were killed together with the kernel, or were stopped.


def leftovers() -> tuple[dict[Any, str], list[Path]]:
    """Processes of this user's earlier runs, with what each is, and directories nobody uses."""
    # Before the processes: of every directory, what holds it was there first.
    directories = sorted(filter(_is_ours, Path(tempfile.gettempdir()).glob("distlab-*")))
    found: dict[Any, tuple[str, str]] = {}
    used: set[str] = set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.uids().real != os.getuid() or process.pid == os.getpid():
                continue
            command, job = process.cmdline(), processes.job_of(process.pid)
            if any("supervisor.bootstrap import entry" in word for word in command):
                if int(command[-1]) not in [parent.pid for parent in process.parents()]:
                    found[process] = "", "a supervisor or a rank without its kernel"
            elif job:
                found[process] = job.rpartition("-")[0], " ".join(command)
            elif command[:2] == ["sh", "-c"]:  # perhaps one that holds a directory
                used.add(Path(command[-1]).name)
    lost = {process: words for process, (name, words) in found.items() if name not in used}
    _, staying = psutil.wait_procs(lost, timeout=_DYING)
    return {process: lost[process] for process in staying}, [
        path for path in directories if path.name not in used
    ]


def _is_ours(directory: Path) -> bool:
    """Whether a directory is this user's and of this machine: elsewhere process ids are others."""
    with contextlib.suppress(OSError):
        if directory.stat().st_uid == os.getuid():
            return (directory / processes.MACHINE).read_text() == processes.machine()
    return False


def _left_over(clean: bool) -> Iterator[tuple[str, str]]:
    running, lying = leftovers()
    if clean:
        for process in running:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(running, timeout=5)
        for directory in lying:
            shutil.rmtree(directory, ignore_errors=True)
        words = f"processes ended: {len(running)}, directories removed: {len(lying)}"
        yield "ok", words
        running, lying = leftovers()
    elif not running and not lying:
        yield "ok", "nothing"
    cure = "-> python -m distlab doctor --clean removes what no run uses any more"
    # A process takes memory and time from other runs; a directory takes a little room on the disk.
    processes_left = [f"process {one.pid}: {words[:80]}" for one, words in running.items()]
    directories_left = [f"directory {path}" for path in lying]
    for level, lines in (("problem", processes_left), ("note", directories_left)):
        if lines:
            yield level, "\n".join([*lines, cure])
