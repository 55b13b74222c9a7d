"""Find an engine by its name, with its options checked."""

import dataclasses
import importlib
import importlib.util
from collections.abc import Mapping
from typing import Any

from distlab.engines.base import Engine
from distlab.engines.client import EngineClient
from distlab.wording import did_you_mean, shown

_ENGINES = {
    "ray": ("distlab.engines.ray", "RayEngine", "ray"),
    "slurm": ("distlab.engines.slurm", "SlurmEngine", None),
}


def find(name: object, options: Mapping[str, Any], count: int) -> Engine:
    """The engine called `name`, for `count` ranks.

    Raises:
        TypeError: If it has no such options.
        ValueError: If there is no such engine, or an option is out of range.
        ModuleNotFoundError: If the package it is built on is not installed.
        FileNotFoundError: If a command that it is built on is not.
    """
    if not isinstance(name, str) or name not in _ENGINES:
        known = ", ".join(map(repr, _ENGINES))
        raise ValueError(
            f"engine is {shown(name)}; expected None, for this machine, or one of {known}."
            + did_you_mean(name, _ENGINES)
        )
    module, kind, package = _ENGINES[name]
    if package is not None and importlib.util.find_spec(package) is None:
        raise ModuleNotFoundError(
            f"engine={name!r} needs the package {package}, which is not installed. Install it "
            f"with: pip install 'distlab[{name}]'",
            name=package,
        )
    made = getattr(importlib.import_module(module), kind)
    offered = {field.name for field in dataclasses.fields(made)}
    if unknown := sorted(set(options) - offered):
        raise TypeError(
            f"engine={name!r} has no option {', '.join(unknown)}; "
            f"its options are {', '.join(sorted(offered))}."
            + (did_you_mean(unknown[0], offered) if len(unknown) == 1 else "")
        )
    engine: Engine = made(**options)
    engine.check(count)
    return engine


def client_for(name: object, options: Mapping[str, Any], count: int, fork: bool) -> EngineClient:
    """What a job of `count` ranks talks to on the engine called `name`. Raises as `find` does."""
    return EngineClient(find(name, options, count), fork)
