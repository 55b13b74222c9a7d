"""rank_info under real launchers: one script for each framework, the same under all of them."""

import sys

import pytest
from _processes import require
from _scripts import SCRIPTS, answers, expected

import distlab

each_script = pytest.mark.parametrize("framework", list(SCRIPTS))


@each_script
def test_one_script_under_torchrun(tmp_path, framework):
    require("torch")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    assert answers(tmp_path, framework, *torchrun) == expected(framework, 2)


@each_script
def test_the_same_script_under_distlab(tmp_path, framework):
    require(framework)
    run = [sys.executable, "-m", "distlab", "run", "--framework", framework, "--nprocs", "2"]
    # Here distlab is to find Gloo's interface itself.
    found = answers(tmp_path, framework, *run, GLOO_SOCKET_IFNAME="")
    assert found == expected(framework, 2)


@each_script
def test_the_same_script_started_plainly(tmp_path, framework):
    require(framework)
    assert answers(tmp_path, framework, sys.executable) == expected(framework, 1)


@pytest.mark.needs("mpi")
@each_script
def test_the_same_script_under_mpirun(tmp_path, framework):
    require(framework)
    # By loopback alone: a machine without a network has no other interface.
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "oob_tcp_if_include"]
    mpirun += ["lo", "-n", "2", sys.executable]
    assert answers(tmp_path, framework, *mpirun) == expected(framework, 2)


def test_in_a_function_that_distlab_runs():
    def who():
        info = distlab.rank_info()
        return info.rank, info.world_size, info.local_rank

    assert distlab.run(who, 3) == [(0, 3, 0), (1, 3, 1), (2, 3, 2)]
    roles = {"chief": 1, "worker": 1, "evaluator": 1}
    assert distlab.run(who, framework="tensorflow", roles=roles) == [(r, 3, r) for r in range(3)]
