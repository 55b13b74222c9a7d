"""Inside one rank: become a process of one's own, run the target, leave a result or an error.

A rank gets here by a fork of the supervisor, which has the framework imported already, or as a
fresh interpreter.
"""

import atexit
import contextlib
import ctypes
import io
import json
import os
import resource
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from distlab import frameworks, launched_by
from distlab.launching import processes, tracebacks
from distlab.launching.protocol import functions
from distlab.launching.protocol.files import write_result
from distlab.launching.protocol.messages import Ended, Failing, Returned, encode
from distlab.launching.rank_errors import PEER_GONE
from distlab.launching.signals import held
from distlab.launching.supervisor import identity
from distlab.launching.supervisor.identity import RankSpec
from distlab.launching.supervisor.pages import Pages

_LATER = 0.1
"""Seconds to the freeing of memory by a rank that has ended. It takes a core as long as all that it
did, and the others of its job need that first; a low priority does not yield to other sessions."""
_SAID = 300
"""Characters of an error, and of its traceback, that a pipe takes in one piece, however encoded."""


pages: Pages | None = None
"""Set where ranks are forked, before the first one is."""


def main(spec: RankSpec, channel: int) -> NoReturn:
    """Run the target of `spec` and end the process; `channel` is the socket to the supervisor."""
    spec = spec.at(channel)
    code = 1
    try:
        code = _run(spec)
    finally:
        _leave(spec, code)


def main_afresh(spec: RankSpec, channel: int) -> NoReturn:
    """Run the target of `spec` in a fresh interpreter, which this process becomes."""
    spec = spec.at(channel)
    try:
        # A file: a pipe may not hold it all.
        with tempfile.TemporaryFile() as file:
            file.write(msgspec.json.encode(spec))
            file.seek(0)
            os.dup2(file.fileno(), 0)
        os.set_inheritable(channel, True)
        command = processes.python("supervisor.rank")
        os.execve(command[0], command, spec.launch.environment)
    except OSError as error:
        _report(spec, error)
    os._exit(1)


def entry() -> NoReturn:
    """Be a rank in a fresh interpreter; the specification comes on standard input."""
    spec = msgspec.json.decode(sys.stdin.buffer.read(), type=RankSpec)
    processes.die_with_parent(spec.parent, signal.SIGKILL)
    if spec.launch.framework is not None:
        frameworks.load(spec.launch.framework)
    main(spec, spec.channel)


def _run(spec: RankSpec) -> int:
    """Run the target; return the exit status."""
    try:
        identity.arm(spec)
        identity.take(spec)
        result = None
        if spec.launch.script is None:
            result = _call(spec)
        else:
            _execute(spec.launch.script, spec.launch.arguments)
        _leave_result(spec, result)
        return 0
    except SystemExit as error:
        if error.code is None or error.code == 0:
            _leave_result(spec, None)
            return 0
        if not isinstance(error.code, int):
            print(error.code, file=sys.stderr)  # noqa: T201 - as the interpreter does
        code = error.code & 0xFF if isinstance(error.code, int) else 1
        _report(spec, error)
        return code or 1
    except BaseException as error:  # noqa: BLE001 - all of them are reported
        _report(spec, error)
        return 1


def _call(spec: RankSpec) -> Any:
    target, args, kwargs = functions.loads((Path(spec.launch.directory) / "target").read_bytes())
    sys.argv[:] = [""]
    return target(*args, **kwargs)


def _execute(script: str, arguments: list[str]) -> None:
    """Run a script as `python script` does."""
    sys.argv[:] = [script, *arguments]
    sys.path.insert(0, str(Path(script).resolve().parent))
    module = sys.modules["__main__"]
    module.__file__ = script
    module.__dict__.update(__cached__=None, __spec__=None)
    with io.open_code(str(Path(script).resolve())) as file:
        code = compile(file.read(), script, "exec", dont_inherit=True)
    exec(code, module.__dict__)


_AROUND_TARGET = (
    main_afresh.__code__,
    _call.__code__,
    _execute.__code__,
    write_result.__code__,
)


def _is_rank() -> bool:
    """Whether this process is the rank, and not a child that the target forked from it."""
    return os.getsid(0) == os.getpid()


def _leave_result(spec: RankSpec, value: Any) -> None:
    if _is_rank():
        if spec.launch.framework == "jax" and spec.rank == 0 and spec.launch.tasks[1:]:
            with contextlib.suppress(AttributeError):  # JAX's private names differ by version
                _say_if_apart(len(spec.launch.tasks))
        write_result(spec.file("result"), value)


