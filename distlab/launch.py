"""Start ranks of a function or a script: `run` to their end, `launch` in the background."""

import importlib.machinery
import inspect
import io
import linecache
import operator
import os
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from distlab import client, frameworks
from distlab.job import Job, check_timeout
from distlab.rendezvous import ROLES, Task

MAX_RANKS = 512


def launch(
    target: Callable[..., Any] | str | os.PathLike[str],
    nprocs: int | None = None,
    framework: str | None = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    env: Mapping[str, str] | None = None,
    devices_per_rank: int | None = None,
    roles: Mapping[str, int] | None = None,
    start: Sequence[int] | None = None,
    timeout: float | None = None,
    cwd: str | os.PathLike[str] | None = None,
    fresh: bool = False,
) -> Job:
    """Start ranks in the background and return at once.

    Each rank is a process that is told its place: torch ranks as torchrun tells them, TensorFlow
    ranks by `TF_CONFIG`, JAX ranks so that `jax.distributed.initialize()` and
    `keras.distribution.initialize()` need no arguments. Every rank has `RANK` and `WORLD_SIZE`.

    Args:
        target: A function, or the path of a script, which runs as `__main__`.
        nprocs: How many ranks. May be left out where `roles` says it.
        framework: `"torch"`, `"tensorflow"`, `"jax"`, or None for plain processes.
        args: The function's positional arguments, the same on every rank, or the words of the
            script's command line.
        kwargs: The function's keyword arguments.
        env: Environment variables to set in the ranks, over those of this process.
        devices_per_rank: Virtual CPU devices within each rank (JAX and TensorFlow).
        roles: For TensorFlow: how many of each task type, of `chief`, `worker`, `ps` and
            `evaluator`; ranks are numbered in this order. By default all are workers.
        start: The ranks to start now; `Job.start` starts the others. By default all.
        timeout: How many seconds the job may take; after that it is ended, and `Job.wait` raises
            `JobTimeoutError` with every rank's Python stack. By default it may take for ever.
        cwd: The directory the ranks work in; by default that of this process.
        fresh: Start each rank as a new interpreter, not as a fork of one that has imported the
            framework: slower. Always so on other systems than Linux, where forking is not safe.

    Returns:
        The job.

    Raises:
        TypeError: If an argument has the wrong type, does not fit the function or cannot be sent
            to another process.
        ValueError: If an argument is out of range, or one excludes another.
        FileNotFoundError: If there is no such script or directory.
        ModuleNotFoundError: If the framework is not installed. In each case before anything has
            been started.

    Example:
        >>> import distlab
        >>> job = distlab.launch(lambda: 6 * 7, nprocs=2)
        >>> job.wait()
        [42, 42]
    """
    tasks = _tasks(nprocs, framework, roles)
    check_timeout(timeout)
    _check_devices(devices_per_rank, framework)
    script = _check_script(target, args, kwargs)
    payload = _pickle(target, tuple(args), dict(kwargs or {})) if callable(target) else None
    overrides = _check_environment(env or {})
    chosen = _check_start(start, len(tasks))
    directory = Path.cwd() if cwd is None else Path(cwd).absolute()
    if not directory.is_dir():
        raise FileNotFoundError(f"There is no directory {str(cwd)!r} to work in.")
    if framework is not None:
        frameworks.check_framework(framework)
    environment, own = _environments(framework, overrides)
    supervisor = client.client_for(framework, sys.platform == "linux" and not fresh, own)
    name, place = supervisor.new_job()
    if payload is not None:
        (place / "target").write_bytes(payload)
    request = {
        "job": name,
        "directory": str(place),
        "framework": framework,
        "tasks": [{"role": task.role, "index": task.index} for task in tasks],
        "ranks": chosen,
        "script": script,
        "arguments": [str(word) for word in args] if script else [],
        # For a function, what can be imported here can be imported there.
        "path": None if script else [str(Path(p).absolute()) for p in sys.path],
        "environment": environment,
        "overrides": overrides,
        "devices_per_rank": devices_per_rank,
        "timeout": timeout,
        "cwd": str(directory),
    }
    return Job(supervisor, request, tasks)


