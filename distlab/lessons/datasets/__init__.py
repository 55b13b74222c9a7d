"""Real handwritten digits without a network; MNIST through TFDS with one.

`load()` hands out NumPy arrays and imports no framework into the calling process, so that the
same line serves a JAX, a TensorFlow and a PyTorch notebook. Set `DISTLAB_DATASET=mnist` to move
every notebook from the digits to MNIST.

Sources:
    Digits: E. Alpaydin and C. Kaynak (1998), Optical Recognition of Handwritten Digits, UCI
    Machine Learning Repository, https://doi.org/10.24432/C50P49 (CC BY 4.0): its test part, 1,797
    digits of 13 writers, as scikit-learn ships it (`sklearn.datasets.load_digits`, BSD-3-Clause).

    MNIST, and the form the digits are brought into (28x28, white on black, the digit in a box of
    20x20 with a border of 4): Y. LeCun, L. Bottou, Y. Bengio and P. Haffner (1998), Gradient-based
    learning applied to document recognition, Proceedings of the IEEE 86(11).
"""

from __future__ import annotations

import importlib.util
import io
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from distlab.errors import did_you_mean, of_type

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Examples: TypeAlias = tuple[NDArray[np.uint8], NDArray[np.int64]]

__all__ = ["DatasetError", "load"]

_NAMES = ("digits", "mnist")
_VARIABLE = "DISTLAB_DATASET"

# 3 * 512: every power of two up to 512 divides it, so a global batch splits over any mesh.
_TRAIN_EXAMPLES = 1536
_SPLIT_SEED = 0

_BOX, _BORDER, _SOURCE_SIZE, _SOURCE_MAX = 20, 4, 8, 16

_MNIST_SCRIPT = Path(__file__).with_name("mnist.py")
_MNIST_LIMIT_S = 600.0
_MNIST_GRACE_S = 5.0


def __dir__() -> list[str]:
    return list(__all__)


class DatasetError(RuntimeError):
    """The data can't be had: no network, damaged files, no room, or a missing package.

    The message says which, what was expected and what to do.

    Attributes:
        log: Where another process read the data, everything that it printed to standard error.
    """

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


def load(
    name: str | None = None, *, data_dir: str | os.PathLike[str] | None = None
) -> tuple[Examples, Examples]:
    """Load handwritten digits as NumPy arrays, split into a training and a test part.

    Both data sets have one form, that of MNIST in TensorFlow Datasets: images of shape
    `(n, 28, 28, 1)` and type `uint8` (0 is background, 255 is ink), labels of shape `(n,)` and
    type `int64` (0 to 9). The order is the same on every machine and at every call.

    * `"digits"`: 1,536 training and 261 test examples that ship inside scikit-learn. Needs no
      network. Enlarged from 8x8, so coarser than MNIST. Both parts hold digits of the same
      writers, so a test accuracy here says nothing about a new writer.
    * `"mnist"`: 60,000 and 10,000 examples through `tfds.load`, in a process of its own, so that
      this one is spared TensorFlow. The first call downloads 11 MB and takes a minute or so; it
      gives up within 10 minutes, and in seconds without a network.

    Args:
        name: `"digits"` or `"mnist"`. `None` takes the environment variable `DISTLAB_DATASET`,
            and the digits where that is unset or empty.
        data_dir: Where TensorFlow Datasets keeps MNIST. `None` takes the environment variable
            `TFDS_DATA_DIR`, and `~/tensorflow_datasets` where that is unset. The digits need none.

    Returns:
        `(x_train, y_train), (x_test, y_test)`. The arrays are yours to change.

    Raises:
        TypeError: If `name` is not a string or `data_dir` is not a path.
        ValueError: If no data set has that name, or `data_dir` is empty.
        DatasetError: If MNIST can't be had.

    Example:
        >>> from distlab import datasets
        >>> (x_train, y_train), (x_test, y_test) = datasets.load("digits")
        >>> x_train.shape, x_test.shape
        ((1536, 28, 28, 1), (261, 28, 28, 1))
    """
    name = _choose_name(name)
    directory = _check_directory(data_dir)
    return _load_digits() if name == "digits" else _load_mnist(directory)


def _choose_name(name: str | None) -> str:
    given = f"name={name!r}"
    if name is None:
        name = os.environ.get(_VARIABLE) or "digits"
        given = f"the environment variable {_VARIABLE}={name!r}"
    if not isinstance(name, str):
        raise TypeError(f"The name of a data set must be a string or None, not {of_type(name)}.")
    if name not in _NAMES:
        known = " and ".join(repr(known) for known in _NAMES)
        raise ValueError(
            f"There is no data set for {given}. The known ones are {known}."
            + did_you_mean(name, _NAMES)
        )
    return name


