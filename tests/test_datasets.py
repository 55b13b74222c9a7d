"""datasets: the digits to the last bit, MNIST through the real TFDS, and what is said when not."""

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import venv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import ndimage
from sklearn.datasets import load_digits

from distlab import datasets

FRAMEWORKS = ("jax", "keras", "tensorflow", "tensorflow_datasets", "torch")
SHARD = "mnist-train.tfrecord-00000-of-00001"
CLOSED_PROXY = "http://127.0.0.1:9"
"""Where nobody listens: what goes through it can't reach a network."""


PROMPT = 9
"""Seconds: less than the 10 after which the process that reads MNIST stops waiting by itself."""


@pytest.fixture(autouse=True)
def _defaults(monkeypatch):
    for name in ("DISTLAB_DATASET", "TFDS_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def offline(monkeypatch):
    go_through(CLOSED_PROXY, monkeypatch)


@pytest.fixture
def scratch(monkeypatch, tmp_path):
    """The directory for temporary files, empty and watched."""
    directory = tmp_path / "scratch"
    directory.mkdir()
    monkeypatch.setenv("TMPDIR", str(directory))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return directory


def go_through(proxy, monkeypatch):
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, proxy)
    for name in ("NO_PROXY", "no_proxy"):
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


def files_below(directory):
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


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


@pytest.mark.parametrize("name", ["MNIST", "digit", "", " mnist"])
def test_an_unknown_name_is_refused(name):
    with pytest.raises(ValueError, match=r"known ones are 'digits' and 'mnist'") as error:
        datasets.load(name)
    assert repr(name) in str(error.value)
    assert "DISTLAB_DATASET" not in str(error.value)


def test_an_unknown_name_in_the_variable_is_traced_to_it(monkeypatch):
    monkeypatch.setenv("DISTLAB_DATASET", "cifar10")
    with pytest.raises(ValueError, match=r"DISTLAB_DATASET='cifar10'.*'digits' and 'mnist'"):
        datasets.load()


@pytest.mark.parametrize("name", [3, b"digits", ["digits"], True])
def test_a_name_that_is_no_string_is_refused(name):
    with pytest.raises(TypeError, match=f"must be a string or None, not .*{type(name).__name__}"):
        datasets.load(name)


@pytest.mark.parametrize("name", ["digits", "mnist"])
def test_a_data_dir_that_is_no_path_is_refused(name):
    with pytest.raises(TypeError, match=r"data_dir must be a path .* not 3 of type int"):
        datasets.load(name, data_dir=3)
    with pytest.raises(ValueError, match="data_dir is empty"):
        datasets.load(name, data_dir="")


def test_nothing_heavy_is_imported():
    out = python(f"""
import sys
from distlab import datasets
out["at import"] = [name for name in {(*FRAMEWORKS, "numpy", "sklearn")} if name in sys.modules]
datasets.load("digits")
out["at load"] = [name for name in {FRAMEWORKS} if name in sys.modules]
""")
    assert out == {"at import": [], "at load": []}


# MNIST


@pytest.fixture(scope="module")
def written():
    """What the prepared data set holds: as MNIST, but ten examples."""
    rng = np.random.default_rng(0)
    return tuple(
        (rng.integers(0, 256, (n, 28, 28, 1), np.uint8), rng.integers(0, 10, n)) for n in (7, 3)
    )


@pytest.fixture(scope="module")
def prepared(written, tmp_path_factory):
    """A directory of TFDS with that data set in it, in TFDS's own format."""
    directory = tmp_path_factory.mktemp("prepared")
    (x_train, y_train), (x_test, y_test) = written
    file = tmp_path_factory.mktemp("arrays") / "arrays.npz"
    np.savez(file, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    script = Path(__file__).with_name("_mnist_on_disk.py")
    subprocess.run(
        [sys.executable, script, directory, file], check=True, capture_output=True, timeout=300
    )
    assert (directory / "mnist" / "3.0.1" / SHARD).exists()
    return directory


def test_mnist_is_read_without_a_network_or_a_trace(prepared, written, offline, scratch):
    before = files_below(prepared)
    assert same(datasets.load("mnist", data_dir=prepared), written)
    assert files_below(prepared) == before
    assert files_below(scratch) == []


def test_the_variables_switch_to_mnist_and_no_framework_comes_with_it(prepared, written):
    out = python(
        f"""
import sys
from distlab import datasets
out["arrays"] = [[array.tolist() for array in part] for part in datasets.load()]
out["imported"] = [name for name in {FRAMEWORKS} if name in sys.modules]
""",
        DISTLAB_DATASET="mnist",
        TFDS_DATA_DIR=str(prepared),
    )
    assert out == {
        "arrays": [[array.tolist() for array in part] for part in written],
        "imported": [],
    }


def cut(directory):
    data = (directory / SHARD).read_bytes()
    (directory / SHARD).write_bytes(data[:-100])


def empty(directory):
    shutil.rmtree(directory)
    directory.mkdir()


DAMAGE = {
    "a shard cut short": cut,
    "no shard": lambda directory: (directory / SHARD).unlink(),
    "broken metadata": lambda directory: (directory / "dataset_info.json").write_text("{"),
    "an empty directory": empty,
}


@pytest.fixture(scope="module")
def damaged(prepared, tmp_path_factory):
    """What loading says about each kind of damage, by kind."""

    def attempt(kind):
        directory = tmp_path_factory.mktemp("damaged") / "data"
        shutil.copytree(prepared, directory)
        DAMAGE[kind](directory / "mnist" / "3.0.1")
        with pytest.raises(datasets.DatasetError) as error:
            datasets.load("mnist", data_dir=directory)
        return directory, error.value

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(DAMAGE, pool.map(attempt, DAMAGE), strict=True))


