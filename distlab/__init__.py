"""Distributed deep learning on one machine, and the same code on a cluster.

`import distlab` imports no framework; each helper imports the one it is asked for.

    virtual_devices   eight devices on a machine that has one CPU
    run, launch       a function or a script as several ranks, and wait, or go on at once
    Job               what `launch` returns, a future over ranks: results, logs, kill, pause
    jobs              those that go on, also where a cell that ran again has lost the name
    compare           is what several ranks return what one returns? which number is not, and where
    prewarm           import a framework in the background, before the first launch
    Ray               the same on a Ray cluster: launch(..., engine=Ray())
    rank_info         rank, world size and coordinator of this process, whoever started it
    RankError         a rank failed; JobTimeoutError: a job took too long

    datasets          real digits as NumPy arrays, or MNIST
    layouts           which slice of which tensor is on which device: draw, table, lint
    collectives       what a step communicates, over which axis, in how many bytes
    checkpoints       who saves where when several ranks save
    costs             what a training step takes: memory, time, and which plans fit
    puzzles           small programs to write for several ranks, with budgets
    plots             pictures of timelines, collectives, memory and curves; a style for your own

Example:
    >>> import os
    >>> import distlab
    >>> distlab.run(lambda: int(os.environ["RANK"]), nprocs=4)
    [0, 1, 2, 3]
"""

import importlib as _importlib
import typing as _typing

# Type checkers and editors see these; at run time each is imported when it is first used.
if _typing.TYPE_CHECKING:
    from distlab import checkpoints as checkpoints
    from distlab import costs as costs
    from distlab import layouts as layouts
    from distlab import puzzles as puzzles
    from distlab.devices import virtual_devices as virtual_devices
    from distlab.launching.comparing import compare as compare
    from distlab.launching.engines.ray import Ray as Ray
    from distlab.launching.jobs import jobs as jobs
    from distlab.launching.kernel.job import Job as Job
    from distlab.launching.launch import launch as launch
    from distlab.launching.launch import prewarm as prewarm
    from distlab.launching.launch import run as run
    from distlab.launching.rank_errors import JobTimeoutError as JobTimeoutError
    from distlab.launching.rank_errors import RankError as RankError
    from distlab.layouts import collectives as collectives
    from distlab.lessons import datasets as datasets
    from distlab.lessons import plots as plots
    from distlab.ranks import RankInfo as RankInfo
    from distlab.ranks import rank_info as rank_info

__version__ = "0.1.0"

_HOMES = {
    "Job": "launching.kernel.job",
    "JobTimeoutError": "launching.rank_errors",
    "RankInfo": "ranks",
    "Ray": "launching.engines.ray",
    "RankError": "launching.rank_errors",
    "compare": "launching.comparing",
    "jobs": "launching.jobs",
    "launch": "launching.launch",
    "prewarm": "launching.launch",
    "rank_info": "ranks",
    "run": "launching.launch",
    "virtual_devices": "devices",
}
_MODULES = {
    "checkpoints": "checkpoints",
    "collectives": "layouts.collectives",
    "costs": "costs",
    "datasets": "lessons.datasets",
    "layouts": "layouts",
    "plots": "lessons.plots",
    "puzzles": "puzzles",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    """Import what is public when it is first used: `import distlab` stays quick."""
    if name in _MODULES:
        found: object = _importlib.import_module(f"{__name__}.{_MODULES[name]}")
    elif name in _HOMES:
        found = getattr(_importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    else:
        from distlab.errors import did_you_mean, in_brief

        near = did_you_mean(name, __dir__())
        error = AttributeError(f"module {__name__!r} has no attribute {name!r}.{near}")
        error._render_traceback_ = lambda: in_brief(error)  # type: ignore[attr-defined]
        raise error
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """What completion offers, which is all that is public."""
    return [*_HOMES, *_MODULES, "__version__"]
