"""What a job talks to, by the `engine` of its launch."""

import importlib.util

from distlab.errors import did_you_mean, of_type, shown
from distlab.launching.engines.ray import Ray
from distlab.launching.engines.ray_client import RayClient


def client_for(engine: object, fork: bool) -> RayClient:
    """What a job talks to on an engine.

    Args:
        engine: A `Ray`, or its name, which then has no options.
        fork: Whether ranks may be forked from their supervisor.

    Raises:
        TypeError: If that is no engine.
        ValueError: If there is no engine of that name.
        ModuleNotFoundError: If the package it is built on is not installed.
    """
    expected = "expected None, for this machine, 'ray', or a distlab.Ray() with options"
    if isinstance(engine, str) and engine != "ray":
        slurm = " On Slurm, submit the function with submitit: see docs/engines.md."
        hint = slurm if engine.lower() == "slurm" else did_you_mean(engine, ["ray"])
        raise ValueError(f"engine is {shown(engine)}; {expected}.{hint}")
    if not isinstance(engine, Ray | str):
        what = "the class Ray itself" if engine is Ray else of_type(engine)
        raise TypeError(f"engine is {what}; {expected}.")
    if importlib.util.find_spec("ray") is None:
        raise ModuleNotFoundError(
            "The engine Ray needs the package ray, which is not installed. Install it with: "
            "pip install 'distlab[ray]'",
            name="ray",
        )
    return RayClient(Ray() if isinstance(engine, str) else engine, fork)
