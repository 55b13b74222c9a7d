"""Start ranks of a function or a script: `run` to their end, `launch` in the background."""

import functools
import inspect
import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypedDict, TypeVar, Unpack

from msgspec.structs import replace

from distlab import frameworks
from distlab.errors import brief, check_count, check_environment, check_flag, check_path
from distlab.launching import jobs
from distlab.launching.engines.ray import Ray, RayClient, check_engine
from distlab.launching.kernel import arguments, client, following
from distlab.launching.kernel.display import waiting
from distlab.launching.kernel.environment import environments
from distlab.launching.kernel.job import Job
from distlab.launching.kernel.record import JobRecord
from distlab.launching.protocol import functions
from distlab.launching.protocol.messages import GRACE, Hold, Launch
from distlab.launching.signals import held

CHECKPOINT = "DISTLAB_CHECKPOINT"
"""The variable in which ranks find the path of `launch(checkpoint=...)`."""
Target = Callable[..., Any] | str | os.PathLike[str]
_P = ParamSpec("_P")
_T = TypeVar("_T")


class Options(TypedDict, total=False):
    """What `launch` and `run` both may be told by keyword; `launch` says what each does."""

    env: Mapping[str, str] | None
    devices_per_rank: int | None
    roles: Mapping[str, int] | None
    timeout: float | None
    grace: float | None
    cwd: str | os.PathLike[str] | None
    start_method: Literal["fork", "spawn"] | None
    checkpoint: str | os.PathLike[str] | None
    max_restarts: int | None
    engine: Ray | str | None


