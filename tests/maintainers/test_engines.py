"""Targets on a real Ray cluster, point by point: results, errors, logs, steering, recovery."""

import dataclasses
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


def sleeper():
    print("here", os.environ["RANK"])
    time.sleep(600)


def wait_for_all(job, text="here"):
    for rank in range(job.nprocs):
        job.wait_for_output(rank, text, timeout=200)


def states(job):
    return [status.state for status in job.status]


# Results.


def test_a_torch_group_its_results_logs_and_variables(ray, monkeypatch, capsys):
    require("torch")
    monkeypatch.setenv("KERAS_HOME", "/somewhere")

    def total(base, *, factor):
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo")
        value = torch.tensor([dist.get_rank() + 1.0])
        dist.all_reduce(value)
        print("rank", dist.get_rank())
        print("to stderr", file=sys.stderr)
        os.write(1, b"from below\n")
        dist.barrier()
        names = ("WORLD_SIZE", "KERAS_HOME", "OWN", "KERAS_BACKEND")
        mine = base + factor * dist.get_rank()
        return mine, float(value), [os.environ[n] for n in names], os.environ["GROUP_RANK"]

    given = {"args": [100], "kwargs": {"factor": 2}, "env": {"OWN": "x"}}
    job = ray.launch(total, 3, "torch", **given)
    job.follow()
    variables = ["3", "/somewhere", "x", "torch"]
    assert [r[:3] for r in job.results()] == [(100 + 2 * r, 6.0, variables) for r in range(3)]
    assert {node for *_, node in job.results()} == {"0", "1"}
    assert {status.node for status in job.status} == {"127.0.0.2", "127.0.0.3"}
    shown = capsys.readouterr().out.splitlines()
    for rank in range(3):
        lines = [f"rank {rank}", "to stderr", "from below"]
        assert job.log(rank).splitlines() == lines
        mine = [line for line in shown if line.startswith(f"[rank {rank}]")]
        assert mine == [f"[rank {rank}] {line}" for line in lines]
    with pytest.raises(RuntimeError, match="Its places on the cluster were given back: launch it"):
        job.restart()
    job.cancel()
    assert states(job) == ["done"] * 3


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


def test_a_tensorflow_group_and_those_who_serve_are_stopped_at_the_end(ray):
    require("tensorflow")

    def total():
        place = json.loads(os.environ["TF_CONFIG"])
        if place["task"]["type"] == "ps":
            time.sleep(600)
        del place["cluster"]["ps"]  # the strategy knows of none
        os.environ["TF_CONFIG"] = json.dumps(place)
        import tensorflow as tf

        strategy = tf.distribute.MultiWorkerMirroredStrategy()

        def mine():
            context = tf.distribute.get_replica_context()
            return context.all_reduce("sum", tf.constant(int(os.environ["RANK"])))

        found = int(strategy.run(tf.function(mine)))
        if place["task"]["type"] == "worker":
            time.sleep(600)
        return found, place["cluster"]

    roles = {"chief": 1, "worker": 2, "ps": 1}
    job = ray.launch(total, framework="tensorflow", roles=roles)
    (found, cluster), *others = job.results()
    assert (found, others) == (0 + 1 + 2, [None] * 3)
    addresses = [address for each in cluster.values() for address in each]
    hosts = [address.partition(":")[0] for address in addresses]
    assert (len(hosts), set(hosts)) == (3, {"127.0.0.2", "127.0.0.3"})
    assert states(job) == ["done", *["stopped"] * 3]


def test_a_script(ray, tmp_path):
    path = tmp_path / "train.py"
    path.write_text("import os, sys; print(os.environ['RANK'], sys.argv[1:], __name__)")
    job = ray.launch(path, 2, args=["--epochs", 3], cwd=tmp_path)
    assert job.results() == [None, None]
    lines = [job.log(rank) for rank in range(2)]
    assert lines == [f"{rank} ['--epochs', '3'] __main__\n" for rank in range(2)]


def test_modules_of_the_current_directory_travel(ray, tmp_path, monkeypatch):
    (tmp_path / "beside.py").write_text("ANSWER = 42\n")
    monkeypatch.chdir(tmp_path)

    def answer():
        import beside

        return beside.ANSWER, str(Path.cwd())

    found = ray.launch(answer, 2, upload_cwd=True).results()
    assert [value for value, _ in found] == [42, 42]
    assert all(cwd != str(tmp_path) for _, cwd in found)


def test_a_connection_of_ones_own_says_where_and_what_is_sent(cluster, tmp_path):
    import ray

    (tmp_path / "beside.txt").write_text("42")
    job = None
    ray.init(
        cluster.address,
        log_to_driver=False,
        logging_level="ERROR",
        runtime_env={"working_dir": str(tmp_path), "env_vars": {"OWN": "x"}},
    )
    try:
        job = distlab.launch(
            lambda: (Path("beside.txt").read_text(), os.environ["OWN"]), 2, engine="ray"
        )
        assert job.results() == [("42", "x")] * 2
    finally:
        ray.shutdown()


# Errors.


def test_one_error_with_every_traceback_the_first_one_first(ray, tmp_path):
    def fail():
        print("about to")
        if os.environ["RANK"] == "1":
            raise KeyError("gone")
        try:
            time.sleep(600)
        finally:
            raise ValueError("after it")

    with pytest.raises(distlab.RankError) as caught:
        ray.launch(fail, 2).results()
    error = caught.value
    assert error.failures[0].what == "KeyError: 'gone'"
    assert 'raise KeyError("gone")' in error.failures[0].traceback
    assert error.failures[0].output == "about to"
    assert str(error).startswith("rank 1 of 2 failed: KeyError: 'gone'")
    both = [failure.rank for failure in (*error.failures, *error.others)]
    assert both == [1, 0]


