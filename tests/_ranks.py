"""What ranks do in tests. A module that imports next to nothing, since ranks have to import it."""

import contextlib
import ctypes
import os
import time
from pathlib import Path


def rank() -> int:
    """Which rank this is."""
    return int(os.environ["RANK"])


class Adder:
    """Has a method to run."""

    def __init__(self, amount: int) -> None:
        self.amount = amount

    def add(self, number: int = 0) -> int:
        """The rank, and what it is to be added to."""
        return rank() + self.amount + number


def crash() -> None:
    """Read where nothing is."""
    ctypes.string_at(0)


def nap() -> None:
    """Print something, then wait to be ended."""
    print("asleep")
    time.sleep(600)


def chat(last: str) -> None:
    """Print two lines, then wait to be ended."""
    print("first")
    print(last, flush=True)
    time.sleep(600)


def fail_on_one() -> None:
    """Fail on rank 1; on others wait to be ended."""
    print("about to think")
    if rank() == 1:
        raise ValueError("no <such> number\nat all")
    time.sleep(600)


def look() -> tuple[dict[str, object], list[float], int]:
    """What this rank has that might be its supervisor's or an earlier job's; numbers by chance."""
    import random
    import resource
    import signal
    import sys

    dies_by = ctypes.c_int()
    ctypes.CDLL(None).prctl(2, ctypes.byref(dies_by))  # PR_GET_PDEATHSIG
    files = []
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the one by which they were listed
            files.append(path.readlink().name)
    own = ("RANK", "_PORT", "DISTLAB_JOB", "TORCHELASTIC_RUN_ID")
    has: dict[str, object] = {
        "environment": {k: v for k, v in sorted(os.environ.items()) if not k.endswith(own)},
        "directory": str(Path.cwd()),
        "umask": os.umask(0o77),
        "handlers": {
            int(n): getattr(signal.getsignal(n), "__name__", signal.getsignal(n))
            for n in signal.valid_signals()
        },
        "blocked": signal.pthread_sigmask(signal.SIG_BLOCK, []),
        "limits": [resource.getrlimit(n) for n in range(16)],
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "cores": os.sched_getaffinity(0),
        "path": sys.path,
        "argv": sys.argv,
        "main": sorted(vars(sys.modules["__main__"])),
        "leads": os.getpid() == os.getsid(0) == os.getpgid(0),
        "dies with its parent by": dies_by.value,
        # A rank's own have its number; sockets and pipes have one that nobody else's has.
        "files": sorted(file.partition(":")[0].rpartition(".")[2] for file in files),
    }
    numbers = [random.random()]
    if "numpy" in sys.modules:
        numbers.append(sys.modules["numpy"].random.rand())
    if "torch" in sys.modules:
        numbers.append(sys.modules["torch"].rand(1).item())
    return has, numbers, os.getpid()
