"""Targets on a real Ray cluster, point by point: results, errors, logs, steering, recovery."""

import dataclasses
import io
import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from _processes import Kernel, can, family, require, wait_gone
from _ray import two_nodes

import distlab

pytestmark = [
    pytest.mark.needs("ray"),
    pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.2 is Linux' own"),
]


@pytest.fixture(scope="module")
def cluster():
    with two_nodes() as started:
        yield started


class Ray:
    """A running cluster with a node for each of two ranks. Some of what a call gives is for Ray."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.engine = distlab.Ray(address=cluster.address, strategy="SPREAD", upload_cwd=False)

    def launch(self, *args, **given):
        names = {field.name for field in dataclasses.fields(distlab.Ray)} & set(given)
        engine = dataclasses.replace(self.engine, **{name: given.pop(name) for name in names})
        return distlab.launch(*args, **given, engine=engine)


@pytest.fixture
def ray(cluster):
    return Ray(cluster)


def sleeper(word="here"):
    print(word, os.environ["RANK"])
    time.sleep(600)


def wait_for_all(job, text="here"):
    for rank in range(job.nprocs):
        job.wait_for_output(rank, text)


def left_free(cluster):
    """What is free on the cluster, as Ray sees it from outside, once nothing changes any more."""
    import ray

    ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
    try:
        deadline = time.monotonic() + 30
        while ray.available_resources().get("CPU") != ray.cluster_resources()["CPU"]:
            assert time.monotonic() < deadline, ray.available_resources()
            time.sleep(0.1)
    finally:
        ray.shutdown()


# Results.


def test_results_come_in_rank_order(ray):
    def place(base, *, factor):
        return base + factor * int(os.environ["RANK"]), os.environ["WORLD_SIZE"]

    found = ray.launch(place, 3, args=[100], kwargs={"factor": 2}).results()
    assert found == [(100, "3"), (102, "3"), (104, "3")]


def test_a_torch_group(ray):
    require("torch")

    def total():
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo")
        value = torch.tensor([dist.get_rank() + 1.0])
        dist.all_reduce(value)
        dist.barrier()
        return float(value), os.environ["MASTER_ADDR"], os.environ["GROUP_RANK"]

    found = ray.launch(total, 3, "torch").results()
    assert [value for value, _, _ in found] == [6.0, 6.0, 6.0]
    assert {node for _, _, node in found} == {"0", "1"}


def test_a_jax_group_with_devices_of_its_own(ray):
    require("jax")

    def gather():
        import jax
        import numpy as np
        from jax.experimental import multihost_utils

        jax.distributed.initialize()
        everybody = multihost_utils.process_allgather(np.array([jax.process_index()]))
        return everybody.ravel().tolist(), jax.device_count()

    assert ray.launch(gather, 2, "jax", devices_per_rank=4).results() == [([0, 1], 8)] * 2


def test_a_tensorflow_group(ray):
    require("tensorflow")

    def total():
        import tensorflow as tf

        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        place = json.loads(os.environ["TF_CONFIG"])

        def mine():
            context = tf.distribute.get_replica_context()
            return context.all_reduce("sum", tf.constant(place["task"]["index"] + 1))

        return int(strategy.run(tf.function(mine))), place["cluster"]["worker"]

    found = ray.launch(total, 2, "tensorflow").results()
    assert [value for value, _ in found] == [3, 3]
    hosts = {address.partition(":")[0] for _, workers in found for address in workers}
    assert hosts == {"127.0.0.2", "127.0.0.3"}


def test_a_script(ray, tmp_path):
    path = tmp_path / "train.py"
    path.write_text("import os, sys; print(os.environ['RANK'], sys.argv[1:], __name__)")
    job = ray.launch(path, 2, args=["--epochs", 3], cwd=tmp_path)
    assert job.results() == [None, None]
    lines = [job.log(rank) for rank in range(2)]
    assert lines == [f"{rank} ['--epochs', '3'] __main__\n" for rank in range(2)]


def test_variables_travel(ray, monkeypatch):
    monkeypatch.setenv("KERAS_HOME", "/somewhere")
    names = ("KERAS_HOME", "OWN", "KERAS_BACKEND")
    job = ray.launch(lambda: [os.environ.get(name) for name in names], 1, "torch", env={"OWN": "x"})
    assert job.results() == [["/somewhere", "x", "torch"]]


# Errors.


def test_one_error_with_every_traceback(ray):
    def fail():
        print("about to")
        if os.environ["RANK"] == "1":
            raise KeyError("gone")
        time.sleep(600)

    with pytest.raises(distlab.RankError) as caught:
        ray.launch(fail, 2).results()
    error = caught.value
    assert [failure.what for failure in error.failures] == ["KeyError: 'gone'"]
    assert 'raise KeyError("gone")' in error.failures[0].traceback
    assert error.failures[0].output == "about to"
    assert [other.rank for other in error.others] == [0]


def test_a_crash(ray):
    def crash():
        if os.environ["RANK"] == "0":
            os.kill(os.getpid(), signal.SIGSEGV)
        time.sleep(600)

    with pytest.raises(distlab.RankError, match="rank 0 of 2 failed: was ended by SIGSEGV"):
        ray.launch(crash, 2).results()


def test_a_timeout_shows_where_ranks_are(ray):
    with ray.launch(sleeper, 2) as job:
        wait_for_all(job)
        with pytest.raises(distlab.JobTimeoutError) as caught:
            job.results(timeout=0.1)
    stacks = [failure.traceback for failure in caught.value.failures]
    assert len(stacks) == 2
    assert all(stack.count("in sleeper") == 1 for stack in stacks)


def test_a_job_that_takes_too_long_is_ended(ray):
    with pytest.raises(distlab.JobTimeoutError) as caught:
        ray.launch(sleeper, 2, timeout=1).results()
    assert [failure.rank for failure in caught.value.failures] == [0, 1]


# Logs.


def test_logs(ray):
    def say():
        print("rank", os.environ["RANK"])
        print("to stderr", file=sys.stderr)
        os.write(1, b"from below\n")

    job = ray.launch(say, 2)
    shown = io.StringIO()
    job.follow(file=shown)
    job.results()
    expected = [["rank 0", "to stderr", "from below"], ["rank 1", "to stderr", "from below"]]
    assert [job.log(rank).splitlines() for rank in range(2)] == expected
    for rank in range(2):
        mine = [line for line in shown.getvalue().splitlines() if line.startswith(f"[rank {rank}]")]
        assert mine == [f"[rank {rank}] {line}" for line in expected[rank]]


# Steering.


def test_kill_ends_one_rank(ray, tmp_path):
    go = tmp_path / "go"

    def wait():
        print("here", flush=True)
        while not go.exists():
            time.sleep(0.01)
        return "survived"

    job = ray.launch(wait, 2)
    wait_for_all(job)
    job.kill(1)
    assert [status.state for status in job.status] == ["running", "killed"]
    go.touch()
    with pytest.raises(distlab.RankError, match="rank 1 of 2 failed: was killed by"):
        job.results()
    assert job.partial_results == ["survived", None]


def test_pause_and_resume(ray):
    def count():
        for number in range(10**9):
            print(number)
            time.sleep(0.005)

    with ray.launch(count, 1) as job:
        job.wait_for_output(0, "3")
        job.pause(0)
        assert job.status[0].state == "paused"
        job.resume(0)
        assert job.status[0].state == "running"
        last = len(job.log(0).splitlines())
        job.wait_for_output(0, str(last + 50))


def test_restart_the_whole_job(ray):
    job = ray.launch(lambda: print("attempt"), 2)
    job.results()
    job.restart()
    job.results()
    assert [status.attempt for status in job.status] == [1, 1]
    assert [job.log(rank, attempt) for rank in (0, 1) for attempt in (0, 1)] == ["attempt\n"] * 4


def test_restart_a_job_that_is_running(ray):
    with ray.launch(sleeper, 2) as job:
        for attempt in range(3):
            for rank in range(2):
                assert job.wait_for_output(rank, "here") == f"here {rank}"
            if attempt < 2:
                job.restart()
        assert [status.attempt for status in job.status] == [2, 2]
        assert [status.state for status in job.status] == ["running", "running"]


def test_start_later_and_restart_one(ray):
    with ray.launch(sleeper, 2, start=[0]) as job:
        job.wait_for_output(0, "here")
        assert job.status[1].state == "waiting"
        job.start(1)
        job.wait_for_output(1, "here")
        job.kill(1)
        job.restart(1)
        assert job.wait_for_output(1, "here") == "here 1"
        assert [status.attempt for status in job.status] == [0, 1]


def test_parameter_servers_are_stopped_at_the_end(ray):
    roles = {"chief": 1, "worker": 1, "ps": 1}

    def act():
        if "chief" not in os.environ["TF_CONFIG"].partition('"task"')[2]:
            time.sleep(600)
        return "done"

    job = ray.launch(act, framework="tensorflow", roles=roles)
    assert job.results() == ["done", None, None]
    assert [status.state for status in job.status] == ["done", "stopped", "stopped"]


# Recovery.


def count_up(steps, killed):
    """Train on from the last checkpoint; the rank `killed` ends itself once, at step 3."""
    import torch
    import torch.distributed as dist

    saved = Path(os.environ["DISTLAB_CHECKPOINT"])
    dist.init_process_group("gloo")
    state = torch.load(saved) if saved.exists() else {"step": 0, "weight": torch.zeros(1)}
    first = state["step"]
    while state["step"] < steps:
        gradient = torch.ones(1) * (dist.get_rank() + state["step"])
        dist.all_reduce(gradient)
        state = {"step": state["step"] + 1, "weight": state["weight"] + gradient}
        if dist.get_rank() == 0:
            with distlab.checkpoints.replacing(saved) as partial:
                torch.save(state, partial)
        dist.barrier()
        print("step", state["step"])
        if first == 0 and state["step"] == 3 and dist.get_rank() == killed:
            os.kill(os.getpid(), signal.SIGKILL)
    return first, float(state["weight"])


EXPECTED = float(sum(1 + 2 * step for step in range(6)))


def test_a_job_goes_on_from_its_checkpoint(ray, tmp_path, caplog):
    require("torch")
    caplog.set_level("INFO", "distlab")
    job = ray.launch(count_up, 2, "torch", args=[6, 1], checkpoint=tmp_path / "state")
    assert job.results() == [(3, EXPECTED)] * 2
    (reason,) = job.restart_reasons
    assert reason.startswith("rank ")
    assert [r.getMessage() for r in caplog.records] == [f"restart 1 of at most 3: {reason}"]


def test_restarts_have_a_limit(ray, tmp_path):
    def fail():
        raise ValueError("again")

    job = ray.launch(fail, 2, checkpoint=tmp_path / "state", max_restarts=2)
    with pytest.raises(distlab.RankError, match="ValueError: again"):
        job.results()
    assert len(job.restart_reasons) == 2
    assert max(status.attempt for status in job.status) == 2


# What only a cluster has.


def test_a_lost_node(ray):
    with ray.launch(sleeper, 2) as job:
        wait_for_all(job)
        lost = next(status.rank for status in job.status if status.node == "127.0.0.3")
        try:
            ray.cluster.remove()
            with pytest.raises(distlab.RankError, match=r"was lost on 127\.0\.0\.3: ") as caught:
                job.results()
        finally:
            ray.cluster.add()
    assert [failure.rank for failure in caught.value.failures] == [lost]
    assert [other.rank for other in caught.value.others] == [1 - lost]


def test_a_job_goes_on_without_a_lost_node(ray, tmp_path):
    require("torch")
    saved = tmp_path / "state"
    go = tmp_path / "go"

    def train():
        found = count_up(3, None) if not saved.exists() else None
        print("waiting")
        while found is not None and not go.exists():  # where it is when the node goes
            time.sleep(0.01)
        import torch

        return torch.load(saved)["step"]

    job = ray.launch(train, 2, "torch", checkpoint=saved)
    wait_for_all(job, "waiting")
    try:
        ray.cluster.remove()
        assert job.results() == [3, 3]
        assert {status.node for status in job.status} == {"127.0.0.2"}
    finally:
        ray.cluster.add()
    (reason,) = job.restart_reasons
    assert "was lost on 127.0.0.3" in reason


def test_modules_of_the_current_directory_travel(ray, tmp_path, monkeypatch):
    (tmp_path / "beside.py").write_text("ANSWER = 42\n")
    monkeypatch.chdir(tmp_path)

    def answer():
        import beside

        return beside.ANSWER, str(Path.cwd())

    found = ray.launch(answer, 2, upload_cwd=True).results()
    assert [value for value, _ in found] == [42, 42]
    assert all(cwd != str(tmp_path) for _, cwd in found)


def test_no_room(ray):
    job = ray.launch(sleeper, 5, placement_timeout=0.5)
    with pytest.raises(distlab.RankError, match="Ray has no room for 5 ranks") as caught:
        job.results()
    assert caught.value.failures == []


def test_nobody_at_the_address():
    job = distlab.launch(sleeper, 1, engine=distlab.Ray(address="127.0.0.1:1"))
    with pytest.raises(distlab.RankError, match=r"Could not join Ray at '127\.0\.0\.1:1'"):
        job.results()


def test_stopping_a_job_that_waits_for_room(ray):
    job = ray.launch(sleeper, 5)
    job.cancel()
    assert [status.state for status in job.status] == ["stopped"] * 5


def test_a_node_that_is_not_on_the_list_is_lost(ray, monkeypatch):
    monkeypatch.setattr("distlab.launching.engines.ray_client._PATIENCE", 0.1)
    with ray.launch(sleeper, 2) as job:
        wait_for_all(job)
        (node,) = (node for node in job._client._nodes if node.part.host == "127.0.0.3")
        node.number = "another"
        with pytest.raises(distlab.RankError, match=r"lost on 127\.0\.0\.3: the node does not"):
            job.results()


def test_a_connection_of_ones_own_is_used_and_missed(cluster):
    import ray

    def sleep():
        print("here")
        time.sleep(600)

    ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
    try:
        job = distlab.launch(sleep, 2, engine="ray")
        wait_for_all(job)
        elsewhere = distlab.launch(sleep, 1, engine=distlab.Ray(address="127.0.0.1:1"))
        with pytest.raises(distlab.RankError, match="is connected to another Ray cluster"):
            elsewhere.results()
    finally:
        ray.shutdown()
    with pytest.raises(distlab.RankError, match=r"ray\.shutdown\(\) has been called here"):
        job.results()
    assert not ray.is_initialized()
    left_free(cluster)


# What goes wrong beside the ranks.

LEFT = "The places of its ranks could not be given back: ConnectionError: the cluster is gone"


@pytest.mark.parametrize("how", ["success", "failure", "cancelled"])
def test_places_that_cannot_be_given_back(ray, monkeypatch, caplog, how):
    import ray as module

    remove = module.util.remove_placement_group

    def fail_after(group):
        remove(group)
        raise ConnectionError("the cluster is gone")

    def work():
        print("here")
        if how == "failure":
            raise ValueError("no such number")
        return time.sleep(600 * (how == "cancelled"))

    monkeypatch.setattr(module.util, "remove_placement_group", fail_after)
    with caplog.at_level("WARNING", "distlab"):
        job = ray.launch(work, 2)
        if how == "success":
            assert job.results() == [None, None]
        else:
            if how == "cancelled":
                wait_for_all(job)
                job.cancel()
            with pytest.raises(distlab.RankError, match=LEFT) as caught:
                job.results()
            assert ("ValueError: no such number" in str(caught.value)) == (how == "failure")
    assert LEFT in caplog.text


@pytest.mark.skipif(not can("unshare", "--mount"), reason="needs the right to mount")
def test_a_full_disk_where_the_ranks_words_are_kept(ray, tmp_path):
    code = f"""
