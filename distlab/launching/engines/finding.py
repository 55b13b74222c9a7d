"""The engine that a launch names, checked, and the way to it."""

from distlab.errors import did_you_mean, of_type, shown
from distlab.launching.engines.base import Engine
from distlab.launching.engines.client import EngineClient
from distlab.launching.engines.ray import Ray
from distlab.launching.engines.slurm import Slurm

_BY_NAME: dict[str, type[Engine]] = {"ray": Ray, "slurm": Slurm}


def client_for(engine: object, count: int, fork: bool) -> EngineClient:
    """What a job of `count` ranks talks to on an engine.

    Args:
        engine: An `Engine`, or the name of one, which then has no options.
        count: How many ranks.
        fork: Whether they may be forked from their supervisor.

    Raises:
        TypeError: If that is no engine.
        ValueError: If there is no engine of that name, or it cannot start so many ranks.
        ModuleNotFoundError: If the package it is built on is not installed.
        FileNotFoundError: If a command that it is built on is not.
    """
    if isinstance(engine, str):
        engine = _named(engine)
    if not isinstance(engine, Engine):
        raise TypeError(
            f"engine must be None, for this machine, or an engine such as distlab.Ray() or "
            f"distlab.Slurm(nodes=2), not {_what(engine)}."
        )
    engine.check(count)
    return EngineClient(engine, fork)


def _named(name: str) -> Engine:
    if name not in _BY_NAME:
        known = ", ".join(map(repr, _BY_NAME))
        raise ValueError(
            f"engine is {shown(name)}; expected None, for this machine, or one of {known}."
            + did_you_mean(name, _BY_NAME)
        )
    return _BY_NAME[name]()


def _what(engine: object) -> str:
    if isinstance(engine, type) and issubclass(engine, Engine):
        return f"the class {engine.__name__} itself: write distlab.{engine.__name__}()"
    return of_type(engine)
