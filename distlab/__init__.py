"""Distributed deep learning on one machine: virtual devices, real digits, background ranks.

`import distlab` imports no framework; each helper imports the one it is asked for.
"""

import importlib
from types import ModuleType

from distlab.devices import virtual_devices
from distlab.errors import JobTimeoutError, WorkerError
from distlab.identity import RankInfo, rank_info
from distlab.job import Job
from distlab.launch import launch, prewarm, run

__all__ = [
    "Job",
    "JobTimeoutError",
    "RankInfo",
    "WorkerError",
    "launch",
    "prewarm",
    "rank_info",
    "run",
    "virtual_devices",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> ModuleType:
    """Import a submodule when it is first used: `import distlab` stays quick."""
    if name not in ("checkpoints", "collectives", "datasets", "layouts"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
