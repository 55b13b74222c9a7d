"""The place of a save: a directory with a lock file for each rank that is there.

A lock is held (`flock`) by the process that has entered, and so let go when that is killed.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from distlab.checkpoints import swapping


@contextlib.contextmanager
def alone(place: Path) -> Iterator[None]:
    """Within it nobody else enters or leaves the place, which goes with the last that leaves."""
    with contextlib.ExitStack() as stack:
        while True:
            with contextlib.suppress(FileExistsError):
                place.mkdir()
            with contextlib.suppress(FileNotFoundError):  # the last has left just now
                file = stack.enter_context((place / "lock").open("ab"))
                fcntl.flock(file, fcntl.LOCK_EX)
                if os.path.samestat(os.fstat(file.fileno()), (place / "lock").stat()):
                    break
        yield
        if not list(place.glob("*.lock")):
            (place / "lock").unlink()
            with contextlib.suppress(OSError):  # somebody has entered
                place.rmdir()


def clear(place: Path) -> None:
    """Remove what nobody saves to any more; a chief comes by all others before it leaves."""
    if not held(place / "0.lock"):
        for lock in place.glob("*.lock"):
            if not held(lock):
                swapping.remove(place / lock.stem)
                lock.unlink()


def held(lock: Path) -> bool:
    """Whether a process that lives holds a lock."""
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def wait(lock: Path) -> None:
    """Wait until nobody holds a lock."""
    with contextlib.suppress(FileNotFoundError), lock.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
