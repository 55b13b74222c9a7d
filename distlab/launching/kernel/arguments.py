"""What may be asked of a launch: each check raises one clear error, before anything has started."""

import inspect
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from distlab.errors import check_count, check_fit, check_rank, did_you_mean, of_type, shown
from distlab.frameworks import check_name
from distlab.launched_by import ROLES
from distlab.launching.protocol.tasks import Task


def check_names(
    function: Callable[..., Any], given: Mapping[str, Any], options: Collection[str]
) -> None:
    """Raise a clear error if something is `given` by name that is none of the `options`."""
    for name in given.keys() - set(options):
        known = inspect.signature(function).parameters
        has = f" It has {', '.join(known)}. What the function takes goes into args and kwargs."
        near = did_you_mean("nprocs" if "proc" in name else name, known, cutoff=0.75) or has
        raise TypeError(f"{function.__name__}() has no argument {name!r}.{near}")


def check_timeout(timeout: object, called: str = "A timeout") -> None:
    """Raise a clear error unless `timeout` is None or a number of seconds above 0."""
    if timeout is None:
        return
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise TypeError(f"{called} is a number of seconds or None, not {timeout!r}.")
    if not timeout > 0:
        raise ValueError(f"{called} must be above 0 seconds, not {timeout:g}.")


def check_text(text: object, name: str, example: str) -> None:
    """Raise a clear error unless `text` is None or a string that is not empty."""
    if text is not None and not isinstance(text, str):
        raise TypeError(f"{name} must be a string such as {example!r}, not {of_type(text)}.")
    if text == "":
        raise ValueError(f"{name} is empty: say {example!r}, for example, or leave {name} out.")


def check_start_method(method: object) -> bool:
    """Whether ranks are to be forked: `method` is "fork", "spawn" or None, which means fork."""
    if method not in (None, "fork", "spawn"):
        near = did_you_mean(method, ("fork", "spawn"))
        raise ValueError(f"start_method must be 'fork' or 'spawn', not {shown(method)}.{near}")
    return method != "spawn"


def tasks(nprocs: object, framework: str | None, roles: Mapping[str, int] | None) -> list[Task]:
    """The tasks of a job, in rank order, from the number of ranks or of each role."""
    if framework is not None:
        check_name(framework)
    if roles is None and nprocs is None:
        raise TypeError("How many ranks? Say nprocs=2, for example.")
    if roles is None:
        return [Task("worker", index) for index in range(check_count(nprocs, "nprocs", 1))]
    if framework != "tensorflow":
        given = "" if framework is None else f", not {framework!r}"
        raise ValueError(f'roles are for framework="tensorflow"{given}.')
    if not isinstance(roles, Mapping):
        raise TypeError(
            'roles must be a dict of numbers such as {"chief": 1, "worker": 2}, '
            f"not {shown(roles)}."
        )
    unknown = set(roles) - set(ROLES)
    if unknown:
        first = min(unknown, key=str)
        raise ValueError(
            f"Unknown role {first!r}: expected {', '.join(ROLES)}.{did_you_mean(first, ROLES)}"
        )
    counts = {
        role: check_count(roles.get(role, 0), f"roles[{role!r}]", 0, f"roles={{{role!r}: 2}}")
        for role in ROLES
    }
    if counts["chief"] > 1 or counts["evaluator"] > 1:
        raise ValueError("A cluster has at most one chief and one evaluator.")
    tasks = [Task(role, index) for role in ROLES for index in range(counts[role])]
    if not tasks:
        raise ValueError("roles make no rank at all: name one that has at least 1.")
    if nprocs not in (None, len(tasks)):
        raise ValueError(
            f"roles make {len(tasks)} ranks in all; nprocs is {nprocs!r}: leave it out."
        )
    return tasks


def check_devices(devices: object, framework: str | None) -> None:
    """Check the number of virtual devices within a rank."""
    if devices is not None:
        check_count(devices, "devices_per_rank", 1)
        if framework not in ("jax", "tensorflow"):
            raise ValueError(
                f"devices_per_rank is for JAX and TensorFlow, not framework={framework!r}. "
                "PyTorch runs one process per device: ask for more ranks with nprocs."
            )


def check_start(start: Sequence[int] | None, count: int) -> list[int]:
    """The ranks to start at once, in order; all of them if `start` is None."""
    if isinstance(start, str) or not isinstance(start, Iterable | None):
        raise TypeError(f"start must be a list of ranks, such as start=[0], not {shown(start)}.")
    ranks = range(count) if start is None else start
    return sorted({check_rank(rank, count) for rank in ranks})


def check_script(
    target: object, args: Sequence[Any], kwargs: Mapping[str, Any] | None
) -> str | None:
    """The script's path if the target is one; None if it is a function that the arguments fit."""
    is_script = isinstance(target, str | os.PathLike)
    if not isinstance(args, Sequence) or isinstance(args, str | bytes | bytearray):
        which = "words of the script's command line" if is_script else "function's arguments"
        example = 'args=["--lr", "0.1"]' if is_script else "args=(5,)"
        words = f"args must be a tuple or a list of the {which}, such as {example}"
        raise TypeError(f"{words}, not {of_type(args)}.")
    if kwargs is not None and not isinstance(kwargs, Mapping):
        words = 'kwargs must be a dict of keyword arguments, such as {"lr": 0.1}'
        raise TypeError(f"{words}, not {of_type(kwargs)}.")
    if isinstance(target, str | os.PathLike):
        path = Path(target).absolute()
        if not path.is_file():
            hint = " Name a function without quotes." if str(target).isidentifier() else ""
            raise FileNotFoundError(f"There is no script {str(path)!r}.{hint}")
        if kwargs:
            raise TypeError("A script takes args, the words of its command line, and no kwargs.")
        return str(path)
    if not callable(target):
        raise TypeError(
            f"The target must be a function or a script's path, not {of_type(target)}. "
            "Name a function without calling it: train, not train()."
        )
    check_fit(target, args, kwargs or {})
    return None