def run(
    target: Callable[..., Any] | str | os.PathLike[str],
    nprocs: int | None = None,
    framework: str | None = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    quiet: bool = False,
    **options: Any,
) -> list[Any]:
    """Run ranks to their end and return what each returned, in rank order.

    What the ranks print appears as it comes, a line at a time with the rank in front.

    Args:
        target: As in `launch`, and so are the next four.
        nprocs: How many ranks.
        framework: What they use.
        args: The target's positional arguments.
        kwargs: The target's keyword arguments.
        quiet: Do not show what the ranks print.
        **options: All others of `launch` but `start`.

    Returns:
        One result per rank; None for scripts.

    Raises:
        WorkerError: If a rank failed, with every traceback.
        JobTimeoutError: If the job took longer than `timeout`, with every rank's Python stack.
        Exception: All that `launch` raises.

    Example:
        >>> import os, distlab
        >>> distlab.run(lambda: int(os.environ["RANK"]), nprocs=3)
        [0, 1, 2]
    """
    if "start" in options:
        raise TypeError("run() starts all ranks; with start=, use launch().")
    with launch(target, nprocs, framework, args, kwargs, **options) as job:
        if not quiet:
            job.follow()
        return job.wait()


def prewarm(framework: str | None = None, *, env: Mapping[str, str] | None = None) -> None:
    """Start what a later `launch` will fork its ranks from, in the background.

    Args:
        framework: As in `launch`.
        env: As in `launch`: variables that are read at import need a supervisor of their own.

    Raises:
        TypeError: If the framework is not a string, or `env` not a mapping of strings.
        ValueError: If the framework is unknown.
        ModuleNotFoundError: If it is not installed.
    """
    if framework is not None:
        frameworks.check_framework(framework)
    overrides = _check_environment(env or {})
    _, own = _environments(framework, overrides)
    client.client_for(framework, sys.platform == "linux", own)


def _tasks(nprocs: object, framework: str | None, roles: Mapping[str, int] | None) -> list[Task]:
    if roles is None:
        return [Task("worker", index) for index in range(_check_count(nprocs, "nprocs", 1))]
    if framework != "tensorflow":
        raise ValueError(f'roles are for framework="tensorflow", not {framework!r}.')
    unknown = set(roles) - set(ROLES)
    if unknown:
        raise ValueError(f"Unknown role {min(unknown)!r}: expected {', '.join(ROLES)}.")
    counts = {role: _check_count(roles.get(role, 0), role, 0) for role in ROLES}
    if counts["chief"] > 1 or counts["evaluator"] > 1:
        raise ValueError("A cluster has at most one chief and one evaluator.")
    tasks = [Task(role, index) for role in ROLES for index in range(counts[role])]
    if not tasks or nprocs not in (None, len(tasks)):
        raise ValueError(f"roles make {len(tasks)} ranks in all; nprocs is {nprocs}.")
    return tasks


def _check_count(count: object, name: str, least: int) -> int:
    if isinstance(count, bool) or not hasattr(type(count), "__index__"):
        raise TypeError(f"{name} must be an int, not {count!r} of type {type(count).__name__}.")
    number = operator.index(count)  # type: ignore[arg-type]
    if not least <= number <= MAX_RANKS:
        raise ValueError(f"{name} must be from {least} to {MAX_RANKS}, not {number}.")
    return number


def _check_devices(devices: object, framework: str | None) -> None:
    if devices is not None:
        _check_count(devices, "devices_per_rank", 1)
        if framework not in ("jax", "tensorflow"):
            raise ValueError(
                f"devices_per_rank is for JAX and TensorFlow, not framework={framework!r}."
            )


