"""Who writes a checkpoint where: the chief to the real path, every other rank to a temporary one.

Saving a distributed model is a joint act: a variable may have to be reduced over all replicas
before it can be read, so every rank has to call `save`, and each needs a path of its own, or they
write over one another. What the chief wrote is kept, with the shards of the others where each rank
writes files of its own. Who is chief is `tf.distribute`'s rule:
https://www.tensorflow.org/tutorials/distribute/multi_worker_with_keras#model_saving_and_loading
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO

from distlab.errors import check_path
from distlab.ranks import rank_info

__all__ = ["is_chief", "replacing"]

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def __dir__() -> list[str]:
    return list(__all__)


def is_chief() -> bool:
    """Say whether this process is the one whose checkpoint counts.

    It is rank 0 by `distlab.rank_info`, whoever has started the ranks. With `TF_CONFIG` that is the
    task of type chief (or its old name, master), or worker 0 where the cluster has none.

    Raises:
        ValueError: If the variables that tell the rank cannot be understood.

    Example:
        >>> from distlab import checkpoints
        >>> checkpoints.is_chief()  # no cluster: one process, which is its own chief
        True
    """
    return rank_info().rank == 0


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Save to a temporary path; what was written takes `path`'s place when all of it is there.

    Whoever reads `path` finds the old file or directory or the new one, whole: not half of either,
    even if this process is killed meanwhile. What counts is what the chief wrote, and with it what
    the ranks that save at the same time have written into files that the chief has not: the shards
    of a checkpoint, as of `torch.distributed.checkpoint`. The chief waits for those ranks. If
    its block raises, or a rank with shards fails, all is as before. Another rank may leave the
    block before the chief does: let it wait (a barrier, any collective) before it reads `path`.

    On other systems than Linux a directory is replaced in two steps, between which a reader finds
    none.

    Not for Orbax (`orbax-checkpoint`): its processes wait for one another at one path, so let all
    save to `path` itself; it puts a checkpoint into its place whole without help.

    Args:
        path: A file or a directory, there already or not. Its parents are made. Shards take a file
            system that all ranks see, and that has locks (`flock`).

    Yields:
        The path to save to: in a directory of this rank's own, with the name of `path`.

    Raises:
        TypeError: If `path` is no path.
        ValueError: If `path` names no file, or the variables that tell the rank are not understood.
        FileNotFoundError: If the block ends and the chief saved nothing there.
        RuntimeError: If files were written that cannot take `path`'s place, or not all shards are
            there; the message says where they are kept, and what to do.
        OSError: If writing beside `path` is not possible.

    Example:
        >>> with checkpoints.replacing("run/model.keras") as own:  # doctest: +SKIP
        ...     model.save(own)
    """
    target = check_path(path, "The path to save to")
    if not target.name:
        raise ValueError(f"{str(path)!r} names no file or directory to save to.")
    rank = rank_info().rank
    # Beside the target, since a rename works within one file system; found again if this process
    # is killed, since the name depends on the target alone.
    place = target.with_name(f".{target.name}.saving")
    with _entered(place, rank) as lock:
        own = place / str(rank) / target.name
        yield own
        if rank == 0:
            _conclude(own, target, str(path))
        else:
            _leave_to_chief(own, target, lock)


_DONE = b"done"
"""What the lock of a rank holds whose block has ended well."""
_SHARD = re.compile(r"\.distcp$|-of-0*([2-9]|1\d)\d*(\D|$)")
"""What PyTorch, TensorFlow and Hugging Face call one file of several."""


@contextlib.contextmanager
def _entered(place: Path, rank: int) -> Iterator[BinaryIO]:
    """A directory of this rank's own in the place of a save, and a lock held until it is left."""
    place.parent.mkdir(parents=True, exist_ok=True)
    lock = place / f"{rank}.lock"
    while True:
        with _alone(place):
            _clear(place)
            if not lock.exists():
                file = lock.open("w+b", buffering=0)
                fcntl.flock(file, fcntl.LOCK_EX)
                (place / str(rank)).mkdir()
                break
        # Another program saves there, or the chief has yet to fetch what this rank saved before.
        _wait(lock if _held(lock) else place / "0.lock")
    try:
        yield file
    finally:
        with _alone(place):
            file.close()
            _clear(place)


