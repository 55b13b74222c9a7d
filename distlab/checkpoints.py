"""Who writes a checkpoint where: the chief to the real path, every other rank to a temporary one.

Saving a distributed model is a joint act: a variable may have to be reduced over all replicas
before it can be read, so every rank has to call `save`, and each needs a path of its own, or they
write over one another. Only what the chief wrote is kept. Who is chief is `tf.distribute`'s rule:
https://www.tensorflow.org/tutorials/distribute/multi_worker_with_keras#model_saving_and_loading
"""

import contextlib
import ctypes
import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

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
    """Save to a temporary path; the chief's takes `path`'s place when all of it has been written.

    Whoever reads `path` finds the old file or directory or the new one, whole: not half of either,
    even if this process is killed meanwhile. What the others wrote is removed, and so is what the
    chief wrote if the block raises. Another rank may leave the block before the chief does: let it
    wait (a barrier, any collective) before it reads `path`.

    On other systems than Linux a directory is replaced in two steps, between which a reader finds
    none.

    Args:
        path: A file or a directory, there already or not. Its parents are made, on the chief only.

    Yields:
        The path to save to: in a directory of this rank's own, with the name of `path`.

    Raises:
        TypeError: If `path` is no path.
        ValueError: If `path` names no file, or the variables that tell the rank are not understood.
        FileNotFoundError: If the block ends and the chief saved nothing there.
        OSError: If writing beside `path` is not possible.

    Example:
        >>> with checkpoints.replacing("run/model.keras") as own:  # doctest: +SKIP
        ...     model.save(own)
    """
    target = check_path(path, "The path to save to")
    if not target.name:
        raise ValueError(f"{str(path)!r} names no file or directory to save to.")
    if not is_chief():
        with tempfile.TemporaryDirectory(prefix="distlab-save-") as name:
            yield Path(name, target.name)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    # Beside the target, since a rename works within one file system; found again if this process
    # is killed, since the name depends on the target alone.
    place = target.with_name(f".{target.name}.saving")
    _remove(place)
    place.mkdir()
    try:
        own = place / target.name
        yield own
        if not os.path.lexists(own):
            raise FileNotFoundError(
                f"Nothing was saved for {str(path)!r}: save to the path that replacing() gives."
            )
        _put(own, target)
    finally:
        _remove(place)


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
