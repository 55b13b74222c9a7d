"""Processes and process groups: tie them to their parent, signal them, leave none behind."""

import contextlib
import ctypes
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
JOB_VARIABLE = "DISTLAB_JOB"
"""The environment variable by which a rank, and what it started, is known."""
MACHINE = "machine"
"""The file in a directory for the files of jobs that says where it is used."""


def die_with_parent(parent: int, number: int) -> None:
    """Have the system send this process signal `number` when its parent ends (Linux only).

    The parent is the thread that started this process: one that must live as long as is meant.

    Args:
        parent: The parent's process id as the caller knows it; if it has gone already, the signal
            is sent at once.
        number: The signal.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
        if os.getppid() != parent:
            os.kill(os.getpid(), number)


def leave_no_core() -> None:
    """Have this process end without a core file from now on, however it ends (Linux only)."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def changes() -> Iterator[tuple[int, int | str]]:
    """Take note of every child that has ended, has stopped on a signal, or has continued.

    What is left of the process group of one that has ended is killed.

    Yields:
        The child's process id, and its exit status, negative for a signal; or `"paused"` or
        `"running"`.
    """
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if os.WIFSTOPPED(status) or os.WIFCONTINUED(status):
            yield pid, "paused" if os.WIFSTOPPED(status) else "running"
            continue
        # Its number is given to nobody else while it is that of a process group. A group of other
        # users' processes only, or on macOS of zombies only, cannot be signalled.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        yield pid, os.waitstatus_to_exitcode(status)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent has ended (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def computes(pid: int) -> bool:
    """Whether a process's first thread runs, or waits for a processor only (Linux; else False)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] == "R"


def signal_group(leader: int, number: int) -> None:
    """Signal all that is left of the process group that `leader` leads."""
    # It may have ended; or, before its first line, not be a leader yet.
    try:
        os.killpg(leader, number)
    except ProcessLookupError:
        with contextlib.suppress(ProcessLookupError):
            os.kill(leader, number)
    except PermissionError:  # macOS, for a group of which only zombies are left
        pass


def end_descendants(
    spare: Collection[int | None] = (), which: Callable[[str | None], bool] = lambda _: True
) -> None:
    """Kill what is below this process, and wait until it is gone.

    Args:
        spare: Processes to leave alone.
        which: Told the job that a process belongs to, None where that cannot be told, says whether
            to kill it.
    """
    import psutil

    while below := [
        process
        for process in psutil.Process().children(recursive=True)
        if process.pid not in spare and which(job_of(process.pid))
    ]:
        for process in below:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        # Only for those just killed: a child adopted meanwhile may live on, until the next round.
        for process in below:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process.pid, 0)


def end_children(pids: Iterable[int], grace: float) -> None:
    """Tell children of this process to end, by SIGTERM, and wait for that, at most for a grace."""
    import psutil

    told = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            told.append(child := psutil.Process(pid))
            child.terminate()
            signal_group(pid, signal.SIGCONT)  # a paused one would not hear of it
    psutil.wait_procs(told, timeout=grace)


def end_job(job: str) -> None:
    """Kill every process of a job whose supervisor is gone."""
    import psutil

    for process in psutil.process_iter():
        if process.pid != os.getpid() and job_of(process.pid) == job:
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                process.kill()


def job_of(pid: int) -> str | None:
    """The job in whose name a process was started, None if there is none or it is not ours."""
    import psutil

    try:
        environment: dict[str, str] = psutil.Process(pid).environ()
    except (psutil.Error, OSError):
        return None
    return environment.get(JOB_VARIABLE)


def python(module: str, *arguments: str) -> list[str]:
    """The command that runs `entry()` of one of distlab's modules in a fresh interpreter."""
    # At the end of the path: where a program looks for its own modules comes first.
    root = str(Path(__file__).parents[2])
    path = f"distlab.launching.{module}"
    code = f"import sys; sys.path.append({root!r}); from {path} import entry; entry()"
    return [sys.executable, "-c", code, *arguments]


def new_directory(apart: bool = False) -> "tuple[Path, subprocess.Popen[bytes]]":
    """A new directory for the files of jobs, for this user alone, and what will remove it.

    That is a process of its own, which is there before the directory is: so the directory goes when
    this process ends, however and whenever that is. It waits for the end of its standard input,
    which this process holds open, as do the processes forked from it: `communicate` has the
    directory removed sooner.

    Args:
        apart: Do not make it a child of this process: some kill a process with all its children.

    Raises:
        OSError: If there is no place for the directory, or no process can be started.
    """
    directory = Path(tempfile.gettempdir()) / f"distlab-{secrets.token_hex(8)}"
    keeper = _remove_in_the_end(directory, apart)
    try:
        directory.mkdir(mode=0o700)
        (directory / MACHINE).write_text(machine())
    except OSError as error:  # such as a full disk
        keeper.communicate()
        raise OSError(error.errno, error.strerror, str(directory)) from None
    return directory, keeper


def _remove_in_the_end(directory: Path, apart: bool) -> "subprocess.Popen[bytes]":
    # More than once, for something may still be writing there.
    script = (
        # Who ends a process with all its children, or all of a session, leaves this one to its end.
        'trap "" HUP INT TERM; read -r _; '
        'for _ in 1 2 3 4 5; do rm -rf -- "$0" && break; sleep 1; done'
    )
    if apart:  # what a shell starts in the background would read nothing otherwise
        script = f"exec 3<&0; (exec <&3; {script}) &"
    try:
        process = subprocess.Popen(
            ["sh", "-c", script, str(directory)],
            # Nothing else of this process's own: who ends all that a cluster has started finds it
            # by that. And where the system's programs are, for PATH may lead nowhere by then.
            env={"PATH": os.pathsep.join([os.environ.get("PATH", ""), os.defpath])},
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # an interrupt of the kernel is not meant for it
        )
    except BlockingIOError as error:
        words = f"{error.strerror}: is there a limit on processes (ulimit -u)?"
        raise BlockingIOError(error.errno, words) from None
    if apart:
        process.wait()
    return process


def machine() -> str:
    """What tells where process ids mean what they mean here: another host, or another container.

    Directories for temporary files may be shared with either.
    """
    start, space = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")
    if not start.exists():
        return socket.gethostname()
    return f"{start.read_text().strip()} {space.readlink()}"


def describe_exit(status: int) -> str:
    """An exit status of `os.waitstatus_to_exitcode` in words."""
    if status >= 0:
        return f"exited with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    hints = {
        "SIGKILL": " (sent by hand, or by the system when memory runs out)",
        "SIGSEGV": " (a crash in native code)",
        "SIGABRT": " (native code gave up)",
    }
    return f"was ended by {name}{hints.get(name, '')}"