def _check_directory(data_dir: str | os.PathLike[str] | None) -> str:
    """Return the directory of TensorFlow Datasets, which may be an address such as gs://..."""
    if data_dir is None:
        data_dir = os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    if not isinstance(data_dir, str | os.PathLike):
        raise TypeError(
            f"data_dir must be a path (a string or a Path) or None, not {of_type(data_dir)}."
        )
    if not os.fspath(data_dir):
        raise ValueError(
            "data_dir is empty. Give the directory that holds MNIST, or leave data_dir out."
        )
    directory = os.fspath(data_dir)
    if "://" in directory:
        return directory
    # Not Path.expanduser: it raises where a user has no home, as in some containers.
    return os.path.abspath(os.path.expanduser(directory))  # noqa: PTH100, PTH111


def _load_digits() -> tuple[Examples, Examples]:
    import numpy as np

    pixels, labels = _read_digits()
    images = _enlarge(pixels.reshape(-1, 8, 8))
    # NumPy promises never to change the numbers of this older generator.
    order = np.random.RandomState(_SPLIT_SEED).permutation(len(labels))
    train, test = order[:_TRAIN_EXAMPLES], order[_TRAIN_EXAMPLES:]
    return (images[train], labels[train]), (images[test], labels[test])


def _read_digits() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Read the pixels and the labels from scikit-learn's file, or ask scikit-learn, which is slow.

    Importing it takes a second, most of it for scipy.stats.
    """
    import numpy as np

    spec = importlib.util.find_spec("sklearn")
    if spec is not None and spec.origin is not None:
        file = Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz"
        if file.exists():
            rows = np.loadtxt(file, delimiter=",").astype(np.int64)
            return rows[:, :-1], rows[:, -1]
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    return pixels.astype(np.int64), labels.astype(np.int64)


def _enlarge(images: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Enlarge `(n, 8, 8)` images of 0..16 to `(n, 28, 28, 1)` images of 0..255.

    Bilinear, with pixel centres at half coordinates, and in integers throughout: floating point
    would round differently from one machine to the next.
    """
    import numpy as np

    # Pixel i of the box lies at (i + 1/2) * 8/20 - 1/2 = (4i - 3)/10 of the source: the two
    # source pixels around it weigh whole tenths.
    weights = np.zeros((_BORDER + _BOX + _BORDER, _SOURCE_SIZE), np.int64)
    for i in range(_BOX):
        position = min(max(4 * i - 3, 0), 10 * (_SOURCE_SIZE - 1))
        pixel, tenths = divmod(position, 10)
        weights[_BORDER + i, pixel] = 10 - tenths
        if tenths:
            weights[_BORDER + i, pixel + 1] = tenths
    scaled = weights @ images @ weights.T
    top = 10 * 10 * _SOURCE_MAX
    rounded = (scaled * 255 + top // 2) // top
    return rounded.astype(np.uint8)[..., np.newaxis]


def _load_mnist(directory: str) -> tuple[Examples, Examples]:
    file = io.BytesIO(_read_mnist(directory))

    import numpy as np

    with np.load(file) as arrays:
        return (
            (arrays["x_train"], arrays["y_train"]),
            (arrays["x_test"], arrays["y_test"]),
        )


def _read_mnist(directory: str) -> bytes:
    """Run the script that reads MNIST and return what it wrote: the bytes of an `.npz` file.

    They come through a pipe, so that no file is left whatever happens. The temporary directory is
    for what TFDS downloads, and for what it forgets to remove.
    """
    # The script ends when `lifeline` closes, and the system closes it even if this process dies.
    stdin, lifeline = os.pipe()
    with (
        os.fdopen(stdin),
        os.fdopen(lifeline, "w"),
        tempfile.TemporaryDirectory(prefix="distlab-mnist-") as scratch,
        subprocess.Popen(
            # By path, because the notebook may have found distlab through sys.path, which a child
            # does not inherit; -P, so that modules beside the script hide none of the same name.
            [sys.executable, "-P", str(_MNIST_SCRIPT), directory, scratch],
            env=os.environ | {"CUDA_VISIBLE_DEVICES": "-1"},
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as child,
    ):
        try:
            output, errors = child.communicate(timeout=_MNIST_LIMIT_S)
        except subprocess.TimeoutExpired as error:
            _stop(child)
            raise DatasetError(
                f"MNIST was not ready after {_MNIST_LIMIT_S:g} s, so the attempt was stopped. "
                "The first call downloads 11 MB: try again with a faster network, or use the "
                'digits, which need none: distlab.datasets.load("digits").',
                (error.stderr or b"").decode(errors="replace"),
            ) from None
        except BaseException:
            _stop(child)
            raise
    if child.returncode == 0:
        return output
    log = errors.decode(errors="replace")
    explained = child.returncode == 1 and output.decode(errors="replace")
    message = explained or (
        f"The process that reads MNIST ended with exit status {child.returncode} before it was "
        f"done. What it printed last:\n{log[-2000:]}"
    )
    raise DatasetError(message, log)


def _stop(child: subprocess.Popen[bytes]) -> None:
    """End the child, giving TFDS time to remove what it had half written."""
    child.terminate()
    try:
        child.communicate(timeout=_MNIST_GRACE_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        child.kill()
