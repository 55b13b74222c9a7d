"""The program that the TF_CONFIG lesson writes runs without distlab, as its reader is told."""

import os
import subprocess
import sys

import nbformat
import numpy as np
from _processes import require
from _tools import ROOT

from distlab import datasets

LESSON = ROOT / "notebooks" / "06_many_workers_tf_config.ipynb"
LEFT_OUT = ("TF_", "KERAS_BACKEND", "KERAS_DISTRIBUTION", "PYTHONPATH", "RANK", "WORLD_SIZE")


def test_main_py_in_a_shell_of_its_own(tmp_path):
    """The lesson itself runs two of them, beside its own distlab and with variables of its own."""
    require("tensorflow")
    require("tf_keras")
    for cell in nbformat.read(LESSON, as_version=4).cells:
        magic, _, source = cell.source.partition("\n")
        if cell.cell_type == "code" and magic.startswith("%%writefile "):
            (tmp_path / magic.split()[1]).write_text(source)
    assert {path.name for path in tmp_path.iterdir()} == {"digits_cnn.py", "main.py"}
    (tmp_path / "distlab.py").write_text("raise ImportError('not needed here')\n")
    (x_train, y_train), (x_test, y_test) = datasets.load("digits")
    arrays = {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}
    np.savez(tmp_path / "digits.npz", **arrays)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(LEFT_OUT)}
    done = subprocess.run(
        [sys.executable, "main.py", "0.03", "64", "2", "4"],
        cwd=tmp_path,
        env=environment | {"CUDA_VISIBLE_DEVICES": "-1"},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    # Without the progress bar.
    lines = [line for line in done.stdout.splitlines() if line.startswith(("worker", "epoch"))]
    assert lines.pop(0) == "worker 0, replicas: 1, global batch: 64"
    assert [line.split(":")[0] for line in lines] == ["epoch 1", "epoch 2"]
