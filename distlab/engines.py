"""Find an engine by its name, with its options checked."""

import dataclasses
import importlib
import importlib.util
from collections.abc import Mapping
from typing import Any

from distlab.placement import Engine

_ENGINES = {
    "ray": ("distlab.ray_engine", "RayEngine", "ray"),
    "slurm": ("distlab.slurm_engine", "SlurmEngine", None),
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
        raise ValueError(f"engine is {name!r}; expected None, for this machine, or one of {known}.")
    module, kind, package = _ENGINES[name]
    if package is not None and importlib.util.find_spec(package) is None:
        raise ModuleNotFoundError(
            f"engine={name!r} needs the package {package}, which is not installed. Install it "
            f"with: pip install 'distlab[{name}]'",
            name=package,
        )
    made = getattr(importlib.import_module(module), kind)
    offered = {field.name for field in dataclasses.fields(made)}
    if unknown := set(options) - offered:
        raise TypeError(
            f"engine={name!r} has no option {', '.join(sorted(unknown))}; "
            f"its options are {', '.join(sorted(offered))}."
        )
    engine: Engine = made(**options)
    engine.check(count)
    return engine


def check_none(options: Mapping[str, Any]) -> None:
    """Raise TypeError if there are options, though no engine has been named."""
    if options:
        raise TypeError(
            f"launch() has no argument {', '.join(sorted(options))}. If that is an option of an "
            "engine, name the engine too: engine='ray' or engine='slurm'."
        )
