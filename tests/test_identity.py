"""rank_info: the same answer whoever started the process, by what each launcher sets."""

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec

import pytest

import distlab
from distlab import RankInfo, launched_by, rank_info

ADDRESS = "10.0.0.1"


def config(kind, index, **cluster):
    return json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})


TORCHRUN = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "GROUP_RANK": "1",
    "MASTER_ADDR": ADDRESS,
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "none",
}
SLURM = {
    "SLURM_JOB_ID": "17",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "7",
    "SLURM_NTASKS": "7",
    "SLURM_PROCID": "6",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "3",
    "SLURM_STEP_TASKS_PER_NODE": "2(x3),1",
    "SLURM_STEP_NODELIST": "a,b,c,d",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}
KUBEFLOW = config("worker", 1, chief=["c:1"], worker=["w:1", "w:2"], ps=["p:1"])


def test_what_each_launcher_says(subtests):
    for variables, expected in [
        ({}, RankInfo(0, 1, 0, 1, 0, None, "nobody")),
        (TORCHRUN, RankInfo(5, 8, 1, 4, 1, f"{ADDRESS}:29500", "torchrun")),
        (
            TORCHRUN | {"DISTLAB_JOB": "its-parent"},
            RankInfo(5, 8, 1, 4, 1, f"{ADDRESS}:29500", "torchrun"),
        ),
        (SLURM, RankInfo(6, 7, 0, 1, 3, "a", "Slurm")),
        (SUBMITIT, RankInfo(3, 4, 3, 4, 0, None, "submitit")),
        (OPEN_MPI, RankInfo(3, 4, 1, 2, None, None, "Open MPI")),
        (
            {"PMI_RANK": "0", "PMI_SIZE": "1"},
            RankInfo(0, 1, 0, 1, 0, None, "MPI's process manager"),
        ),
        ({"TF_CONFIG": KUBEFLOW}, RankInfo(2, 4, 1, 2, 1, "c:1", "TF_CONFIG")),
        (
            {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "m", "MASTER_PORT": "1"},
            RankInfo(1, 2, None, None, None, "m:1", "RANK and WORLD_SIZE"),
        ),
        (
            {
                "JAX_PROCESS_ID": "1",
                "JAX_NUM_PROCESSES": "2",
                "JAX_COORDINATOR_ADDRESS": "host:1",
            },
            RankInfo(1, 2, None, None, None, "host:1", "JAX's variables"),
        ),
        ({"TF_CONFIG": " "}, RankInfo(0, 1, 0, 1, 0, None, "nobody")),
        # torchrun on every node of a Slurm allocation: Slurm speaks of torchrun's own processes.
        (TORCHRUN | SLURM, RankInfo(5, 8, 1, 4, 1, f"{ADDRESS}:29500", "torchrun")),
        # A batch script, outside srun.
        (
            {k: v for k, v in SLURM.items() if "STEP" not in k},
            RankInfo(0, 1, 0, 1, 0, None, "nobody"),
        ),
        # An old name of the chief, types of one's own, a cluster of which little is known.
        (
            {"TF_CONFIG": config("worker", 0, master=["m:1"], worker=["w:1"])},
            RankInfo(1, 2, 0, 1, 1, "m:1", "TF_CONFIG"),
        ),
        (
            {"TF_CONFIG": config("trainer", 1, trainer=["a:1", "a:2"])},
            RankInfo(1, 2, 1, 2, 0, "a:1", "TF_CONFIG"),
        ),
        (
            {"TF_CONFIG": config("worker", 2, worker={"0": "a:1", "2": "b:1"})},
            RankInfo(1, 2, 0, 1, 1, "a:1", "TF_CONFIG"),
        ),
        ({"TF_CONFIG": '{"cluster": {}}'}, RankInfo(0, 1, 0, 1, 0, None, "nobody")),
        # Keras's names.
        (
            {
                "KERAS_DISTRIBUTION_PROCESS_ID": "1",
                "KERAS_DISTRIBUTION_NUM_PROCESSES": "2",
                "KERAS_DISTRIBUTION_JOB_ADDRESSES": "a:1,b:1",
            },
            RankInfo(1, 2, None, None, None, "a:1", "JAX's variables"),
        ),
        # Two that agree: what one does not say, the other may.
        (
            OPEN_MPI | {"RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "m", "MASTER_PORT": "1"},
            RankInfo(3, 4, 1, 2, None, "m:1", "RANK and WORLD_SIZE"),
        ),
        # An evaluator is no member of TensorFlow's cluster.
        (
            {"TF_CONFIG": config("evaluator", 0, worker=["w:1", "w:2"])},
            RankInfo(2, 3, None, None, None, None, "TF_CONFIG"),
        ),
    ]:
        with subtests.test(expected.launcher, **variables):
            assert rank_info(variables) == expected


SUBMITIT = {
    "SUBMITIT_LOCAL_JOB_ID": "1",
    "SUBMITIT_LOCAL_NTASKS": "4",
    "SUBMITIT_LOCAL_JOB_NUM_NODES": "1",
    "SUBMITIT_LOCAL_NODEID": "0",
    "SUBMITIT_LOCAL_GLOBALID": "3",
    "SUBMITIT_LOCAL_LOCALID": "3",
}
TWO = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
JAX = {"JAX_PROCESS_ID": "3", "JAX_NUM_PROCESSES": "4", "JAX_COORDINATOR_ADDRESS": "h:1"}
STEP_OF_ONE = SLURM | {
    "SLURM_STEP_NUM_TASKS": "1",
    "SLURM_PROCID": "0",
    "SLURM_NODEID": "0",
    "SLURM_STEP_TASKS_PER_NODE": "1",
    "SLURM_STEP_NODELIST": "a",
}
TASK_OF_EACH_NODE = SLURM | {
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_PROCID": "1",
    "SLURM_NODEID": "1",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    "SLURM_STEP_NODELIST": "a,b",
}


def test_a_launcher_within_another(subtests):
    """What an outer launcher says of its own process contradicts nobody."""
    mpirun = {f"OMPI_COMM_WORLD_{k}": v for k, v in (("RANK", "1"), ("SIZE", "2"))}
    one_each = {"OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}
    for variables, expected in [
        (TWO | STEP_OF_ONE, (3, 4, 1, 2)),  # any launcher in an interactive step
        (OPEN_MPI | STEP_OF_ONE, (3, 4, 1, 2)),
        (JAX | STEP_OF_ONE, (3, 4, None, None)),
        ({"TF_CONFIG": KUBEFLOW} | STEP_OF_ONE, (2, 4, 1, 2)),
        (SUBMITIT | STEP_OF_ONE, (3, 4, 3, 4)),
        (TWO | TASK_OF_EACH_NODE, (3, 4, 1, 2)),  # one launcher on each of two nodes
        (TWO | mpirun | one_each, (3, 4, 1, 2)),
        (TWO | {"PMI_RANK": "1", "PMI_SIZE": "2"}, (3, 4, 1, 2)),
    ]:
        with subtests.test(**variables):
            info = rank_info(variables)
            found = (info.rank, info.world_size, info.local_rank, info.local_world_size)
            assert found == expected
    with pytest.raises(ValueError, match="do not agree"):  # two on a node: one of them is stale
        rank_info({"RANK": "0", "WORLD_SIZE": "1"} | OPEN_MPI)


@pytest.mark.parametrize("launched", [False, True])
def test_a_pod_of_an_indexed_job_is_told_that_it_may_be_one_of_many(launched):
    variables = {"JOB_COMPLETION_INDEX": "2"}
    if launched:
        variables |= {"RANK": "2", "WORLD_SIZE": "4"}
    program = "import distlab; print(distlab.rank_info().world_size)"
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | variables, capture_output=True, text=True
    )
    assert done.stdout.split() == ["4" if launched else "1"]
    assert ("without RANK and WORLD_SIZE it counts as rank 0 of 1" in done.stderr) != launched


def test_lightning_says_no_rank():
    variables = {"MASTER_ADDR": "m", "MASTER_PORT": "1", "NODE_RANK": "0", "LOCAL_RANK": "1"}
    expected = RankInfo(1, 2, 1, None, 0, "m:1", "Lightning")
    assert rank_info(variables | {"WORLD_SIZE": "2"}) == expected
    assert rank_info(variables).launcher == "nobody"  # what is left of a training that is over
    with pytest.raises(ValueError, match="WORLD_SIZE=4, but RANK is not set"):
        rank_info(variables | {"NODE_RANK": "1", "WORLD_SIZE": "4"})  # how many are on a node?


def test_deepspeed_has_names_of_its_own():
    variables = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_SIZE": "2"}
    info = rank_info(variables | {"CROSS_RANK": "1", "CROSS_SIZE": "2"})
    assert (info.local_rank, info.local_world_size, info.node) == (1, 2, 1)


def test_what_is_incomplete_is_named(subtests):
    for variables, message in [
        ({"RANK": "1"}, "RANK=1, but WORLD_SIZE is not set. Set both, or neither"),
        ({"WORLD_SIZE": "4"}, "WORLD_SIZE=4, but RANK is not set"),
        ({"KERAS_DISTRIBUTION_PROCESS_ID": "1"}, "PROCESS_ID=1, but JAX_NUM_PROCESSES is not set"),
        ({"RANK": "x", "WORLD_SIZE": "4"}, "RANK is 'x'; expected a number from 0 on"),
        ({"RANK": "-1", "WORLD_SIZE": "4"}, "RANK is '-1'; expected a number"),
        ({"RANK": "4", "WORLD_SIZE": "4"}, "a rank is less than the world size"),
        ({"TF_CONFIG": "{"}, "TF_CONFIG is '{'; expected JSON such as"),
        ({"TF_CONFIG": "[]"}, "TF_CONFIG is '[]'; expected JSON such as"),
        ({"TF_CONFIG": '{"cluster": {"worker": ["a:1"]}}'}, "; expected JSON such as"),
        ({"TF_CONFIG": '{"cluster": {"worker": 3}}'}, "; expected JSON such as"),
        ({"TF_CONFIG": config("worker", 2, worker=["w:1"])}, "worker 2 is not in its cluster"),
        ({k: v for k, v in SLURM.items() if k != "SLURM_PROCID"}, "SLURM_PROCID is not set"),
    ]:
        with subtests.test(message), pytest.raises(ValueError, match=re.escape(message)):
            rank_info(variables)


def test_what_does_not_agree_is_listed():
    variables = OPEN_MPI | {"RANK": "0", "WORLD_SIZE": "1", "TF_CONFIG": KUBEFLOW}
    with pytest.raises(ValueError, match="do not agree on its rank") as caught:
        rank_info(variables)
    assert str(caught.value).splitlines()[1:-1] == [
        "  RANK and WORLD_SIZE: rank 0 of 1",
        "  TF_CONFIG: rank 2 of 4",
        "  Open MPI: rank 3 of 4",
    ]


def test_a_node_list_without_scontrol(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match=r"node list 'gpu\[1-3\]' can't be read"):
        launched_by.slurm_hosts(SLURM | {"SLURM_STEP_NODELIST": "gpu[1-3]"})


def test_ranks_of_distlab_say_so_and_meet_beside_their_store(subtests):
    def meet():
        info = rank_info()
        address = info.prepare("jax").get("JAX_COORDINATOR_ADDRESS")
        return info.launcher, address, address == info.coordinator

    for framework in filter(find_spec, ("torch", "tensorflow", "jax")):
        with subtests.test(framework):
            function = meet if framework == "torch" else lambda: (rank_info().launcher, 0, False)
            one, other = distlab.run(function, 2, framework)
            assert one == other
            assert (one[0], one[2]) == ("distlab", False)


def test_an_attribute_it_has_not():
    with pytest.raises(AttributeError, match=r"no attribute 'size'\. It has rank, world_size, "):
        rank_info({}).size  # noqa: B018


def test_an_unknown_framework():
    with pytest.raises(ValueError, match="Unknown framework 'mxnet': expected 'torch' or"):
        rank_info({}).prepare("mxnet")


def test_a_meeting_place_that_somebody_has_set(monkeypatch, subtests):
    """As the errors ask for: MPICH says where no group can meet."""
    mpich = {"PMI_RANK": "1", "PMI_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "2345"}
    for framework, address in [
        ("torch", ("MASTER_ADDR", "MASTER_PORT")),
        ("jax", ("JAX_COORDINATOR_ADDRESS",)),
    ]:
        for more in ({}, {"MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}):
            with subtests.test(framework, **more), monkeypatch.context() as patch:
                patch.setattr(os, "environ", mpich | more)
                rank_info().prepare(framework)
                assert ":".join(os.environ[name] for name in address) == "127.0.0.1:2345"


def test_a_port_of_jax_that_does_not_count_is_said(monkeypatch, caplog):
    named = {"JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "1", "JAX_COORDINATOR_PORT": "2345"}
    for port in ("2345", "2346"):
        address = {"JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}"}
        monkeypatch.setattr(os, "environ", named | address)
        assert rank_info().prepare("jax") == {}
    (said,) = caplog.messages
    assert said == "JAX_COORDINATOR_PORT=2345 does not count: JAX meets at 127.0.0.1:2346."


def test_a_meeting_place_that_nobody_knows(monkeypatch, subtests):
    for name in ("MASTER_ADDR", "TF_CONFIG", "JAX_COORDINATOR_ADDRESS", "PMIX_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)
    for framework in ("torch", "jax", "tensorflow"):
        with (
            subtests.test(framework),
            pytest.raises(RuntimeError, match=r"set (MASTER_ADDR|TF_CONFIG)"),
        ):
            rank_info(OPEN_MPI).prepare(framework)