@pytest.mark.parametrize("kind", DAMAGE)
def test_damaged_mnist_is_said_to_be_damaged(kind, damaged):
    directory, error = damaged[kind]
    assert f"MNIST in {directory}/mnist/3.0.1 can't be read" in str(error)
    assert "delete that directory" in str(error)
    assert "Original error: " in str(error)
    assert "Traceback" in error.__cause__.stderr


def test_no_network_is_said_in_seconds(tmp_path, offline, scratch):
    directory = tmp_path / "data"
    with pytest.raises(datasets.DatasetError) as error:
        datasets.load("mnist", data_dir=directory)
    message = str(error.value)
    assert f"MNIST is not in {directory}/mnist/3.0.1" in message
    assert "Connect to the network" in message
    assert 'distlab.datasets.load("digits")' in message
    assert "Original error: ProxyError" in message
    assert not directory.exists()
    assert files_below(scratch) == []


def test_a_directory_that_cannot_be_written_is_refused_before_the_download(tmp_path, offline):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(datasets.DatasetError, match=f"{file} is not a directory that can be"):
        datasets.load("mnist", data_dir=file / "data")


def test_missing_packages_are_named(tmp_path, monkeypatch):
    venv.create(tmp_path / "bare")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bare" / "bin" / "python"))
    with pytest.raises(
        datasets.DatasetError, match=r"pip install tensorflow .*\n.*No module named"
    ):
        datasets.load("mnist", data_dir=tmp_path / "data")


@pytest.fixture
def silent_proxy(monkeypatch):
    """A proxy that takes connections and never answers: what comes to it waits there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        go_through(f"http://127.0.0.1:{server.getsockname()[1]}", monkeypatch)
        yield server


def children() -> set[psutil.Process]:
    """This process's own: other tests may have left it supervisors, which stay for later ones."""
    return set(psutil.Process().children())


def test_giving_up_leaves_nothing(tmp_path, silent_proxy, scratch, monkeypatch):
    monkeypatch.setattr(datasets, "_MNIST_LIMIT_S", 0.1)
    before = children()
    start = time.monotonic()
    with pytest.raises(datasets.DatasetError, match=r"not ready after 0\.1 s"):
        datasets.load("mnist", data_dir=tmp_path / "data")
    assert time.monotonic() - start < PROMPT
    assert children() == before
    assert files_below(scratch) == []


def test_a_process_that_dies_is_reported(tmp_path, silent_proxy, scratch):
    before = children()
    with ThreadPoolExecutor(1) as pool:
        attempt = pool.submit(datasets.load, "mnist", data_dir=tmp_path / "data")
        with silent_proxy.accept()[0]:
            (child,) = children() - before
            assert child.environ()["CUDA_VISIBLE_DEVICES"] == "-1"
            child.kill()
            with pytest.raises(datasets.DatasetError, match="ended with exit status -9"):
                attempt.result()
    assert files_below(scratch) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_end_by_force_leaves_nothing(number, tmp_path, silent_proxy, scratch):
    code = """
import signal, sys
from distlab import datasets
signal.signal(signal.SIGINT, signal.default_int_handler)
datasets.load("mnist", data_dir=sys.argv[1])
"""
    command = [sys.executable, "-c", code, tmp_path / "data"]
    with (
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as parent,
        silent_proxy.accept()[0],
    ):
        (child,) = psutil.Process(parent.pid).children()
        parent.send_signal(number)
        _, errors = parent.communicate(timeout=PROMPT)
        assert psutil.wait_procs([child], timeout=PROMPT)[1] == []
    assert parent.returncode == -number
    assert ("KeyboardInterrupt" in errors) == (number == signal.SIGINT)
    assert files_below(scratch) == []


# The digits as a builder of TFDS


def test_the_builder_hands_out_the_digits(tmp_path, offline, scratch):
    out = python(
        """
import sys
import distlab.digits_builder
import numpy as np
import tensorflow_datasets as tfds
from distlab import datasets

def arrays(**options):
    parts = tfds.load("distlab_digits", split=["train", "test"], batch_size=-1, **options)
    return [(part["image"], part["label"]) for part in tfds.as_numpy(parts)]

def same(left, right):
    return all(a.dtype == b.dtype and np.array_equal(a, b)
               for one, other in zip(left, right) for a, b in zip(one, other))

expected = datasets.load("digits")
out["prepared"] = same(arrays(), expected)
out["read again"] = same(arrays(download=False), expected)
out["pairs"] = len(next(iter(tfds.load("distlab_digits", split="test", as_supervised=True))))

# Two ranks at once, the other one faster: it is done when this one is half-way.
mine, other = (tfds.builder("distlab_digits", data_dir=sys.argv[1]) for _ in range(2))
def overtaken(manager):
    other.download_and_prepare()
    return type(mine)._split_generators(mine, manager)
mine._split_generators = overtaken
mine.download_and_prepare()
out["overtaken"] = [len(mine.as_dataset(split="test")), mine.info.splits["train"].num_examples]
""".replace("sys.argv[1]", repr(str(tmp_path / "race"))),
        TFDS_DATA_DIR=str(tmp_path / "data"),
        HOME=str(tmp_path / "home"),
    )
    assert out == {
        "prepared": True,
        "read again": True,
        "pairs": 2,
        "overtaken": [261, 1536],
    }
    assert files_below(scratch) == []
    assert not (tmp_path / "home" / "tensorflow_datasets").exists()
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == [
        "distlab_digits",
        "downloads",
    ]
