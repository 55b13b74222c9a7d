"""rank_info under real launchers: one script for each framework, the same under all of them."""

import json
import os
import subprocess
import sys
import textwrap
from ast import literal_eval
from pathlib import Path

import pytest
from _processes import require
from _scripts import SCRIPTS, answers, expected

import distlab
from distlab.ports import HeldPort

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
    assert answers(tmp_path, framework, *OPEN_MPI, "-n", "2", PYTHON) == expected(framework, 2)


WHO = """
import json, sys, tempfile
from distlab import checkpoints, rank_info
info = rank_info()
place = info.rank, info.world_size, info.local_rank, info.local_world_size
chief = checkpoints.is_chief()
info.prepare("torch")  # which says the same in another launcher's variables
with open(tempfile.mkstemp(dir=sys.argv[1])[0], "w") as file:
    json.dump([*place, chief, checkpoints.is_chief()], file)
"""
SUBMITIT = """
import subprocess, sys, submitit
executor = submitit.LocalExecutor(sys.argv[-1] + ".submitit")
executor.update_parameters(tasks_per_node=3, timeout_min=2)
executor.submit(subprocess.check_call, [sys.executable, *sys.argv[1:]]).results()
"""
PYTHON = sys.executable
# By loopback alone: a machine without a network has no other interface.
OPEN_MPI = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "oob_tcp_if_include", "lo"]
PRTE = ["prterun", "--personality", "ompi", *OPEN_MPI[1:2], "--map-by", ":OVERSUBSCRIBE"]
"""Open MPI 5 where its `mpirun` is not the first on PATH."""
THREE = {
    "torchrun": [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3"],
    "submitit": [PYTHON, "-c", SUBMITIT],
    "Open MPI": [*OPEN_MPI, "-n", "3", PYTHON],
    "Open MPI 5": [*PRTE, "-n", "3", PYTHON],
    "MPICH": ["env", "MASTER_PORT=2345", "mpiexec.hydra", "-n", "3", PYTHON],
}
"""How each launcher starts a Python program three times on this machine; srun: `test_slurm.py`."""
NEEDS = {"Open MPI": ["mpi"], "Open MPI 5": ["mpi5"], "MPICH": ["mpich"]}


@pytest.mark.parametrize(
    "launcher",
    [pytest.param(name, marks=pytest.mark.needs(*NEEDS.get(name, []))) for name in THREE],
)
def test_each_rank_has_its_place_and_one_is_the_chief(tmp_path, launcher):
    if launcher in ("torchrun", "submitit"):
        require({"torchrun": "torch"}.get(launcher, launcher))
    program, said = tmp_path / "who.py", tmp_path / "said"
    program.write_text(WHO)
    said.mkdir()
    command = [*THREE[launcher], str(program), str(said)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    ranks = sorted(json.loads(each.read_text()) for each in said.iterdir())
    local_ranks = [rank.pop(2) for rank in ranks]
    assert sorted(local_ranks) == [0, 1, 2]  # under Open MPI 5 not always in the order of ranks
    assert ranks == [[rank, 3, 3, rank == 0, rank == 0] for rank in range(3)]


def test_in_a_function_that_distlab_runs():
    def who():
        info = distlab.rank_info()
        return info.rank, info.world_size, info.local_rank

    assert distlab.run(who, 3) == [(0, 3, 0), (1, 3, 1), (2, 3, 2)]
    roles = {"chief": 1, "worker": 1, "evaluator": 1}
    assert distlab.run(who, framework="tensorflow", roles=roles) == [(r, 3, r) for r in range(3)]


def told(_=None) -> tuple[int, int, bool]:
    info = distlab.rank_info()
    return info.rank, info.world_size, distlab.checkpoints.is_chief()


EACH = [(0, 2, True), (1, 2, False)]
"""What the two ranks of a group are told."""


def _in_torch_group(rank: int, folder: str) -> None:
    import torch.distributed as dist

    # Around it a step of Slurm's with one task, which contradicts nobody.
    os.environ |= {"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    Path(folder, str(rank)).write_text(repr(told()))


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_a_group_of_processes_that_torch_started(tmp_path, method):
    """They have no variables: the group that they form is all that says who they are."""
    code = f"""
        import torch.multiprocessing as mp
        from test_launchers import _in_torch_group
        if __name__ == "__main__":
            mp.start_processes(
                _in_torch_group, ({str(tmp_path)!r},), nprocs=2, start_method={method!r}
            )
    """
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(code))
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, script], env=environment, check=True, capture_output=True, text=True
    )
    assert "which counts" not in done.stderr
    assert [literal_eval((tmp_path / str(rank)).read_text()) for rank in range(2)] == EACH


def _as_group(framework: str, address: str):
    """What each rank of a group is told whose variables are gone, or say something else."""
    place = int(os.environ["RANK"])
    for name in list(os.environ):
        if name in ("WORLD_SIZE", "LOCAL_RANK", "TF_CONFIG") or name.startswith("JAX_"):
            del os.environ[name]
    if framework == "jax":
        import jax

        os.environ["RANK"], os.environ["WORLD_SIZE"] = "0", "1"  # left from something else
        jax.distributed.initialize(address, 2, place)
        formed = told()
        jax.distributed.shutdown()
        assert told() == formed
    else:
        import tensorflow as tf

        os.environ.pop("RANK")
        cluster = tf.train.ClusterSpec({"worker": address.split()})
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            cluster, task_type="worker", task_id=place
        )
        tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver)
    return told()


@pytest.mark.parametrize("framework", ["jax", "tensorflow"])
def test_a_group_counts_more_than_variables(framework):
    require(framework)
    ports = [HeldPort() for _ in range(2)]
    addresses = [port.address for port in ports[: 1 if framework == "jax" else 2]]
    for port in ports:
        port.hand_over()
    found = distlab.run(_as_group, 2, framework, args=[framework, " ".join(addresses)])
    assert found == EACH


@pytest.mark.needs("ray")
def test_workers_of_ray_train(tmp_path):
    """On CPUs its JaxTrainer's workers have no variables; the trainer's context knows them."""
    code = f"""
        import ray.train
        from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
        from test_launchers import told

        def loop():
            from pathlib import Path
            rank = ray.train.get_context().get_world_rank()
            Path({str(tmp_path)!r}, str(rank)).write_text(repr(told()))

        DataParallelTrainer(
            loop, scaling_config=ray.train.ScalingConfig(num_workers=2),
            run_config=ray.train.RunConfig(storage_path={str(tmp_path / "run")!r}),
        ).fit()
    """
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    environment = os.environ | {"PYTHONPATH": path, "RAY_TRAIN_V2_ENABLED": "1"}
    environment["HOME"] = str(tmp_path)  # where Ray leaves the token that it makes
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=environment, check=True)
    assert [literal_eval((tmp_path / str(rank)).read_text()) for rank in range(2)] == EACH
