"""Distributed deep learning on one machine: virtual devices, real digits, background ranks.

`import distlab` imports no framework; each helper imports the one it is asked for.
"""

import importlib as _importlib
import types as _types
import typing as _typing

from distlab.devices import virtual_devices
from distlab.errors import JobTimeoutError, WorkerError
from distlab.identity import RankInfo, rank_info
from distlab.job import Job
from distlab.launch import last_job, launch, prewarm, run

# Type checkers and editors see these; at run time each is imported when it is first used.
if _typing.TYPE_CHECKING:
    from distlab import checkpoints as checkpoints
    from distlab import collectives as collectives
    from distlab import datasets as datasets
    from distlab import layouts as layouts
    from distlab import plots as plots

__all__ = [
    "Job",
    "JobTimeoutError",
    "RankInfo",
    "WorkerError",
    "last_job",
    "launch",
    "prewarm",
    "rank_info",
    "run",
    "virtual_devices",
]
__version__ = "0.1.0"

_MODULES = ("checkpoints", "collectives", "datasets", "layouts", "plots")


def __getattr__(name: str) -> _types.ModuleType:
    """Import a submodule when it is first used: `import distlab` stays quick."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _importlib.import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    """What completion offers, which is all that is public."""
    return [*__all__, *_MODULES, "__version__"]
