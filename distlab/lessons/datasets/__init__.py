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
import os
from pathlib import Path
from typing import TYPE_CHECKING

from distlab.errors import did_you_mean
from distlab.lessons.datasets.mnist import DatasetError, load_mnist

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from distlab.lessons.datasets.mnist import Examples

__all__ = ["DatasetError", "load"]

_NAMES = ("digits", "mnist")
_VARIABLE = "DISTLAB_DATASET"

# 3 * 512: every power of two up to 512 divides it, so a global batch splits over any mesh.
_TRAIN_EXAMPLES = 1536
_SPLIT_SEED = 0

_BOX, _BORDER, _SOURCE_SIZE, _SOURCE_MAX = 20, 4, 8, 16


def __dir__() -> list[str]:
    return list(__all__)


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
        ValueError: If no data set has that name.
        DatasetError: If MNIST can't be had.

    Example:
        >>> from distlab import datasets
        >>> (x_train, y_train), (x_test, y_test) = datasets.load("digits")
        >>> x_train.shape, x_test.shape
        ((1536, 28, 28, 1), (261, 28, 28, 1))
    """
    given = f"name={name!r}"
    if name is None:
        name = os.environ.get(_VARIABLE) or "digits"
        given = f"the environment variable {_VARIABLE}={name!r}"
    if name not in _NAMES:
        raise ValueError(
            f"There is no data set for {given}. The known ones are 'digits' and 'mnist'."
            + did_you_mean(name, _NAMES)
        )
    return _load_digits() if name == "digits" else load_mnist(data_dir)


def _load_digits() -> tuple[Examples, Examples]:
    import numpy as np

    pixels, labels = _read_digits()
    images = _enlarge(pixels.reshape(-1, _SOURCE_SIZE, _SOURCE_SIZE))
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
    tenths = np.clip(4 * np.arange(_BOX) - 3, 0, 10 * (_SOURCE_SIZE - 1))
    apart = abs(tenths[:, np.newaxis] - 10 * np.arange(_SOURCE_SIZE))
    weights = np.pad(np.maximum(10 - apart, 0), ((_BORDER, _BORDER), (0, 0)))
    scaled = weights @ images @ weights.T
    top = 10 * 10 * _SOURCE_MAX
    rounded: NDArray[np.int64] = (scaled * 255 + top // 2) // top
    return rounded.astype(np.uint8)[..., np.newaxis]