def _check_environment(env: Mapping[str, str]) -> dict[str, str]:
    for name, value in env.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"env maps names to strings; {name!r} is set to {value!r}.")
        if not name or "=" in name or "\\0" in name + value:
            raise ValueError(
                f"env cannot hold {name!r}: no '=' or NUL in a name, no NUL in a value."
            )
    return dict(env)


def _check_start(start: Sequence[int] | None, count: int) -> list[int]:
    chosen = list(range(count)) if start is None else sorted(set(start))
    for rank in chosen:
        if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < count:
            raise ValueError(f"start names rank {rank!r}; the ranks are 0 to {count - 1}.")
    return chosen


def _check_script(
    target: object, args: Sequence[Any], kwargs: Mapping[str, Any] | None
) -> str | None:
    """The script's path if the target is one; None if it is a function that the arguments fit."""
    if isinstance(target, str | os.PathLike):
        path = os.fspath(target)
        if not Path(path).is_file():
            raise FileNotFoundError(f"There is no script {path!r} in {str(Path.cwd())!r}.")
        if kwargs:
            raise TypeError("A script takes args, the words of its command line, and no kwargs.")
        return str(Path(path).absolute())
    if not callable(target):
        raise TypeError(f"The target must be a function or a script's path, not {target!r}.")
    try:
        signature = inspect.signature(target)
    except ValueError:  # some built-in functions have none
        return None
    try:
        signature.bind(*args, **(kwargs or {}))
    except TypeError as error:
        name = getattr(target, "__name__", repr(target))
        raise TypeError(f"The arguments do not fit {name}{signature}: {error}.") from None
    return None


def _environments(
    framework: str | None, overrides: dict[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """What ranks start from, before `overrides`, and what their supervisor starts with.

    This process may run Keras on another framework than its ranks do. Where it has chosen one at
    all, ranks are taken to use Keras too, and the supervisor imports it.
    """
    environment = dict(os.environ)
    supervisor = environment | overrides
    if framework is not None and "KERAS_BACKEND" not in overrides:
        environment["KERAS_BACKEND"] = framework
        if "KERAS_BACKEND" in supervisor:
            supervisor["KERAS_BACKEND"] = framework
    return environment, supervisor


def _pickle(target: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """Two pickles: the sources of notebook cells, for tracebacks; then what to call."""
    import cloudpickle

    cells = {k: v for k, v in linecache.cache.items() if len(v) == 4 and v[1] is None}
    buffer = io.BytesIO()
    cloudpickle.dump(cells, buffer)
    module = _unimportable(target)
    if module is not None:
        cloudpickle.register_pickle_by_value(module)
    try:
        cloudpickle.dump((target, args, kwargs), buffer, protocol=5)
    except Exception as error:
        named = {"the function": target}
        named |= {f"argument {i} (counted from 0)": value for i, value in enumerate(args)}
        named |= {f"argument {name!r}": value for name, value in kwargs.items()}
        culprits = [name for name, value in named.items() if not _can_pickle(value)]
        raise TypeError(
            f"Cannot send {' and '.join(culprits) or 'the target'} to another process: {error}. "
            "Make it inside the function, or send what it is made from."
        ) from error
    finally:
        if module is not None:
            cloudpickle.unregister_pickle_by_value(module)
    return buffer.getvalue()


def _can_pickle(value: Any) -> bool:
    import cloudpickle

    try:
        cloudpickle.dumps(value)
    except Exception:  # noqa: BLE001 - any failure is the answer
        return False
    return True


def _unimportable(target: Callable[..., Any]) -> types.ModuleType | None:
    """The target's module, if a new process could not import it by its name."""
    function = getattr(target, "func", target)
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    if module is None or module.__name__ == "__main__":
        return None
    root = module.__name__.partition(".")[0]
    if root in sys.builtin_module_names or importlib.machinery.PathFinder.find_spec(root):
        return None
    return module
