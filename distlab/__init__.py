"""Distributed deep learning on one machine, and the same code on a cluster.

`import distlab` imports no framework; each helper imports the one it is asked for.

    virtual_devices   eight devices on a machine that has one CPU
    run, launch       a function or a script as several ranks, and wait, or go on at once
    Job               what `launch` returns: logs, results, kill, pause, restart
    last_job          the job of the last `run`
    prewarm           import a framework in the background, before the first launch
    Ray, Slurm        the same on a Ray cluster, or on Slurm: launch(..., engine=Ray())
    rank_info         rank, world size and coordinator of this process, whoever started it
    WorkerError       a rank failed; JobTimeoutError: a job took too long

    datasets          real digits as NumPy arrays, or MNIST
    layouts           which slice of which tensor is on which device: draw, table, lint
    collectives       what a step communicates, over which axis, in how many bytes
    checkpoints       who saves where when several ranks save
    timeline          when a rank did what: record it in the rank
    costs             what a training step takes: memory, time, and which plans fit
    puzzles           tasks on real ranks, with budgets that hold
    plots             pictures of timelines, collectives, memory and curves; a style for your own

Example:
    >>> import os
    >>> import distlab
    >>> distlab.run(lambda: int(os.environ["RANK"]), nprocs=4)
    [0, 1, 2, 3]
"""

import importlib as _importlib
import sys as _sys
import typing as _typing

from distlab import quiet as _quiet  # noqa: F401  # isort: skip
from distlab import public as _public
from distlab import shell as _shell
from distlab import wording as _wording
from distlab.devices import virtual_devices
from distlab.errors import JobTimeoutError, WorkerError
from distlab.identity import RankInfo, rank_info
from distlab.launching import last_job, launch, prewarm, run
from distlab.runtime import showing as _showing
from distlab.runtime.job import Job

# Type checkers and editors see these; at run time each is imported when it is first used.
if _typing.TYPE_CHECKING:
    from distlab import checkpoints as checkpoints
    from distlab import collectives as collectives
    from distlab import costs as costs
    from distlab import datasets as datasets
    from distlab import layouts as layouts
    from distlab import plots as plots
    from distlab import puzzles as puzzles
    from distlab import timeline as timeline
    from distlab.engines.ray import Ray as Ray
    from distlab.engines.slurm import Slurm as Slurm

__all__ = [
    "Job",
    "JobTimeoutError",
    "RankInfo",
    "Ray",
    "Slurm",
    "WorkerError",
    "last_job",
    "launch",
    "prewarm",
    "rank_info",
    "run",
    "virtual_devices",
]
__version__ = "0.1.0"

_showing.notebook = lambda: _importlib.import_module(f"{__name__}.notebook")

_ENGINES = {"Ray": "distlab.engines.ray", "Slurm": "distlab.engines.slurm"}
_MODULES = (
    "checkpoints",
    "collectives",
    "costs",
    "datasets",
    "layouts",
    "plots",
    "puzzles",
    "timeline",
)


@_public.public
def __getattr__(name: str) -> _typing.Any:
    """Import a submodule or an engine when it is first used: `import distlab` stays quick."""
    if name in _ENGINES:
        return getattr(_importlib.import_module(_ENGINES[name]), name)
    if name not in _MODULES:
        # Python makes a suggestion itself, from `name` and `obj`; IPython shows the words alone.
        in_ipython = _shell.ipython_shell() is not None
        near = _wording.closest(name, __dir__()) if in_ipython else None
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}"
            + (f". Did you mean: {near!r}?" if near else ""),
            name=name,
            obj=_sys.modules[__name__],
        )
    return _importlib.import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    """What completion offers, which is all that is public."""
    return [*__all__, *_MODULES, "__version__"]