@contextlib.contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Within it nobody else enters or leaves the place, which goes with the last that leaves."""
    with contextlib.ExitStack() as stack:
        while True:
            place.mkdir(exist_ok=True)
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


def _clear(place: Path) -> None:
    """Remove what nobody saves to any more; a chief comes by all others before it leaves."""
    if not _held(place / "0.lock"):
        for lock in place.glob("*.lock"):
            if not _held(lock):
                _remove(place / lock.stem)
                lock.unlink()


def _held(lock: Path) -> bool:
    """Whether a process that lives holds a lock."""
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _wait(lock: Path) -> None:
    """Wait until nobody holds a lock."""
    with contextlib.suppress(FileNotFoundError), lock.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)


def _leave_to_chief(own: Path, target: Path, lock: BinaryIO) -> None:
    """End the block of a rank that is not the chief, for which the chief waits if it is there."""
    place, rank = own.parent.parent, own.parent.name
    with _alone(place):
        if _held(place / "0.lock"):
            lock.write(_DONE)
        elif parts := [name for name in _files(own) if _SHARD.search(name)]:
            raise RuntimeError(
                f"Rank {rank} saved {_some(parts)}, a part of a checkpoint, and the chief saves to "
                f"{str(target)!r} on another file system or not at all. It is kept in "
                f"{_keep(own, target)!r}: let all ranks save to a path that they all see."
            )
        else:  # now, lest the chief enters meanwhile and takes this for a rank that has failed
            _remove(own.parent)
            (place / f"{rank}.lock").unlink()


def _conclude(own: Path, target: Path, path: str) -> None:
    """End the block of the chief: fetch the shards of the others, and put all in its place."""
    place = own.parent.parent
    while True:
        with _alone(place):
            others = [lock for lock in place.glob("*.lock") if lock.stem != "0"]
            busy = [lock for lock in others if _held(lock)]
            if not busy:
                for lock in others:
                    _fetch(place / lock.stem / target.name, own, lock.read_bytes() == _DONE)
                _put_all(own, target, path)
                return
        _wait(busy[0])


def _fetch(theirs: Path, own: Path, done: bool) -> None:
    """Take from another rank what the chief has not written."""
    missing = _files(theirs) - _files(own)
    if missing and own.is_dir():
        if not done:
            raise RuntimeError(
                f"Rank {theirs.parent.name} saved {_some(missing)} and then failed: nothing was "
                "replaced, for that may be only a part of its part."
            )
        for name in missing:
            (own / name).parent.mkdir(parents=True, exist_ok=True)
            (theirs / name).rename(own / name)


def _put_all(own: Path, target: Path, path: str) -> None:
    strays = {each.name for each in own.parent.iterdir()} - {own.name}
    if strays:
        raise RuntimeError(
            f"What was saved for {path!r} is several files: {_some(strays)}. They cannot take its "
            f"place in one step, so nothing was replaced, and they are kept in "
            f"{_keep(own, target)!r}. Save to a directory: own.mkdir(), then own / 'ckpt'."
        )
    if not os.path.lexists(own):
        raise FileNotFoundError(
            f"Nothing was saved for {path!r}: save to the path that replacing() gives."
        )
    _put(own, target)


def _files(folder: Path) -> set[str]:
    """The files below a directory, by their paths from there."""
    return {str(each.relative_to(folder)) for each in folder.rglob("*") if not each.is_dir()}


def _some(names: Collection[str]) -> str:
    first, more = sorted(names)[:4], len(names) - 4
    return ", ".join([*first, *([f"{more} more"] if more > 0 else [])])


def _keep(own: Path, target: Path) -> str:
    """Move all that a rank has written out of the place of a save, which goes."""
    kept = tempfile.mkdtemp(prefix=f"{target.name}.kept-", dir=target.parent)
    for each in own.parent.iterdir():
        each.rename(Path(kept, each.name))
    return kept


def _put(own: Path, target: Path) -> None:
    _flush(own)
    there = os.path.lexists(target)
    if there and (own.is_dir() or target.is_dir()):  # rename(2) replaces files only
        if _exchange(own, target):
            return
        target.rename(own.with_name(f"{own.name}.old"))
    own.replace(target)


def _flush(path: Path) -> None:
    # A rename may reach the disk before the data it names: see rename(2) and fsync(2).
    for folder, _, files in os.walk(path):
        for name in files:
            _fsync(Path(folder, name))
        _fsync(Path(folder))
    if not path.is_dir():
        _fsync(path)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two paths in one step, where the system can: renameat2(2)."""
    if sys.platform != "linux":
        return False
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "renameat2"):
        return False
    names = os.fsencode(one), os.fsencode(other)
    failed: int = library.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE)
    if failed == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS):  # a file system or a kernel that cannot
        return False
    raise OSError(code, os.strerror(code), str(other))


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
