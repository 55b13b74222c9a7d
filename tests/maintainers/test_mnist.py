"""MNIST through the real TFDS, what is said when it is not to be had, the digits as a builder."""

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

import numpy as np
import psutil
import pytest
from _tools import ROOT

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
    script = ROOT / "tests" / "_mnist_on_disk.py"
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


def test_damaged_mnist_is_said_to_be_damaged(prepared, tmp_path, subtests):
    def attempt(kind):
        directory = tmp_path / kind
        shutil.copytree(prepared, directory)
        DAMAGE[kind](directory / "mnist" / "3.0.1")
        with pytest.raises(datasets.DatasetError) as error:
            datasets.load("mnist", data_dir=directory)
        return directory, error.value

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        attempts = {kind: pool.submit(attempt, kind) for kind in DAMAGE}
    for kind, attempted in attempts.items():
        with subtests.test(kind):
            directory, error = attempted.result()
            assert f"MNIST in {directory}/mnist/3.0.1 can't be read" in str(error)
            assert "delete that directory" in str(error)
            assert "Original error: " in str(error)
            assert "Traceback" in error.log


def test_no_network_is_said_in_seconds(tmp_path, offline, scratch):
    directory = tmp_path / "data"
    with pytest.raises(datasets.DatasetError) as error:
        datasets.load("mnist", data_dir=directory)
    message = str(error.value)
    assert f"MNIST is not in {directory}/mnist/3.0.1" in message
    assert "Connect to the network" in message
    assert 'distlab.lessons.datasets.load("digits")' in message
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


def test_an_end_by_force_leaves_nothing(tmp_path, silent_proxy, scratch, subtests):
    code = """
import signal, sys
from distlab import datasets
signal.signal(signal.SIGINT, signal.default_int_handler)
datasets.load("mnist", data_dir=sys.argv[1])
"""
    command = [sys.executable, "-c", code, tmp_path / "data"]
    for number in (signal.SIGINT, signal.SIGKILL):
        with subtests.test(number.name):
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
import distlab.lessons.datasets.digits_builder
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
