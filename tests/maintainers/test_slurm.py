"""A real Slurm of two nodes: its ranks, the frameworks' scripts under srun, and submitit's jobs."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import cloudpickle
import pytest
from _processes import require
from _scripts import SCRIPTS, answers, expected
from _slurm import NODES, Slurm, poll, slurm

import distlab

needs_slurm = pytest.mark.needs("slurm")
WHO = """
import json, os, distlab
info = distlab.rank_info()
place = [info.rank, info.world_size, info.local_rank, info.local_world_size, info.node]
place += [info.coordinator, info.launcher, os.environ["SLURMD_NODENAME"]]
chief = distlab.checkpoints.is_chief()
info.prepare("torch")  # which says the same in another launcher's variables
print(json.dumps([*place, chief, distlab.checkpoints.is_chief()]))
"""
ADDRESSES = """
import json, os, distlab
info = distlab.rank_info()
info.prepare("tensorflow")
worker = json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"]
print(json.dumps([info.rank, os.environ["SLURMD_NODENAME"], worker]))
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    with slurm() as running:
        yield running


def said(cluster: Slurm, code: str, *options: str) -> list[list]:
    """What the ranks of some Python print under srun, in order."""
    lines = cluster.ask("srun", *options, sys.executable, "-c", code, timeout=120)
    return sorted(map(json.loads, lines.splitlines()))


@needs_slurm
@pytest.mark.parametrize(
    ("options", "places"),
    [
        (("--nodes=1", "--ntasks=3"), [(0, 3, 0), (1, 3, 0), (2, 3, 0)]),
        (("--nodes=2", "--ntasks=3"), [(0, 2, 0), (1, 2, 0), (0, 1, 1)]),
        (
            ("--nodes=2", "--ntasks=3", "--distribution=cyclic"),
            [(0, 2, 0), (0, 1, 1), (1, 2, 0)],
        ),
    ],
)
def test_ranks_under_srun_of_which_one_is_the_chief(cluster, options, places):
    assert said(cluster, WHO, *options) == [
        [rank, 3, local, locals_, node, NODES[0], "Slurm", NODES[node], rank == 0, rank == 0]
        for rank, (local, locals_, node) in enumerate(places)
    ]


@needs_slurm
def test_tensorflow_finds_each_rank_on_its_node(cluster):
    options = ("--nodes=2", "--ntasks=4", "--distribution=block")
    ranks = said(cluster, ADDRESSES, *options)
    assert [rank for rank, *_ in ranks] == [0, 1, 2, 3]
    addresses = ranks[0][2]
    assert len(set(addresses)) == 4
    assert [address.rsplit(":", 1)[0] for address in addresses] == [node for _, node, _ in ranks]
    assert all(worker == addresses for _, _, worker in ranks)


@needs_slurm
@pytest.mark.parametrize("distribution", ["arbitrary", "cyclic"])
def test_ranks_that_are_not_dealt_out_in_blocks(cluster, tmp_path, distribution):
    hosts = tmp_path / "hosts"
    hosts.write_text(f"{NODES[1]}\n{NODES[0]}\n" * 2)
    done = subprocess.run(
        ["srun", "-n4", "-N2", f"--distribution={distribution}", sys.executable, "-c", ADDRESSES],
        env=os.environ | ({"SLURM_HOSTFILE": str(hosts)} if distribution == "arbitrary" else {}),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode != 0
    assert done.stderr.count(f"SLURM_DISTRIBUTION={distribution}, SLURM_GTIDS=") == 4


@needs_slurm
@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("framework", list(SCRIPTS))
def test_the_framework_scripts_under_srun(cluster, tmp_path, framework, nodes):
    require(framework)
    srun = ["srun", f"--nodes={nodes}", "--ntasks=2", "--kill-on-bad-exit=1", sys.executable]
    assert answers(tmp_path, framework, *srun) == expected(framework, 2)
    poll(lambda: not cluster.jobs() and not cluster.processes(), "something is left of the job")


@needs_slurm
def test_a_batch_script_has_no_rank_but_its_step_has(cluster, tmp_path):
    """Outside srun there is an allocation of two tasks, but only one process."""
    script = tmp_path / "job.sh"
    python = f"{sys.executable} -c 'import distlab; print(distlab.rank_info())'"
    script.write_text(f"#!/bin/bash\n{python}\nsrun {python}\n")
    output = tmp_path / "output"
    cluster.ask("sbatch", "--wait", "--nodes=2", "--ntasks=2", f"--output={output}", str(script))
    lines = sorted(output.read_text().splitlines())
    assert [line.split(", local_rank")[0] for line in lines] == [
        "RankInfo(rank=0, world_size=1",
        "RankInfo(rank=0, world_size=2",
        "RankInfo(rank=1, world_size=2",
    ]


# What docs/engines.md says of submitit.


@pytest.fixture
def executor(cluster, tmp_path):
    submitit = pytest.importorskip("submitit")
    executor = submitit.AutoExecutor(tmp_path, cluster="slurm")
    executor.update_parameters(nodes=2, tasks_per_node=1, timeout_min=5)
    yield executor
    cluster.cancel_all()
    poll(lambda: not cluster.processes(), "something is left of the job")


def jax_sum() -> tuple[int, list[int]]:
    import jax
    import numpy as np
    from jax.experimental import multihost_utils

    jax.distributed.initialize()
    everybody = multihost_utils.process_allgather(np.array([jax.process_index()]))
    return jax.process_index(), everybody.ravel().tolist()


def torch_sum() -> tuple[int, list[int]]:
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    everybody = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
    dist.all_gather(everybody, torch.tensor([dist.get_rank()]))
    return dist.get_rank(), torch.cat(everybody).tolist()


def tensorflow_sum() -> tuple[int, list[int]]:
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    rank = json.loads(os.environ["TF_CONFIG"])["task"]["index"]

    def everybody():
        return tf.distribute.get_replica_context().all_gather(tf.constant([rank]), axis=0)

    return rank, strategy.run(tf.function(everybody)).numpy().tolist()


@needs_slurm
@pytest.mark.parametrize("train", [torch_sum, jax_sum, tensorflow_sum])
def test_a_function_that_submitit_submits_forms_a_group(executor, train):
    framework = train.__name__.removesuffix("_sum")
    require(framework)

    def task():
        distlab.rank_info().prepare(framework)
        return train()

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        job = executor.submit(task)
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    assert job.results() == [(0, [0, 1]), (1, [0, 1])]


@needs_slurm
def test_what_submitit_says_of_a_rank_that_fails(executor):
    def task():
        print("about to")
        if distlab.rank_info().rank == 1:
            raise KeyError("gone")
        return "well"

    job = executor.submit(task)
    assert job.task(0).result() == "well"
    error = job.task(1).exception()
    assert "KeyError: 'gone'" in str(error) and "in task" in str(error)
    assert "about to" in job.task(1).stdout()
