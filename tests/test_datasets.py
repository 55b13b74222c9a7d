"""datasets: the digits to the last bit, and the names that choose them."""

import hashlib
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import ndimage
from sklearn.datasets import load_digits

from distlab import datasets

FRAMEWORKS = ("jax", "keras", "tensorflow", "tensorflow_datasets", "torch")


@pytest.fixture(autouse=True)
def _defaults(monkeypatch):
    for name in ("DISTLAB_DATASET", "TFDS_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)


def python(code, **environment):
    """Run `code`, which fills a dict called `out`, in a fresh interpreter; return that dict."""
    script = f"import json\nout = {{}}\n{code}\nprint('\\n' + json.dumps(out))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def same(left, right):
    return all(
        a.dtype == b.dtype and np.array_equal(a, b)
        for one, other in zip(left, right, strict=True)
        for a, b in zip(one, other, strict=True)
    )


# The digits


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


def test_digits_are_those_of_scikit_learn_each_once(digits):
    source = load_digits()
    everything = [np.concatenate(both) for both in zip(*digits, strict=True)]
    ours = sorted((int(y), x.tobytes()) for x, y in zip(*everything, strict=True))
    enlarged = datasets._enlarge(source.images.astype(np.int64))
    assert ours == sorted(
        (int(y), x.tobytes()) for x, y in zip(enlarged, source.target, strict=True)
    )


def test_digits_are_the_same_where_scikit_learn_keeps_them_elsewhere(digits, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert same(datasets.load("digits"), digits)


def test_enlarging_is_bilinear():
    images = load_digits().images
    box = ndimage.zoom(images, (1, 2.5, 2.5), order=1, mode="nearest", grid_mode=True)
    expected = np.pad(box, ((0, 0), (4, 4), (4, 4)))[..., np.newaxis] * 255 / 16
    enlarged = datasets._enlarge(images.astype(np.int64))
    assert np.abs(enlarged - expected).max() <= 0.5 + 1e-9


def test_every_class_is_in_both_parts(digits):
    (_, y_train), (_, y_test) = digits
    assert np.bincount(y_train).tolist() == [153, 159, 146, 158, 150, 159, 156, 150, 154, 151]
    assert np.bincount(y_test).tolist() == [25, 23, 31, 25, 31, 23, 25, 29, 20, 29]


def test_arrays_belong_to_the_caller(digits):
    (x_train, _), _ = first = datasets.load("digits")
    x_train[:] = 7
    assert not same(first, digits)
    assert same(datasets.load("digits"), digits)


IMAGES = hnp.arrays(np.int64, (1, 8, 8), elements=st.integers(0, 16))


@given(st.integers(0, 16))
def test_a_constant_image_stays_constant(value):
    box = datasets._enlarge(np.full((1, 8, 8), value))[:, 4:24, 4:24]
    assert np.unique(box).tolist() == [(value * 255 + 8) // 16]


@given(IMAGES)
def test_enlarging_keeps_the_range(image):
    enlarged = datasets._enlarge(image)[:, 4:24, 4:24]
    assert enlarged.min() >= (image.min() * 255 + 8) // 16
    assert enlarged.max() <= (image.max() * 255 + 8) // 16


@given(IMAGES)
def test_enlarging_keeps_symmetry(image):
    enlarged = datasets._enlarge(image)
    assert np.array_equal(datasets._enlarge(image[:, ::-1]), enlarged[:, ::-1])
    assert np.array_equal(datasets._enlarge(image[:, :, ::-1]), enlarged[:, :, ::-1])
    assert np.array_equal(
        datasets._enlarge(image.transpose(0, 2, 1)), enlarged.transpose(0, 2, 1, 3)
    )


@given(IMAGES, IMAGES)
def test_more_ink_never_gets_less(one, other):
    most = datasets._enlarge(np.maximum(one, other))
    assert (most >= datasets._enlarge(one)).all()
    assert (most >= datasets._enlarge(other)).all()


# Names


def test_digits_are_the_default(digits, monkeypatch):
    assert same(datasets.load(), digits)
    monkeypatch.setenv("DISTLAB_DATASET", "")
    assert same(datasets.load(), digits)
    monkeypatch.setenv("DISTLAB_DATASET", "digits")
    assert same(datasets.load(), digits)


def test_digits_need_no_home(digits):
    assert same(datasets.load("digits", data_dir="~nobody-of-that-name/data"), digits)


def test_a_name_wins_over_the_variable(digits, monkeypatch):
    monkeypatch.setenv("DISTLAB_DATASET", "nonsense")
    assert same(datasets.load("digits"), digits)


def test_an_unknown_name_is_refused(subtests):
    for name in ("MNIST", "digit", "", " mnist"):
        with subtests.test(name=name):
            with pytest.raises(ValueError, match=r"known ones are 'digits' and 'mnist'") as error:
                datasets.load(name)
            assert repr(name) in str(error.value)
            assert "DISTLAB_DATASET" not in str(error.value)


def test_an_unknown_name_in_the_variable_is_traced_to_it(monkeypatch):
    monkeypatch.setenv("DISTLAB_DATASET", "cifar10")
    with pytest.raises(ValueError, match=r"DISTLAB_DATASET='cifar10'.*'digits' and 'mnist'"):
        datasets.load()


def test_what_is_no_name_or_no_path_is_refused(subtests):
    no_path = r"data_dir must be a path .* not 3 of type int"
    for arguments, error, message in [
        ({"name": 3}, TypeError, "must be a string or None, not .*int"),
        ({"name": b"digits"}, TypeError, "must be a string or None, not .*bytes"),
        ({"name": ["digits"]}, TypeError, "must be a string or None, not .*list"),
        ({"name": True}, TypeError, "must be a string or None, not .*bool"),
        ({"name": "digits", "data_dir": 3}, TypeError, no_path),
        ({"name": "mnist", "data_dir": 3}, TypeError, no_path),
        ({"name": "digits", "data_dir": ""}, ValueError, "data_dir is empty"),
        ({"name": "mnist", "data_dir": ""}, ValueError, "data_dir is empty"),
    ]:
        with subtests.test(**arguments), pytest.raises(error, match=message):
            datasets.load(**arguments)


def test_nothing_heavy_is_imported():
    out = python(f"""
import sys
from distlab import datasets
out["at import"] = [name for name in {(*FRAMEWORKS, "numpy", "sklearn")} if name in sys.modules]
datasets.load("digits")
out["at load"] = [name for name in {(*FRAMEWORKS, "sklearn")} if name in sys.modules]
""")
    assert out == {"at import": [], "at load": []}
