"""The program of `_training.py` under whatever starts it: what its ranks answer."""

import json
import os
import subprocess

import _training
import numpy as np

from distlab.launching.protocol.variables import STALE

SCRIPTS = tuple(_training.TRAIN)
"""The frameworks that it can be told to train with."""
STEPS = 3


def answers(tmp_path, framework, *command, **environment):
    """What each rank has found when a launcher's command starts the program.

    The ranks write files: a launcher may join the lines that several of them print.
    """
    kept = {name: value for name, value in os.environ.items() if not STALE.fullmatch(name)}
    known = {"CUDA_VISIBLE_DEVICES": "-1", "GLOO_SOCKET_IFNAME": "lo", "ANSWERS": str(tmp_path)}
    done = subprocess.run(
        [*command, _training.__file__, framework, str(STEPS)],
        env=kept | known | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = [json.loads(said.read_text()) for said in sorted(tmp_path.glob("said.*"))]
    alike = [np.allclose(one["losses"], _training.serial_losses(STEPS), 1e-4) for one in found]
    return [[one["rank"], one["world_size"], ok] for one, ok in zip(found, alike, strict=True)]


def expected(framework, size):
    """The same if they train together: each rank, and that its losses are the serial ones."""
    return [[rank, size, True] for rank in range(size)]
