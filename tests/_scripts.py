"""One script for each framework, which takes its place from whoever starts it."""

import json
import os
import subprocess
import textwrap

from distlab.launching.protocol.variables import STALE

JAX_SCRIPT = """
import json, pathlib
import distlab

info = distlab.rank_info()
info.prepare("jax")

import jax
import numpy as np
from jax.experimental import multihost_utils

jax.config.update("jax_platforms", "cpu")
jax.distributed.initialize()
ranks = multihost_utils.process_allgather(np.array([info.rank]))
said = json.dumps([info.rank, info.world_size, ranks.ravel().tolist()])
pathlib.Path(__file__).with_name(f"said.{info.rank}").write_text(said)
"""
TENSORFLOW_SCRIPT = """
import json, pathlib
import distlab

info = distlab.rank_info()
info.prepare("tensorflow")

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
def mine():
    replica = tf.distribute.get_replica_context()
    return replica.all_reduce("sum", tf.constant(info.rank))
total = strategy.run(tf.function(mine))
said = json.dumps([info.rank, info.world_size, int(total)])
pathlib.Path(__file__).with_name(f"said.{info.rank}").write_text(said)
"""
TORCH_SCRIPT = """
import json, os, pathlib
import distlab

info = distlab.rank_info()
info.prepare("torch")

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
ranks = [None] * info.world_size
dist.all_gather_object(ranks, dist.get_rank())
said = json.dumps([info.rank, info.world_size, ranks])
pathlib.Path(__file__).with_name(f"said.{info.rank}").write_text(said)
dist.barrier()
if "DISTLAB_JOB" not in os.environ:
    # distlab ends its ranks so, too: PyTorch 2.13 may abort where the interpreter ends Gloo.
    os._exit(0)
"""
SCRIPTS = {
    "torch": (TORCH_SCRIPT, lambda size: list(range(size))),
    "jax": (JAX_SCRIPT, lambda size: list(range(size))),
    "tensorflow": (TENSORFLOW_SCRIPT, lambda size: sum(range(size))),
}


def answers(tmp_path, framework, *command, **environment):
    """What each rank of the framework's script has found when a launcher's command starts it.

    The ranks write files: a launcher may join the lines that several of them print.
    """
    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(SCRIPTS[framework][0]))
    kept = {name: value for name, value in os.environ.items() if not STALE.fullmatch(name)}
    done = subprocess.run(
        [*command, str(path)],
        env=kept | {"CUDA_VISIBLE_DEVICES": "-1", "GLOO_SOCKET_IFNAME": "lo"} | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return sorted(json.loads(said.read_text()) for said in tmp_path.glob("said.*"))


def expected(framework, size):
    return [[rank, size, SCRIPTS[framework][1](size)] for rank in range(size)]