import subprocess
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", {str(tmp_path)!r}], check=True)
import tempfile
tempfile.tempdir = {str(tmp_path)!r}  # of this process alone
from distlab import Ray
def work():
    print("x" * 3_000_000, flush=True)
    time.sleep(600)
job = distlab.launch(work, 2, engine={ray.engine})
attempt(job.results)
job.cancel()
"""
    with Kernel(code, by=["unshare", "--mount"]) as kernel:
        kind, error = kernel.heard()
        assert kind == "RankError"
        assert "was lost: OSError: [Errno 28] No space left on device" in error
        assert kernel.process.wait(60) == 0
    left_free(ray.cluster)


def test_a_rank_of_a_job_that_is_over_cannot_be_started_again(ray):
    job = ray.launch(lambda: 5, 2)
    assert job.results() == [5, 5]
    with pytest.raises(RuntimeError, match="the places of its ranks were given back"):
        job.restart(1)
    job.cancel()
    assert job.partial_results == [5, 5]


BAD_ENGINES = [
    (lambda: "kubernetes", ValueError, "engine is 'kubernetes'; expected None"),
    (lambda: "Slurm", ValueError, "On Slurm, submit the function with submitit"),
    (lambda: 5, TypeError, r"engine is 5 of type int; expected .* a distlab\.Ray\(\)"),
    (lambda: distlab.Ray, TypeError, r"engine is the class Ray itself; expected .*Ray\(\)"),
    (lambda: distlab.Ray(strategy="X"), ValueError, "strategy is 'X'; expected one of"),
    (lambda: distlab.Ray(resources={"CPU": 0}), ValueError, "expected a number above 0"),
    (
        lambda: distlab.Ray(placement_timeout=-1),
        ValueError,
        "placement_timeout must be above 0 seconds, not -1",
    ),
    (lambda: distlab.Ray(upload_cwd="no"), TypeError, "upload_cwd must be True or False, not 'no'"),
    (lambda: distlab.Ray(address=6379), TypeError, "address must be a string such as 'host:6379'"),
    (lambda: distlab.Ray(resources=4), TypeError, 'resources is a dict such as {"CPU": 2}, not 4'),
    (lambda: distlab.Ray(resources={"cpu": 1}), ValueError, "Ray calls that 'CPU'"),
    (lambda: distlab.Ray(strategy="pack"), ValueError, "Did you mean 'PACK'"),
]


def test_bad_engines(subtests):
    for number, (engine, error, message) in enumerate(BAD_ENGINES):
        with subtests.test(number), pytest.raises(error, match=message):
            distlab.launch(sleeper, 1, engine=engine())


# Nothing left.

WATCHED = """
import os, time
from distlab import Ray
job = distlab.launch(lambda: (print("here", flush=True), time.sleep(600)), 2, engine={engine})
for rank in range(2):
    job.wait_for_output(rank, "here")
say([s.pid for s in job.status])
say(str(job._client.directory))
say_when_waiting("waiting")
try:
    job.results()
except KeyboardInterrupt:
    say([s.state for s in job.status])
    hear()
"""


@pytest.mark.parametrize("how", ["interrupt", "SIGKILL"])
def test_nothing_is_left_on_the_cluster(ray, how):
    with Kernel(WATCHED.format(engine=ray.engine)) as kernel:
        pids = kernel.heard()
        directory = Path(kernel.heard())
        assert directory.is_dir()
        assert kernel.heard() == "waiting"
        below = family(kernel.process.pid)
        if how == "interrupt":
            kernel.process.send_signal(signal.SIGINT)
            assert kernel.heard() == ["stopped", "stopped"]
            kernel.tell()
        else:
            kernel.process.kill()
        assert wait_gone([*pids, *below], 30) == []
    assert not directory.exists()
    left_free(ray.cluster)
