"""Find an engine by its name, with its options checked."""

import dataclasses
import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

from distlab.engines.base import Engine
from distlab.wording import closest, did_you_mean, shown

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


def check_none(who: str, options: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raise TypeError if there are options, though no engine has been named.

    Args:
        who: The function that was called.
        options: Arguments that it does not have.
        known: Those that it has.
    """
    for name in sorted(options):
        if near := closest(name, known, cutoff=0.75):
            raise TypeError(f"{who}() has no argument {name!r}. Did you mean {near!r}?")
        raise TypeError(
            f"{who}() has no argument {name!r}. If that is an option of an engine, name the engine "
            "too: engine='ray' or engine='slurm'."
        )
