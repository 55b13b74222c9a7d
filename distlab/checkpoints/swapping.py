"""One path takes the place of another, in one step where the system can."""

import ctypes
import errno
import os
import shutil
import sys
from pathlib import Path

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def put(own: Path, target: Path) -> None:
    """Put a file or a directory in the place of another, which `own` is then, or nothing."""
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


def remove(path: Path) -> None:
    """Remove a file, or a directory with all that is in it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