def test_a_crash_and_the_limit_of_restarts(ray, tmp_path):
    def crash():
        if os.environ["RANK"] == "0":
            os.kill(os.getpid(), signal.SIGSEGV)
        time.sleep(600)

    job = ray.launch(crash, 2, checkpoint=tmp_path / "state", max_restarts=1)
    with pytest.raises(distlab.RankError, match="rank 0 of 2 was ended by SIGSEGV"):
        job.results()
    assert len(job.restart_reasons) == 1
    assert max(status.attempt for status in job.status) == 1


def test_a_timeout_shows_where_ranks_are(ray):
    job = ray.launch(sleeper, 2, timeout=4)
    wait_for_all(job)
    for timeout, words in (0.1, "not over after 0.1 s of waiting"), (None, "its timeout of 4 s"):
        with pytest.raises(distlab.JobTimeoutError, match=words) as caught:
            job.results(timeout=timeout)
        stacks = [failure.traceback for failure in caught.value.failures]
        assert [stack.count("in sleeper") for stack in stacks] == [1, 1]
    assert states(job) == ["stopped", "stopped"]


# Steering.


def test_kill_pause_and_resume_one_rank(ray, tmp_path):
    go = tmp_path / "go"

    def count():
        number = 0
        while not go.exists():
            print(number := number + 1)
            time.sleep(0.005)
        return "survived"

    job = ray.launch(count, 2)
    wait_for_all(job, "3")
    job.pause(0)
    assert states(job) == ["paused", "running"]
    job.resume(0)
    last = len(job.log(0).splitlines())
    job.wait_for_output(0, str(last + 50))
    job.kill(1)
    assert states(job) == ["running", "killed"]
    go.touch()
    with pytest.raises(distlab.RankError, match="rank 1 of 2 was killed by"):
        job.results()
    assert job.partial_results == ["survived", None]


def test_a_restart_keeps_the_places_and_a_cancel_gives_them_back(ray):
    with ray.launch(sleeper, 2) as job:
        wait_for_all(job)
        with ray.launch(sleeper, 4, placement_timeout=None) as other:
            assert other._client.ready.wait(60)
            job.restart()
            wait_for_all(job)
            assert [status.attempt for status in job.status] == [1, 1]
            assert [job.log(0, attempt) for attempt in range(2)] == ["here 0\n"] * 2
            assert (states(job), states(other)) == (["running"] * 2, ["starting"] * 4)
            with pytest.raises(RuntimeError, match="On Ray a group cannot be joined by one rank"):
                job.restart(1)
            job.cancel()
            assert states(job) == ["stopped"] * 2
            with pytest.raises(distlab.RankError, match=r"^The job was cancelled\."):
                job.results()
            wait_for_all(other)
        assert states(other) == ["stopped"] * 4
    assert ray.cluster.taken() == 0


# What only a cluster has.


def test_no_room(ray):
    waiting = ray.launch(sleeper, 5)
    assert waiting._client.ready.wait(60)
    waiting.cancel()
    assert states(waiting) == ["stopped"] * 5
    job = ray.launch(sleeper, 5, placement_timeout=0.5)
    with pytest.raises(distlab.RankError, match="Ray has no room for 5 ranks") as caught:
        job.results()
    assert caught.value.failures == []


def test_nobody_at_the_address():
    job = distlab.launch(sleeper, 1, engine=distlab.Ray(address="127.0.0.1:1"))
    with pytest.raises(distlab.RankError, match=r"Could not join Ray at '127\.0\.0\.1:1'"):
        job.results()


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
        assert "The job cannot go on on Ray: OSError: [Errno 28] No space left on device" in error
        assert kernel.process.wait(60) == 0
    assert ray.cluster.taken() == 0


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
    with pytest.raises(ValueError, match="On Ray all ranks start together: leave start= out"):
        distlab.launch(sleeper, 2, engine="ray", start=[0])


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
    assert ray.cluster.taken() == 0


# From here on the cluster has one node.


def test_a_job_goes_on_from_its_checkpoint_without_a_lost_node(ray, tmp_path):
    require("torch")
    saved, go = tmp_path / "state", tmp_path / "go"

    def train(steps):
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo")
        state = torch.load(saved) if saved.exists() else {"step": 0, "weight": torch.zeros(1)}
        first = state["step"]
        while state["step"] < steps:
            gradient = torch.ones(1) * (dist.get_rank() + state["step"])
            dist.all_reduce(gradient)
            state = {"step": state["step"] + 1, "weight": state["weight"] + gradient}
            with distlab.checkpoints.replacing(saved) as partial:
                torch.save(state, partial)
            if state["step"] == 3 and first == 0:
                print("waiting")
                while not go.exists():  # where it is when the node goes
                    time.sleep(0.01)
        return first, float(state["weight"])

    with ray.launch(train, 2, "torch", args=[6], checkpoint=saved) as job:
        wait_for_all(job, "waiting")
        ray.cluster.remove_node()
        assert job.results() == [(3, float(sum(1 + 2 * step for step in range(6))))] * 2
        assert {status.node for status in job.status} == {"127.0.0.2"}
    (reason,) = job.restart_reasons
    assert "was lost on 127.0.0.3: " in reason