def _say_if_apart(ranks: int) -> None:
    """Say so if JAX has computed here without a group: that is no error, but rarely meant."""
    backends = sys.modules.get("jax._src.xla_bridge")
    if backends and backends.backends_are_initialized() and launched_by.formed() is None:
        sys.stderr.write(
            f"distlab: rank 0 used JAX alone: the {ranks} processes did not form a group. First of "
            "all, call jax.distributed.initialize() (with Keras, keras.distribution.initialize()) "
            "on each rank.\n"
        )


def _report(spec: RankSpec, error: BaseException) -> None:
    """Leave the error where the kernel looks for it, and tell the supervisor at once.

    A script's traceback is also printed, as the interpreter does; or a line, if it tells only that
    another rank is gone, whose own traceback is the one to read.

    Handlers that run at exit may wait for other ranks, which the supervisor ends on this word.
    """
    leaves = callable(signal.getsignal(signal.SIGTERM))
    with held(signal.SIGTERM):
        text = printed = tracebacks.from_target(error, _AROUND_TARGET)
        if not _is_rank():
            sys.stderr.write(text)
            return
        message = tracebacks.message_of(error)
        if spec.launch.script is not None and not isinstance(error, SystemExit):
            in_group = spec.launch.framework and spec.launch.tasks[1:]
            if in_group and PEER_GONE.search(message) and not isinstance(error, OSError):
                printed = f"Another rank is gone ({tracebacks.own_place(text)})\n"
            sys.stderr.write(printed)
        report = {
            "kind": type(error).__name__,
            "message": message,
            "traceback": text,
            "leaves": leaves,
        }
        why = ""
        try:
            spec.file("error").write_text(json.dumps(report))
        except OSError:  # a full disk
            what = " ".join(tracebacks.in_words(error).split())[:_SAID]
            why = f"{what}\n{text[-_SAID:]}"
        timed_out = tracebacks.TIMED_OUT.search(message) is not None
        _tell(spec, Failing(**spec.place, why=why, timed_out=timed_out))


def _tell(spec: RankSpec, said: Failing | Returned | Ended) -> None:
    if spec.can_speak():
        with contextlib.suppress(OSError):  # a target may have closed what it did not open
            os.write(spec.channel, encode(said))


def _stay_for_others(spec: RankSpec) -> None:
    """Wait until every rank has returned, or the job ends.

    When a call of TensorFlow that sends something returns, threads of this process may still be
    sending it. If the process ends then, the rank that should receive it fails.
    """
    _tell(spec, Returned(**spec.place))
    if spec.can_speak():
        os.read(spec.channel, 1)


def _leave(spec: RankSpec, code: int) -> NoReturn:
    """End as an interpreter does, less the tearing down of modules.

    The supervisor's frames and its modules are below this one: they must not be run to an end.
    """
    shutdown: Callable[[], None] = getattr(threading, "_shutdown")  # noqa: B009
    for step in (shutdown, atexit._run_exitfuncs, sys.stdout.flush, sys.stderr.flush):
        try:
            step()
        except BaseException:  # noqa: BLE001 - as the interpreter does at exit
            traceback.print_exc()
            code = code or 1
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).fflush(None)
    if code == 0 and spec.stays and _is_rank():
        _stay_for_others(spec)
    if spec.can_speak() and _is_rank() and _is_alone():
        if pages is not None:
            pages.learn()
        _close_all(spec, code)
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        time.sleep(_LATER)
    os._exit(code)


def _is_alone() -> bool:
    """Whether what this process holds is its memory and its open files: nothing else goes on.

    Then nobody needs to wait while the system takes the memory back, which is a tenth of a second
    for a few ranks. A GPU's is given back as late.
    """
    if threading.active_count() > 1 or Path("/dev/nvidiactl").exists():
        return False
    if sys.platform != "linux" or signal.getsignal(signal.SIGCHLD) != signal.SIG_DFL:
        return False
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # and it never had any, whose own children it would not know
        return not any(resource.getrusage(resource.RUSAGE_CHILDREN))
    return False


def _close_all(spec: RankSpec, code: int) -> None:
    """Let go of all that is open, and have that be the end of this rank.

    Libraries' threads still run: where their files were they find nothing, not another file, and
    what they wait for events by stays.
    """
    with contextlib.suppress(OSError):
        opened = list(Path("/proc/self/fd").iterdir())
        nothing = os.open(os.devnull, os.O_RDWR)
        processes.leave_no_core()
        _tell(spec, Ended(**spec.place, status=code))
        for path in opened:
            with contextlib.suppress(OSError):  # they were listed by one that is closed now
                if path.name != str(spec.channel) and "anon_inode:" not in str(path.readlink()):
                    os.dup2(nothing, int(path.name))
        os.dup2(nothing, spec.channel)
