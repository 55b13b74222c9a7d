"""MNIST, read by TensorFlow Datasets in a process of its own: a rank of one.

So this process is spared TensorFlow, and the rank goes with it, however it goes.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from distlab.launching.rank_errors import JobTimeoutError, RankError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Examples: TypeAlias = tuple[NDArray[np.uint8], NDArray[np.int64]]

_LIMIT_S = 600.0
_CONNECT_LIMIT_S = 10
_OR_DIGITS = 'or use the digits, which need nothing: distlab.datasets.load("digits").'


class DatasetError(RuntimeError):
    """MNIST can't be had: no network, damaged files, no room, or a missing package.

    The message says which, what was expected and what to do.
    """


def load_mnist(data_dir: str | os.PathLike[str] | None) -> tuple[Examples, Examples]:
    """Read MNIST in a rank, downloading it first where it isn't there: see `datasets.load`."""
    from distlab.launching.launch import launch  # which the digits do without

    root = os.fspath(data_dir or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets")
    # What TFDS downloads, and what it forgets to remove, goes where it is removed.
    with (
        tempfile.TemporaryDirectory(prefix="distlab-mnist-") as scratch,
        launch(
            _read, 1, args=(root, scratch), env={"CUDA_VISIBLE_DEVICES": "-1"}, timeout=_LIMIT_S
        ) as job,
    ):
        try:
            (parts,) = job.results()
        except JobTimeoutError:
            raise DatasetError(
                f"MNIST was not ready after {_LIMIT_S:g} s, so the attempt was stopped. The first "
                f"call downloads 11 MB: try again with a faster network, {_OR_DIGITS}"
            ) from None
        except RankError as error:
            kind, _, words = error.failures[0].what.partition(": ")
            raise DatasetError(words if kind == "DatasetError" else str(error)) from None
    train, test = parts
    return train, test


def _read(root: str, scratch: str) -> Any:
    """Read MNIST; what goes wrong is a DatasetError."""
    # By SystemExit, so that TFDS removes what it has half written.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    tempfile.tempdir = scratch
    try:
        import tensorflow_datasets as tfds

        return _prepare_and_load(tfds, root)
    except ImportError as error:
        raise _because(
            "MNIST is read by TensorFlow Datasets, and that or a package it needs can't be "
            f"imported. Install them with: {Path(sys.executable).name} -m pip install tensorflow "
            "tensorflow-datasets importlib_resources,",
            error,
        ) from error


def _prepare_and_load(tfds: Any, root: str) -> Any:
    mnist = tfds.builder_cls("mnist")
    directory = tfds.core.Path(root).expanduser() / "mnist" / str(mnist.VERSION)
    prepared = directory.exists()
    if not prepared:
        _check_network(mnist, directory)
    # TFDS would import it half-way through, and a TensorFlow that is broken would look like
    # data that is.
    import tensorflow  # noqa: F401

    try:
        parts = tfds.load(
            "mnist",
            split=["train", "test"],
            data_dir=root,
            batch_size=-1,
            as_supervised=True,
            # A broken download must not spoil a later call.
            download_and_prepare_kwargs={"download_dir": tempfile.mkdtemp()},
        )
        return tfds.as_numpy(parts)
    except ImportError:
        raise
    except Exception as error:
        if prepared:
            raise _because(
                f"MNIST in {directory} can't be read. Most likely files are missing, damaged or "
                "not readable for this user: make them readable, or delete that directory and call "
                "again, which downloads 11 MB,",
                error,
            ) from error
        # Of several ranks that prepare MNIST at once, one is first; the others read its copy.
        if directory.exists():
            return _prepare_and_load(tfds, root)
        raise _because(
            f"MNIST could not be downloaded and prepared in {root}. Check the network, and whether "
            "there is room and a right to write there and in the directory for temporary files; "
            "call again, point data_dir or TFDS_DATA_DIR elsewhere,",
            error,
        ) from error


def _check_network(mnist: Any, directory: Any) -> None:
    """Ask for one small file first: without a network TFDS 4.9.10 gives up only after 205 s."""
    import requests

    url = min(mnist.url_infos, key=lambda url: mnist.url_infos[url].size)
    try:
        requests.get(url, stream=True, timeout=_CONNECT_LIMIT_S).raise_for_status()
    except requests.RequestException as error:
        raise _because(
            f"MNIST is not in {directory}, and can't be downloaded from {url}. Connect to the "
            "network and call again, point data_dir or TFDS_DATA_DIR to where MNIST has been "
            "prepared,",
            error,
        ) from error


def _because(words: str, error: Exception) -> DatasetError:
    return DatasetError(f"{words} {_OR_DIGITS}\nOriginal error: {type(error).__name__}: {error}")
