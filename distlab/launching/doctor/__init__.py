"""Is all well on this machine? Looks at versions, groups, known problems, what was left behind."""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import distlab
from distlab.errors import RankError
from distlab.frameworks import FRAMEWORKS
from distlab.launching.doctor import known_problems, leftovers
from distlab.launching.doctor.known_problems import Remark
from distlab.launching.kernel.job import Job
from distlab.launching.kernel.snapshot import size
from distlab.launching.launch import launch
from distlab.launching.supervisor.resources import core_count, visible_gpus

_PATIENCE = 45.0
"""Seconds a group may take to form; on a slow machine most of them go into the import."""
_SHOWN = 10
"""How many processes, and how many directories, are named."""
_CLEAN = "python -m distlab doctor --clean removes what no run uses any more"


def examine(clean: bool = False) -> Iterator[tuple[str, Iterable[Remark]]]:
    """Look at one thing after the other.

    Args:
        clean: End and remove what earlier runs have left behind.

    Yields:
        What was looked at, and what was found there, as it is found.
    """
    versions = known_problems.installed()
    yield "Versions", [*_own_versions(), *known_problems.look_at_versions(versions)]
    yield "Machine", _machine()
    yield "Groups of two ranks", _groups([name for name in FRAMEWORKS if versions[name]])
    known = list(known_problems.look_for_problems(versions))
    yield "Known problems", known or [Remark("ok", "none of those that distlab knows")]
    yield "Left over from earlier runs", _left_over(clean)


def _own_versions() -> Iterator[Remark]:
    yield Remark("", f"python {sys.version.split()[0]} ({sys.executable})")
    yield Remark("", f"distlab {distlab.__version__} ({Path(distlab.__file__).parent})")


def _machine() -> Iterator[Remark]:
    import psutil

    cores = core_count()
    yield Remark("", f"{cores} core{'s' * (cores > 1)}")
    memory = psutil.virtual_memory()
    yield Remark("", f"{size(memory.total)} of memory, {size(memory.available)} of it free")
    gpus = visible_gpus(dict(os.environ))
    yield Remark("", f"GPUs: {', '.join(_gpu_names() or gpus) if gpus else 'none seen'}")


def _gpu_names() -> list[str]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    command = [program, "--query-gpu=name", "--format=csv,noheader"]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        return done.stdout.splitlines() if done.returncode == 0 else []
    return []


def _groups(installed: list[str]) -> Iterator[Remark]:
    if not installed:
        yield Remark("", "no framework is installed")
    began = time.monotonic()
    with contextlib.ExitStack() as stack:  # all at once: most of the time goes into imports
        jobs = [stack.enter_context(launch(_SUMS[name], 2, name)) for name in installed]
        for name, job in zip(installed, jobs, strict=True):
            yield _group(name, job, began)


def _group(framework: str, job: Job, began: float) -> Remark:
    left = round(began + _PATIENCE - time.monotonic(), 1)
    try:
        sums = job.results(timeout=max(0.1, left))
    except RankError as error:
        return Remark("problem", f"{framework}: {error}")
    if sums != [3.0, 3.0]:
        return Remark("problem", f"{framework}: the ranks summed 1 + 2 to {sums}")
    seconds = max(status.ended or 0 for status in job.status) - began
    return Remark("ok", f"{framework}: formed and summed, {seconds:.1f} s with the import")


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


def _left_over(clean: bool) -> Iterator[Remark]:
    found = leftovers.find()
    if found and clean:
        leftovers.remove(found)
        ended, removed = len(found.processes), len(found.directories)
        yield Remark("ok", f"processes ended: {ended}, directories removed: {removed}")
        found = leftovers.find()
    elif not found:
        yield Remark("ok", "nothing")
    # A process takes memory and time from other runs; a directory takes a little room on the disk.
    running = [f"process {pid}: {words[:80]}" for pid, words in found.processes.items()]
    lying = [f"directory {path}" for path in found.directories]
    for level, lines in (("problem", running), ("note", lying)):
        if lines:
            more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
            yield Remark(level, "\n".join([*lines[:_SHOWN], *more]), _CLEAN)
