"""datasets: the digits to the last bit, and the names that choose them."""

import hashlib
import json
import subprocess
import sys

import numpy as np
import pytest

from distlab import datasets


@pytest.fixture(autouse=True)
def _defaults(monkeypatch):
    for name in ("DISTLAB_DATASET", "TFDS_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)


def same(left, right):
    return all(
        a.dtype == b.dtype and np.array_equal(a, b)
        for one, other in zip(left, right, strict=True)
        for a, b in zip(one, other, strict=True)
    )


@pytest.fixture(scope="module")
def digits():
    return datasets.load("digits")


def test_digits_have_the_form_of_mnist(digits):
    (x_train, y_train), (x_test, y_test) = digits
    assert (x_train.shape, y_train.shape) == ((1536, 28, 28, 1), (1536,))
    assert (x_test.shape, y_test.shape) == ((261, 28, 28, 1), (261,))
    assert {x_train.dtype, x_test.dtype} == {np.dtype(np.uint8)}
    assert {y_train.dtype, y_test.dtype} == {np.dtype(np.int64)}
    images = np.concatenate([x_train, x_test])
    assert (images.min(), images.max()) == (0, 255)
    assert images[:, 4:24, 4:24].any(axis=(1, 2, 3)).all()
    images[:, 4:24, 4:24] = 0
    assert not images.any()


def test_digits_never_change(digits):
    digest = hashlib.sha256()
    for part in digits:
        for array in part:
            digest.update(f"{array.dtype.str}{array.shape}".encode() + array.tobytes())
    assert digest.hexdigest() == "bcfb2772a407f83e40c73028b5b8c1267c7dced12de44d21331880d1ccaaa43d"


def test_digits_are_those_of_scikit_learn_each_once_enlarged_bilinearly(digits):
    from scipy import ndimage  # here: every worker imports what a module imports
    from sklearn.datasets import load_digits

    source = load_digits()
    box = ndimage.zoom(source.images, (1, 2.5, 2.5), order=1, mode="nearest", grid_mode=True)
    expected = np.pad(box, ((0, 0), (4, 4), (4, 4)))[..., np.newaxis] * 255 / 16
    enlarged = datasets._enlarge(source.images.astype(np.int64))
    assert np.abs(enlarged - expected).max() <= 0.5 + 1e-9
    everything = [np.concatenate(both) for both in zip(*digits, strict=True)]
    ours = sorted((int(y), x.tobytes()) for x, y in zip(*everything, strict=True))
    assert ours == sorted(
        (int(y), x.tobytes()) for x, y in zip(enlarged, source.target, strict=True)
    )


def test_digits_are_the_same_where_scikit_learn_keeps_them_elsewhere(digits, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert same(datasets.load("digits"), digits)


def test_arrays_belong_to_the_caller(digits):
    (x_train, _), _ = first = datasets.load("digits")
    x_train[:] = 7
    assert not same(first, digits)
    assert same(datasets.load("digits"), digits)


@pytest.mark.parametrize(
    ("variable", "name"),
    [(None, None), ("", None), ("digits", None), ("nonsense", "digits"), (None, "digits")],
)
def test_digits_are_the_default_and_a_name_wins_over_the_variable(
    variable, name, digits, monkeypatch
):
    if variable is not None:
        monkeypatch.setenv("DISTLAB_DATASET", variable)
    assert same(datasets.load(name, data_dir="~nobody-of-that-name/data"), digits)


@pytest.mark.parametrize("name", ["MNIST", "digit", "", " mnist", 3, ["digits"]])
def test_an_unknown_name_is_refused(name):
    with pytest.raises(ValueError, match=r"known ones are 'digits' and 'mnist'") as error:
        datasets.load(name)
    assert repr(name) in str(error.value)
    assert "DISTLAB_DATASET" not in str(error.value)


def test_an_unknown_name_in_the_variable_is_traced_to_it(monkeypatch):
    monkeypatch.setenv("DISTLAB_DATASET", "cifar10")
    with pytest.raises(ValueError, match=r"DISTLAB_DATASET='cifar10'.*'digits' and 'mnist'"):
        datasets.load()


def test_nothing_heavy_is_imported():
    code = """
import json, sys
from distlab import datasets
first = {"numpy"} & {*sys.modules}
datasets.load("digits")
heavy = {"jax", "keras", "sklearn", "tensorflow", "tensorflow_datasets", "torch"}
print(json.dumps([*first, *(heavy & {*sys.modules})]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert json.loads(done.stdout) == []