def _with_options(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Have `help` and completion name each of the options that a function takes."""
    signature = inspect.signature(function)
    *own, _ = signature.parameters.values()
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in Options.__annotations__.items()
    ]
    function.__signature__ = signature.replace(parameters=own + options)  # type: ignore[attr-defined]
    return function


@_with_options
@brief
def launch(
    target: Target,
    nprocs: int | None = None,
    framework: str | None = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    start: Sequence[int] | None = None,
    **options: Unpack[Options],
) -> Job:
    """Start ranks in the background and return at once.

    Each rank is a process that is told its place: torch ranks as torchrun tells them, TensorFlow
    ranks by `TF_CONFIG`, JAX ranks so that `jax.distributed.initialize()` and
    `keras.distribution.initialize()` need no arguments. Every rank has `RANK` and `WORLD_SIZE`.

    Args:
        target: A function, or the path of a script, which runs as `__main__`.
        nprocs: How many ranks, from 1 to 512. May be left out where `roles` says it.
        framework: `"torch"`, `"tensorflow"`, `"jax"`, or None for plain processes.
        args: The function's positional arguments, such as `args=(5,)`, the same on every rank, or
            the words of the script's command line.
        kwargs: The function's keyword arguments, such as `kwargs={"lr": 0.1}`.
        start: The ranks to start now; `Job.start` starts the others. By default, and on Ray, all.
        env: Environment variables to set in the ranks, over those of this process.
        devices_per_rank: Virtual CPU devices within each rank (JAX and TensorFlow), set up as
            those of `virtual_devices`.
        roles: For TensorFlow: how many of each task type, of `chief`, `worker`, `ps` and
            `evaluator`, such as `{"chief": 1, "worker": 2}`; ranks are numbered in this order. By
            default all are workers.
        timeout: How many seconds each attempt may take, not counting the wait for an engine's
            places; after that the job is ended, and `Job.results` raises `JobTimeoutError` with
            every rank's Python stack. By default it may take for ever.
        grace: How many seconds a rank has, after SIGTERM, to save and to end before it is killed,
            which the log of `distlab` then says; by default 2. Where this process is ended,
            it has them as well (not on Ray).
        cwd: The directory the ranks work in, which Ray is sent; by default that of this process.
        start_method: `"fork"`, from a process that has imported the framework, or `"spawn"`: each
            rank is a new interpreter, slower. By default fork on Linux; elsewhere forking is not
            safe, and ranks are always spawned.
        checkpoint: Where the target keeps what it needs to go on after a restart; every rank finds
            the absolute path in `DISTLAB_CHECKPOINT`. With it a job whose rank fails, is killed or
            is lost with its node starts again, all ranks in a new group, and what the target does
            with that path is up to the target: see the example.
        max_restarts: How many times that may happen: 3 by default with a checkpoint, without one
            0. `Job.restart_reasons` has the reasons.
        engine: Who starts the ranks: None, this machine; a `distlab.Ray` with its options; or
            `"ray"`, without any. On Ray, ranks inherit the frameworks' settings (`KERAS_...`,
            `TF_...`, `JAX_...` and the like) of this process; all else comes from their node, and
            `env`.

    Returns:
        The job.

    Raises:
        TypeError: If an argument has the wrong type, does not fit the function or cannot be sent
            to another process.
        ValueError: If an argument is out of range, or one excludes another.
        FileNotFoundError: If there is no such script or directory.
        ModuleNotFoundError: If the engine is not installed, or here the framework.
        OSError: If the disk is full, or no more processes can be started.
        RuntimeError: On Windows.

        All are raised before any rank is started.

    Example:
        >>> import distlab
        >>> job = distlab.launch(lambda: 6 * 7, nprocs=2)
        >>> job.results()
        [42, 42]

        A function that goes on from its last checkpoint, here a number in a file:

        >>> import os, pathlib, tempfile
        >>> def count(limit):
        ...     saved = pathlib.Path(os.environ["DISTLAB_CHECKPOINT"])
        ...     step = int(saved.read_text()) if saved.exists() else 0
        ...     while step < limit:
        ...         step += 1
        ...         with distlab.checkpoints.replacing(saved) as partial:
        ...             partial.write_text(str(step))
        ...         if step == 2:
        ...             os.abort()
        ...     return step
        >>> path = tempfile.mkdtemp() + "/step"
        >>> job = distlab.launch(count, 1, args=[4], checkpoint=path)
        >>> job.results()
        [4]
        >>> job.restart_reasons
        ['rank 0: was ended by SIGABRT (native code gave up)']
    """
    arguments.check_names(launch, options, Options.__annotations__)
    if os.name == "nt":
        raise RuntimeError(
            "distlab launches ranks on Linux and macOS. On Windows, use it in WSL 2; "
            "virtual_devices, layouts and datasets work without."
        )
    tasks = arguments.tasks(nprocs, framework, options.get("roles"))
    arguments.check_timeout(options.get("timeout"))
    arguments.check_timeout(options.get("grace"), "grace")
    arguments.check_devices(options.get("devices_per_rank"), framework)
    script = arguments.check_script(target, args, kwargs)
    work = functions.dumps(target, tuple(args), dict(kwargs or {})) if callable(target) else None
    overrides = check_environment(options.get("env"))
    chosen = arguments.check_start(start, len(tasks))
    cwd = options.get("cwd")
    directory = Path.cwd() if cwd is None else check_path(cwd, "cwd")
    if not directory.is_dir():
        raise FileNotFoundError(f"There is no directory {str(cwd)!r} to work in.")
    fork = arguments.check_start_method(options.get("start_method"))
    max_restarts = options.get("max_restarts")
    if (saved := options.get("checkpoint")) is not None:
        overrides = {CHECKPOINT: str(check_path(saved, "checkpoint"))} | overrides
    if max_restarts is None:
        max_restarts = 0 if saved is None else 3
    check_count(max_restarts, "max_restarts", 0)
    request = Launch(
        job="",
        tasks=tasks,
        ranks=chosen,
        framework=framework,
        script=script,
        arguments=[str(word) for word in args] if script else [],
        # For a function, what can be imported here can be imported there.
        path=None if script else [str(Path(p).absolute()) for p in sys.path],
        overrides=overrides,
        devices_per_rank=options.get("devices_per_rank"),
        timeout=options.get("timeout"),
        grace=options.get("grace") or GRACE,
        cwd=str(directory),
    )
    if (engine := options.get("engine")) is not None:
        on = check_engine(engine, start)
        find: Callable[[], client.Client] = functools.partial(RayClient, on, fork, str(directory))
    else:
        if framework is not None:
            frameworks.check_framework(framework)
        environment, own = environments(os.environ, framework, overrides)
        fork = fork and sys.platform == "linux"
        find = functools.partial(client.client_for, framework, fork, own)
        request = replace(request, environment=environment)
    with held(signal.SIGINT) as release:
        job = _begin(find(), request, work, max_restarts)
        jobs.keep(job, target)
        try:
            release()
        except KeyboardInterrupt:  # it would run on without a name
            job.cancel()
            raise
    return job


@_with_options
@brief
def run(
    target: Target,
    nprocs: int | None = None,
    framework: str | None = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    quiet: bool = False,
    **options: Unpack[Options],
) -> list[Any]:
    """Run ranks to their end and return what each returned, in rank order.

    What the ranks print appears as it comes, a line at a time with the rank in front. Of
    ranks that print hundreds of lines a notebook shows the first and the last ones; the log of a
    job of `launch` has all of them.

    Args:
        target: A function, or the path of a script, which runs as `__main__`.
        nprocs: How many ranks.
        framework: `"torch"`, `"tensorflow"`, `"jax"`, or None for plain processes.
        args: The function's positional arguments, or the words of the script's command line.
        kwargs: The function's keyword arguments.
        quiet: Do not show what the ranks print.
        options: `env`, `timeout`, `checkpoint` and the others above: see `launch`.

    Returns:
        One result per rank; None for scripts.

    Raises:
        RankError: If a rank failed, with every traceback.
        JobTimeoutError: If the job took longer than `timeout`, with every rank's Python stack.
        Exception: All that `launch` raises.

    Example:
        >>> import os, distlab
        >>> distlab.run(lambda: int(os.environ["RANK"]), nprocs=3)
        [0, 1, 2]
    """
    check_flag(quiet, "quiet")
    arguments.check_names(run, options, Options.__annotations__)
    with (
        held(signal.SIGINT) as release,
        launch(target, nprocs, framework, args, kwargs, **options) as job,
    ):
        with waiting(job._record, job.cancel) as tick:
            release()  # from here on an interrupt ends the job
            if not quiet:
                following.follow(job._record, range(job.nprocs), tick)
        return job.results()


def _begin(starter: client.Client, request: Launch, work: bytes | None, max_restarts: int) -> Job:
    """Give a job a directory with what it needs, and ask for it."""
    name, place = starter.new_job()
    try:
        if work is not None:
            (place / "target").write_bytes(work)
    except OSError as error:  # such as a full disk
        shutil.rmtree(place, ignore_errors=True)
        raise OSError(error.errno, error.strerror, str(place)) from None
    request = replace(request, job=name, directory=str(place))
    return Job(JobRecord(starter, request, max_restarts))


@brief
def prewarm(
    framework: str | None = None,
    nprocs: int | None = None,
    *,
    env: Mapping[str, str] | None = None,
) -> None:
    """Start what a later `launch` will fork its ranks from, in the background.

    Args:
        framework: As in `launch`.
        nprocs: How many ranks to fork ahead, so that the next launch finds them waiting. By default
            as many as the last launch had.
        env: As in `launch`: variables that are read at import need a supervisor of their own.

    Raises:
        TypeError: If the framework is not a string, or `env` not a mapping of strings.
        ValueError: If the framework is unknown.
        ModuleNotFoundError: If it is not installed.
    """
    if framework is not None:
        frameworks.check_framework(framework)
    if nprocs is not None:
        check_count(nprocs, "nprocs", 1)
    _, own = environments(os.environ, framework, check_environment(env))
    starter = client.client_for(framework, sys.platform == "linux", own)
    if nprocs is not None:
        starter.post(Hold(job="", nprocs=nprocs))
