"""MNIST through the real TFDS, and what is said when it is not to be had."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pytest
from _tools import ROOT

from distlab import datasets
from distlab.lessons.datasets import mnist

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


def go_through(proxy, monkeypatch):
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, proxy)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)


def left(directory=None):
    """What is left of directories for downloads."""
    return list(Path(directory or tempfile.gettempdir()).glob("distlab-mnist-*"))


def files_below(directory):
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


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


def test_mnist_is_read_without_a_network_a_trace_or_a_framework_here(prepared, written, offline):
    code = """
import json, sys
from distlab import datasets
arrays = [[[a.dtype.name, a.tolist()] for a in part] for part in datasets.load()]
imported = {"jax", "keras", "tensorflow", "tensorflow_datasets", "torch"} & {*sys.modules}
print(json.dumps([arrays, [*imported]]))
"""
    before = files_below(prepared)
    variables = {"DISTLAB_DATASET": "mnist", "TFDS_DATA_DIR": str(prepared)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | variables, capture_output=True, check=True
    )
    expected = [[[array.dtype.name, array.tolist()] for array in part] for part in written]
    assert json.loads(done.stdout) == [expected, []]
    assert files_below(prepared) == before
    assert left() == []


def cut(directory):
    data = (directory / SHARD).read_bytes()
    (directory / SHARD).write_bytes(data[:-100])


@pytest.mark.parametrize(
    "damage", [cut, lambda directory: (directory / "dataset_info.json").write_text("{")]
)
def test_damaged_mnist_is_said_to_be_damaged(damage, prepared, tmp_path):
    directory = tmp_path / "data"
    shutil.copytree(prepared, directory)
    damage(directory / "mnist" / "3.0.1")
    with pytest.raises(datasets.DatasetError) as error:
        datasets.load("mnist", data_dir=directory)
    assert f"MNIST in {directory}/mnist/3.0.1 can't be read" in str(error.value)
    assert "delete that directory" in str(error.value)
    assert "Original error: " in str(error.value)


def test_no_network_is_said_in_seconds(tmp_path, offline):
    directory = tmp_path / "data"
    with pytest.raises(datasets.DatasetError) as error:
        datasets.load("mnist", data_dir=directory)
    message = str(error.value)
    assert f"MNIST is not in {directory}/mnist/3.0.1" in message
    assert "Connect to the network" in message
    assert 'distlab.datasets.load("digits")' in message
    assert "Original error: ProxyError" in message
    assert not directory.exists()
    assert left() == []


def test_missing_packages_are_named(tmp_path, monkeypatch):
    broken = tmp_path / "tensorflow_datasets.py"
    broken.write_text("import etils_that_nobody_installed")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(datasets.DatasetError, match=r"pip install tensorflow .*\n.*No module name"):
        datasets.load("mnist", data_dir=tmp_path / "data")


@pytest.fixture
def silent_proxy(monkeypatch):
    """A proxy that takes connections and never answers: what comes to it waits there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        go_through(f"http://127.0.0.1:{server.getsockname()[1]}", monkeypatch)
        yield server


def rank_of(parent) -> psutil.Process:
    """The process that reads MNIST: it has a directory for what TFDS downloads."""
    descendants = psutil.Process(parent).children(recursive=True)
    (reader,) = (each for each in descendants if connected(each))
    return reader


def connected(process) -> bool:
    return any(c.status == psutil.CONN_ESTABLISHED for c in process.net_connections("tcp"))


def test_giving_up_leaves_nothing(tmp_path, silent_proxy, monkeypatch):
    monkeypatch.setattr(mnist, "_LIMIT_S", 0.1)
    with pytest.raises(datasets.DatasetError, match=r"not ready after 0\.1 s"):
        datasets.load("mnist", data_dir=tmp_path / "data")
    assert left() == []


def test_a_process_that_dies_is_reported(tmp_path, silent_proxy):
    with ThreadPoolExecutor(1) as pool:
        attempt = pool.submit(datasets.load, "mnist", data_dir=tmp_path / "data")
        with silent_proxy.accept()[0]:
            reader = rank_of(os.getpid())
            assert reader.environ()["CUDA_VISIBLE_DEVICES"] == "-1"
            reader.kill()
            with pytest.raises(datasets.DatasetError, match="was ended by SIGKILL"):
                attempt.result()
    assert left() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_end_by_force_ends_the_process_that_reads(number, tmp_path, silent_proxy):
    code = """
import signal, sys
from distlab import datasets
signal.signal(signal.SIGINT, signal.default_int_handler)
datasets.load("mnist", data_dir=sys.argv[1])
"""
    command = [sys.executable, "-c", code, tmp_path / "data"]
    variables = os.environ | {"TMPDIR": str(tmp_path)}
    with (
        subprocess.Popen(command, env=variables, stderr=subprocess.PIPE, text=True) as parent,
        silent_proxy.accept()[0],
    ):
        reader = rank_of(parent.pid)
        parent.send_signal(number)
        _, errors = parent.communicate(timeout=PROMPT)
        assert psutil.wait_procs([reader], timeout=PROMPT)[1] == []
    assert parent.returncode == -number
    if number == signal.SIGINT:  # which leaves time to tidy up
        assert "KeyboardInterrupt" in errors
        assert left(tmp_path) == []
