"""Who a rank is, and how a process becomes it."""

import contextlib
import ctypes
import faulthandler
import functools
import io
import os
import random
import signal
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from distlab import devices, frameworks, ranks
from distlab.launching import processes
from distlab.launching.protocol.files import rank_file
from distlab.launching.protocol.messages import Launch
from distlab.launching.supervisor import kept_groups

# On Linux one that no program uses: SIGUSR1 and SIGUSR2 belong to the target.
DUMP_SIGNAL = signal.SIGRTMAX - 1 if hasattr(signal, "SIGRTMAX") else getattr(signal, "SIGUSR2", 0)


class RankSpec(msgspec.Struct, frozen=True, kw_only=True):
    """All that one rank needs to know, as it is handed over to a fresh interpreter, too.

    Attributes:
        launch: What was asked for, with all variables of this rank as its environment.
        rank: Which rank.
        attempt: How often it was started before.
        host: The address of its node.
        parent: The supervisor's process id.
        since: When the attempt began, in seconds of `time.time`.
        stays: Whether it stays, once it has returned, until no other rank needs it any more.
        channel: The socket to the supervisor: takes its words, and ends when it need not stay.
        inode: That socket's, by which it is known.
    """

    launch: Launch
    rank: int
    attempt: int
    host: str
    parent: int
    since: float
    stays: bool
    channel: int = -1
    inode: int = -1

    @property
    def place(self) -> dict[str, Any]:
        """The fields by which what it says begins."""
        return {"job": self.launch.job, "rank": self.rank, "attempt": self.attempt}

    def at(self, channel: int) -> "RankSpec":
        """The same for a process whose socket has this number."""
        return replace(self, channel=channel, inode=os.fstat(channel).st_ino)

    def can_speak(self) -> bool:
        """Whether the socket is open: a target may close it, and open another file there."""
        try:
            return os.fstat(self.channel).st_ino == self.inode
        except OSError:
            return False

    def file(self, kind: str) -> Path:
        """Where this rank keeps its `log`, `result`, `error` or `stack`."""
        return rank_file(Path(self.launch.directory), self.rank, self.attempt, kind)


def part(supervisor: int) -> None:
    """In a process that was just forked: be one of its own, and end with the supervisor.

    All that it starts can then be found and ended from outside.
    """
    os.setsid()
    processes.die_with_parent(supervisor, signal.SIGKILL)
    random.seed()  # forked ranks start with the same state, which fresh ones would not
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    if torch := sys.modules.get("torch"):
        torch.default_generator.seed()


def arm(spec: RankSpec) -> None:
    """Hear interrupts, and write this process's stack down when told to, or in a crash."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    stack = os.open(spec.file("stack"), os.O_WRONLY | os.O_CREAT, 0o600)
    faulthandler.register(DUMP_SIGNAL, file=stack, all_threads=True)
    faulthandler.enable(file=stack, all_threads=True)


def take(spec: RankSpec) -> None:
    """Take on the environment, streams, directory and devices of this rank."""
    ranks.since = spec.since  # this process may have been forked long ago
    os.environ.clear()
    os.environ.update(spec.launch.environment)
    os.chdir(spec.launch.cwd)
    sys.path[:] = spec.launch.path or filter(None, sys.path)
    _open_streams(spec)
    tempfile.tempdir = None  # a forked rank has the supervisor's, and perhaps a TMPDIR of its own
    sys.modules["__main__"] = types.ModuleType("__main__")
    sys.modules["__main__"].__dict__["__builtins__"] = __builtins__
    kept_groups.keep()
    _set_up_framework(spec)


def _open_streams(spec: RankSpec) -> None:
    log = os.open(spec.file("log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(nothing)
    os.close(log)
    # Each write goes straight to the file, also from C: what was printed survives any end.
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        raw = io.FileIO(descriptor, "w", closefd=False)
        stream = io.TextIOWrapper(
            raw, encoding="utf-8", errors="backslashreplace", write_through=True
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    with contextlib.suppress(ValueError):  # a platform whose C library names it otherwise
        libc = ctypes.CDLL(None)
        line_buffered = 1
        libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), None, line_buffered, 0)


def _set_up_framework(spec: RankSpec) -> None:
    # A list is one number for each level of nesting.
    outermost = spec.launch.environment.get("OMP_NUM_THREADS", "").partition(",")[0]
    threads = int(outermost) if outermost.isdecimal() else 0
    if threads and (torch := sys.modules.get("torch")):
        torch.set_num_threads(threads)
    if threads > 1 and "numpy" in sys.modules:
        import threadpoolctl

        threadpoolctl.threadpool_limits(threads, user_api="blas")
    if spec.launch.framework == "tensorflow":
        _keep_generated_code(Path(spec.launch.directory))
    if spec.launch.framework == "tensorflow" and (threads or spec.launch.devices_per_rank):
        tf = frameworks.load("tensorflow")
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        if spec.launch.devices_per_rank:
            devices.split_cpu(tf, spec.launch.devices_per_rank)
    if spec.launch.framework == "jax":
        frameworks.show_jax_its_group(spec.host)
        variables = devices.jax_variables(spec.launch.devices_per_rank or 1)
        os.environ["PJRT_NPROC"] = variables["PJRT_NPROC"]
        if spec.launch.devices_per_rank:
            os.environ.update(variables)
            jax = frameworks.load("jax")
            jax.config.update("jax_num_cpu_devices", spec.launch.devices_per_rank)
            jax.config.update("jax_platforms", "cpu")


def _keep_generated_code(directory: Path) -> None:
    """Have TensorFlow write the code it generates to the job's directory, with which it goes.

    It removes the files when the interpreter ends, which a rank that is killed does not come to.
    """
    if loader := sys.modules.get("tensorflow.python.autograph.pyct.loader"):
        create = functools.partial(tempfile.NamedTemporaryFile, dir=directory)
        own = vars(tempfile) | {"NamedTemporaryFile": create}
        loader.__dict__["tempfile"] = types.SimpleNamespace(**own)
