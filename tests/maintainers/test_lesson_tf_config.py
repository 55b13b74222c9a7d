"""The programs that the TF_CONFIG lesson writes run without distlab, as its reader is told."""

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import numpy as np
import pytest
from _processes import require
from _tools import ROOT

from distlab import datasets
from distlab.ports import HeldPort

LESSON = ROOT / "notebooks" / "06_many_workers_tf_config.ipynb"
LIMIT = 180


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the files that the lesson writes, and a distlab that can't be imported."""
    require("tensorflow")
    require("tf_keras")
    folder = tmp_path_factory.mktemp("lesson")
    for cell in nbformat.read(LESSON, as_version=4).cells:
        magic, _, source = cell.source.partition("\n")
        if cell.cell_type == "code" and magic.startswith("%%writefile "):
            (folder / magic.split()[1]).write_text(source)
    assert {path.name for path in folder.iterdir()} == {"digits_cnn.py", "main.py"}
    (folder / "distlab.py").write_text("raise ImportError('not needed here')\n")
    (x_train, y_train), (x_test, y_test) = datasets.load("digits")
    arrays = {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}
    np.savez(folder / "digits.npz", **arrays)
    return folder


def start(folder: Path, tf_config: dict | None = None) -> subprocess.Popen:
    """What a reader types into one shell."""
    left_out = ("TF_", "KERAS_BACKEND", "KERAS_DISTRIBUTION", "PYTHONPATH", "RANK", "WORLD_SIZE")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(left_out)}
    # A proxy would be asked for localhost, too.
    environment |= {"CUDA_VISIBLE_DEVICES": "-1", "no_grpc_proxy": "localhost"}
    if tf_config is not None:
        environment["TF_CONFIG"] = json.dumps(tf_config)
    return subprocess.Popen(
        [sys.executable, "main.py", "0.03", "64", "2", "4"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def printed(process: subprocess.Popen) -> list[str]:
    """What main.py itself printed, without the progress bar."""
    output, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, errors
    return [line for line in output.splitlines() if line.startswith(("worker", "epoch"))]


def test_main_py_alone(folder):
    with start(folder) as process:
        try:
            first, *epochs = printed(process)
        finally:
            process.kill()
    assert first == "worker 0, replicas: 1, global batch: 64"
    assert [line.split(":")[0] for line in epochs] == ["epoch 1", "epoch 2"]


def test_main_py_in_two_shells(folder):
    ports = [HeldPort(), HeldPort()]
    cluster = {"worker": [f"localhost:{port.number}" for port in ports]}
    for port in ports:
        port.hand_over()
    workers = []
    try:
        for index in (1, 0):  # in either order
            task = {"type": "worker", "index": index}
            workers.append(start(folder, {"cluster": cluster, "task": task}))
        (second, *second_epochs), (first, *first_epochs) = map(printed, workers)
    finally:
        for process in workers:
            process.kill()
            process.communicate()
    assert first == "worker 0, replicas: 2, global batch: 128"
    assert second == "worker 1, replicas: 2, global batch: 128"
    assert len(first_epochs) == 2
    assert first_epochs == second_epochs
