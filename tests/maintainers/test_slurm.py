"""A real Slurm of two nodes: its ranks, the frameworks' scripts under srun, and what it leaves."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from _processes import require, wait_gone
from _scripts import SCRIPTS, answers, expected
from _slurm import NODES, Slurm, poll, slurm

pytestmark = pytest.mark.needs("slurm")
WHO = """
import json, os, distlab
info = distlab.rank_info()
place = [info.rank, info.world_size, info.local_rank, info.local_world_size, info.node]
print(json.dumps([*place, info.coordinator, info.launcher, os.environ["SLURMD_NODENAME"]]))
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
def test_ranks_under_srun(cluster, options, places):
    assert said(cluster, WHO, *options) == [
        [rank, 3, local, locals_, node, NODES[0], "Slurm", NODES[node]]
        for rank, (local, locals_, node) in enumerate(places)
    ]


@pytest.mark.parametrize("distribution", ["block", "cyclic", "cyclic:cyclic"])
def test_tensorflow_finds_each_rank_on_its_node(cluster, distribution):
    options = ("--nodes=2", "--ntasks=4", f"--distribution={distribution}")
    ranks = said(cluster, ADDRESSES, *options)
    assert [rank for rank, *_ in ranks] == [0, 1, 2, 3]
    addresses = ranks[0][2]
    assert len(set(addresses)) == 4
    assert [address.rsplit(":", 1)[0] for address in addresses] == [node for _, node, _ in ranks]
    assert all(worker == addresses for _, _, worker in ranks)


def test_ranks_dealt_out_by_hand(cluster, tmp_path):
    (tmp_path / "hosts").write_text(f"{NODES[1]}\n{NODES[0]}\n")
    done = subprocess.run(
        ["srun", "--ntasks=2", "--distribution=arbitrary", sys.executable, "-c", ADDRESSES],
        env=os.environ | {"SLURM_HOSTFILE": str(tmp_path / "hosts")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode != 0
    assert done.stderr.count("SLURM_DISTRIBUTION=arbitrary, SLURM_GTIDS=") == 2


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("framework", list(SCRIPTS))
def test_the_framework_scripts_under_srun(cluster, tmp_path, framework, nodes):
    require(framework)
    srun = ["srun", f"--nodes={nodes}", "--ntasks=2", "--kill-on-bad-exit=1", sys.executable]
    assert answers(tmp_path, framework, *srun) == expected(framework, 2)
    poll(lambda: not cluster.jobs() and not cluster.processes(), "something is left of the job")


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


def test_nothing_is_left_of_slurm(monkeypatch):
    """Neither a daemon, nor a task that bears SIGTERM, nor a file."""
    monkeypatch.delenv("SLURM_CONF", raising=False)
    stubborn = "trap '' TERM; echo ready; while :; do sleep 1; done"
    with contextlib.suppress(ZeroDivisionError), slurm() as running:
        output = running.home / "output"
        wrapped = f'srun bash -c "{stubborn}"'
        running.ask("sbatch", "--nodes=2", "--ntasks=2", f"--output={output}", f"--wrap={wrapped}")
        poll(lambda: output.exists() and output.read_text().count("ready") == 2, "no job started")
        pids = [*running.daemons, *(process.pid for process in running.started())]
        assert {psutil.Process(pid).name() for pid in pids} > {
            "munged",
            "slurmctld",
            "slurmd",
            "slurmstepd",
            "srun",
            "bash",
        }
        raise ZeroDivisionError
    assert wait_gone(pids, 10) == []
    assert running.started() == []
    assert not Path(running.home).exists()
    assert "SLURM_CONF" not in os.environ
