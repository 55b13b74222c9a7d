"""The process behind `datasets.load("mnist")`: reads MNIST with TFDS, writes it to a pipe.

Run as a script with two arguments: the directory of TFDS, and one for temporary files, which it
removes. It writes the bytes of an `.npz` file to stdout and exits with 0, or writes one message
for the reader to stdout and exits with 1. Everything else, tracebacks and TFDS's own prints
included, goes to stderr. It ends when its stdin does, which is when the process that started it
has gone, however that went.
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import sys
import tempfile
import threading
import traceback
from pathlib import Path
from typing import Any

_CONNECT_LIMIT_S = 10
_OR_DIGITS = 'or use the digits, which need nothing: distlab.datasets.load("digits").'


class _ReportedError(Exception):
    """A failure in words for the reader: what was wrong, what was expected, what to do."""


def main(root: str, scratch: str) -> int:
    """Write MNIST, or what stands in its way, to stdout; return the exit status."""
    # Whoever started this process decides when it ends, not the Ctrl-C that both receive.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _unwind)
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    # TFDS leaves things in the directory for temporary files, and it prints to stdout: from here
    # on that is stderr, and the pipe is for the result alone.
    tempfile.tempdir = scratch
    pipe = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    try:
        pipe.write(_read(root))
    except _ReportedError as report:
        traceback.print_exc()
        error = report.__cause__
        original = f"\nOriginal error: {type(error).__name__}: {error}" if error else ""
        pipe.write(f"{report}{original}".encode(errors="replace"))
        return 1
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        pipe.close()
    return 0


def _end_with_stdin() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _unwind(signum: int, _: object) -> None:
    """Leave through every `finally`, so that TFDS removes what it has half written."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(128 + signum)


def _read(root: str) -> bytes:
    """Read MNIST, downloading it first where it isn't there.

    Returns:
        The bytes of an `.npz` file of `x_train`, `y_train`, `x_test` and `y_test`: images
        `(n, 28, 28, 1)` uint8 and labels `(n,)` int64.

    Raises:
        _ReportedError: Whatever went wrong, with the original error as its cause.
    """
    try:
        import numpy as np
        import tensorflow_datasets as tfds

        (x_train, y_train), (x_test, y_test) = _prepare_and_load(tfds, root)
    except ImportError as error:
        raise _ReportedError(
            "MNIST is read by TensorFlow Datasets, and that or a package it needs can't be "
            f"imported. Install them with: {Path(sys.executable).name} -m pip install tensorflow "
            f"tensorflow-datasets importlib_resources, {_OR_DIGITS}"
        ) from error
    file = io.BytesIO()
    np.savez(file, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    return file.getvalue()


def _prepare_and_load(tfds: Any, root: str) -> Any:
    mnist = tfds.builder_cls("mnist")
    directory = tfds.core.Path(root) / "mnist" / str(mnist.VERSION)
    prepared = directory.exists()
    if not prepared:
        _check_writable(str(directory))
        _check_network(mnist, directory)
    # TFDS would import it half-way through, and a TensorFlow that is broken would look like
    # data that is.
    import tensorflow  # noqa: F401

    try:
        return _load(tfds, root)
    except ImportError:
        raise
    except Exception as error:
        if prepared:
            raise _ReportedError(
                f"MNIST in {directory} can't be read. Most likely files are missing, damaged or "
                "not readable for this user: make them readable, or delete that directory and call "
                f"again, which downloads 11 MB, {_OR_DIGITS}"
            ) from error
        # Of several ranks that prepare MNIST at once, one is first; the others read its copy.
        if directory.exists():
            return _prepare_and_load(tfds, root)
        raise _ReportedError(
            f"MNIST could not be downloaded and prepared in {root}. Check the network and the free "
            f"space there and in the directory for temporary files, call again, {_OR_DIGITS}"
        ) from error


def _load(tfds: Any, root: str) -> Any:
    parts = tfds.load(
        "mnist",
        split=["train", "test"],
        data_dir=root,
        batch_size=-1,
        as_supervised=True,
        # Raw downloads go where they are removed: only the prepared data stays, and a broken
        # download can't spoil a later call.
        download_and_prepare_kwargs={"download_dir": tempfile.mkdtemp()},
    )
    return tfds.as_numpy(parts)


def _check_writable(directory: str) -> None:
    """Refuse before the download rather than after it."""
    if "://" in directory:
        return
    existing = Path(directory)
    while not os.access(existing, os.F_OK):
        existing = existing.parent
    if not (existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)):
        raise _ReportedError(
            f"MNIST is not in {directory}, and can't be prepared there: {existing} is not a "
            "directory that can be written to. Point data_dir or TFDS_DATA_DIR to one that is, "
            f"{_OR_DIGITS}"
        )


def _check_network(mnist: Any, directory: Any) -> None:
    """Ask for one small file first: without a network TFDS 4.9.10 gives up only after 205 s."""
    import requests

    url = min(mnist.url_infos, key=lambda url: mnist.url_infos[url].size)
    try:
        with requests.get(url, stream=True, timeout=_CONNECT_LIMIT_S) as response:
            response.raise_for_status()
    except requests.RequestException as error:
        raise _ReportedError(
            f"MNIST is not in {directory}, and can't be downloaded from {url}. Connect to the "
            "network and call again, point data_dir or TFDS_DATA_DIR to where MNIST has been "
            f"prepared, {_OR_DIGITS}"
        ) from error


if __name__ == "__main__":
    status = 1
    try:
        status = main(*sys.argv[1:])
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        # Not sys.exit: that waits for the threads of a download that stalls.
        os._exit(status)
