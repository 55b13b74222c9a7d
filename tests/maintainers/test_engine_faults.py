"""What goes wrong around a job on another engine: each ends it, with the cause, in good time."""

import contextlib
import json
import logging
import os
import pickle
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from _processes import Kernel, can, require, wait_gone
from _slurm import poll, slurm

import distlab
from distlab.launching.engines import ray_session
from distlab.launching.engines.base import Engine, PartLostError
from distlab.launching.protocol.messages import Finish, Launch
from distlab.launching.protocol.tasks import Part

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.2 is Linux' own")
needs_slurm = pytest.mark.needs("slurm")
needs_ray = pytest.mark.needs("ray")
BOUND = 25
"""Seconds within which everything has come to its end, also where it goes wrong."""


# An engine of one's own: a process for each rank's node, on this machine.

NODE = """
import os, pickle, sys, threading
from distlab.launching.engines.remote_supervisor import RemoteSupervisor
answers = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)
node = RemoteSupervisor(*pickle.load(sys.stdin.buffer))
def tell():
    while True:
        for event in node.receive(0.5):
            pickle.dump(event, answers)
            answers.flush()
threading.Thread(target=tell, daemon=True).start()
try:
    while True:
        node.send(*pickle.load(sys.stdin.buffer))
except EOFError:
    node.close()
"""


class OwnPlace:
    """One rank's node.

    Args:
        part: The rank.
        command: What to start the node by.
        work: What it is for.
        late: Hold back the word that the others have come to an end, until `release`.
    """

    def __init__(self, part, command, work, late=False):
        self.part = part
        self.name = f"node {part.node}"
        self.late = late
        self.held = []
        launch = work.launch
        self._target = (Path(launch.directory) / "target").read_bytes()
        self.process = subprocess.Popen(
            [*command, sys.executable, "-c", NODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._write((launch.framework, work.fork, launch.overrides, work.settings))

    def _write(self, words):
        try:
            pickle.dump(words, self.process.stdin)
            self.process.stdin.flush()
        except (OSError, ValueError) as error:  # it has ended, or was closed
            raise PartLostError("was lost with its process") from error

    def send(self, request):
        if self.late and isinstance(request, Finish):
            self.held.append(request)
        else:
            self._write((request, self._target if isinstance(request, Launch) else None))

    def receive(self):
        try:
            return [pickle.load(self.process.stdout)]
        except EOFError:
            raise PartLostError("was lost with its process") from None

    def go_on(self):
        self.late = False
        with contextlib.suppress(PartLostError):  # it may have come to its end by itself
            for request in self.held:
                self.send(request)

    def close(self):
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self.process.wait()


class OwnPlacement:
    def __init__(self, places, failing):
        self.places = places
        self._failing = failing

    def release(self):
        for place in self.places:
            place.close()
        if self._failing:
            raise ConnectionError("the cluster does not answer")


class Own(Engine):
    """Places each rank on a node of its own.

    Args:
        failing: Whether no place can be given back.
        commands: What the node of each rank is started by.
        late: Ranks that do not hear at once that others have come to their end.
        gate: Set it to have places found.
        environment: For the nodes.
    """

    def __init__(self, failing=False, commands=None, late=(), gate=None):
        self.failing = failing
        self.commands = commands or {}
        self.late = late
        self.gate = gate
        self.looking = threading.Event()
        self.places = []

    def check(self, count):
        pass

    def place(self, work, cancelled):
        self.looking.set()
        if self.gate is not None:
            assert self.gate.wait(60)
        count = len(work.launch.tasks)
        self.places = [
            OwnPlace(
                Part([rank], "127.0.0.1", rank, count, [rank]),
                self.commands.get(rank, []),
                work,
                late=rank in self.late,
            )
            for rank in range(count)
        ]
        return OwnPlacement(self.places, self.failing)


def sleeper():
    print("here", flush=True)
    time.sleep(600)


def ended(job):
    """The error of a job that comes to its end within a time."""
    with pytest.raises(distlab.RankError) as caught:
        job.results(BOUND)
    assert not isinstance(caught.value, distlab.JobTimeoutError)
    assert job.done()
    return str(caught.value)


LEFT = "The places of its ranks could not be given back: ConnectionError: the cluster does not"


def test_places_that_cannot_be_given_back_after_a_failure():
    def fail():
        raise ValueError("no such number")

    job = distlab.launch(fail, 2, engine=Own(failing=True))
    error = ended(job)
    assert LEFT in error
    assert "ValueError: no such number" in error
    job.cancel()


def test_places_that_cannot_be_given_back_after_success(caplog):
    with caplog.at_level(logging.WARNING, "distlab"):
        job = distlab.launch(lambda: int(os.environ["RANK"]), 2, engine=Own(failing=True))
        assert job.results(BOUND) == [0, 1]
    assert LEFT in caplog.text


def test_places_that_cannot_be_given_back_when_stopped():
    job = distlab.launch(sleeper, 2, engine=Own(failing=True))
    for rank in range(2):
        job.wait_for_output(rank, "here")
    job.cancel()
    assert LEFT in ended(job)


def test_places_that_were_found_too_late_and_cannot_be_given_back(caplog):
    gate = threading.Event()
    engine = Own(failing=True, gate=gate)
    job = distlab.launch(sleeper, 2, engine=engine)
    assert engine.looking.wait(BOUND)
    stopping = threading.Thread(target=job.stop)
    stopping.start()
    assert job._client._cancelled.wait(BOUND)
    with caplog.at_level(logging.WARNING, "distlab"):
        gate.set()
        stopping.join(BOUND)
    assert not stopping.is_alive() and job.done()
    assert [status.state for status in job.status] == ["stopped", "stopped"]
    assert "nobody wants any more: ConnectionError: the cluster does not answer" in caplog.text


def test_places_that_cannot_be_given_back_for_a_restart(tmp_path):
    engine = Own(failing=True)
    job = distlab.launch(sleeper, 2, engine=engine, checkpoint=tmp_path / "state")
    for rank in range(2):
        job.wait_for_output(rank, "here")
    engine.places[1].process.kill()
    assert LEFT in ended(job)
    assert job.restart_reasons == ["rank 1: was lost with its process"]
    job.cancel()


def test_a_full_disk_where_the_ranks_words_are_kept(tmp_path):
    small = tmp_path / "small"
    large = tmp_path / "large"
    small.mkdir()
    large.mkdir()
    code = f"""
import subprocess
sys.path.insert(0, {str(Path(__file__).parent)!r})
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from test_engine_faults import Own
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", {str(small)!r}], check=True)
os.environ["TMPDIR"] = {str(small)!r}
def work():
    print("x" * 3_000_000, flush=True)
    time.sleep(600)
elsewhere = ["env", "TMPDIR={large}"]
job = distlab.launch(work, 2, engine=Own(commands={{0: elsewhere, 1: elsewhere}}))
try:
    say(job.results({BOUND}))
except distlab.RankError as error:
    say([type(error).__name__, str(error)[-3000:], [s.state for s in job.status]])
job.cancel()
"""
    if not can("unshare", "--mount"):
        pytest.skip("needs the right to mount")
    with Kernel(code, by=["unshare", "--mount"]) as kernel:
        kind, error, states = kernel.heard()
        assert kind == "RankError"
        assert "was lost: OSError: [Errno 28] No space left on device" in error
        assert "lost" in states
        assert kernel.process.wait(BOUND) == 0
    assert list(large.iterdir()) == []


# Who failed first.


@pytest.mark.skipif(not can("unshare", "--time"), reason="needs clocks of one's own")
def test_the_first_to_fail_is_named_first_whatever_the_clocks_of_the_nodes_say(tmp_path):
    word = tmp_path / "word"

    def fail():
        import pathlib

        while os.environ["RANK"] == "0" and not pathlib.Path(word).exists():
            time.sleep(0.01)
        raise ValueError(f"of rank {os.environ['RANK']}")

    ahead = ["unshare", "--time", "--monotonic", "100000", "--fork", "--kill-child"]
    engine = Own(commands={1: ahead}, late=[0])
    job = distlab.launch(fail, 2, engine=engine)
    deadline = time.monotonic() + BOUND
    while job.status[1].failed is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    word.touch()
    while job.status[0].failed is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    engine.places[0].go_on()
    with pytest.raises(distlab.RankError, match="rank 1 of 2 failed: ValueError: of rank 1") as e:
        job.results(BOUND)
    assert [failure.rank for failure in e.value.failures] == [1, 0]


# A job that is over.


def test_a_rank_of_a_job_that_is_over_cannot_be_started_again():
    job = distlab.launch(lambda: 5, 2, engine=Own())
    assert job.results(BOUND) == [5, 5]
    with pytest.raises(RuntimeError, match="the places of its ranks were given back"):
        job.restart(1)
    job.cancel()
    assert job.partial_results == [5, 5]
    job.restart()
    assert job.results(BOUND) == [5, 5]


# Slurm.


@pytest.fixture(scope="module")
def cluster():
    with slurm() as started:
        yield started


@pytest.fixture
def in_slurm(cluster):
    yield distlab.Slurm(nodes=2)
    poll(lambda: cluster.jobs() == [], "Slurm has jobs still")


def test_an_srun_that_cannot_be_started(tmp_path, monkeypatch):
    srun = tmp_path / "srun"
    srun.write_text("#!/nowhere/sh\n")
    srun.chmod(0o755)
    for name in ("sh", "rm", "sleep", "setpriv"):  # and no other srun
        (tmp_path / name).symlink_to(shutil.which(name))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    job = distlab.launch(sleeper, 2, engine="slurm")
    nowhere = "FileNotFoundError: [Errno 2] No such file or directory: 'srun'"
    assert nowhere in ended(job)
    monkeypatch.setenv("SLURM_JOB_ID", "1")  # within an allocation it is not asked first
    job = distlab.launch(sleeper, 2, engine="slurm")
    error = ended(job)
    assert "Slurm did not start the ranks: " in error and "failed to execute srun" in error
    (tmp_path / "setpriv").unlink()
    job = distlab.launch(sleeper, 2, engine="slurm")
    assert f"Slurm did not start the ranks: {nowhere}" in ended(job)
    job.cancel()


@needs_slurm
def test_a_prolog_that_prints(in_slurm, tmp_path):
    prolog = tmp_path / "prolog"
    options = [f"--task-prolog={prolog}"]
    prolog.write_text("#!/bin/sh\necho 'print Welcome to {this} node: it has 8 CPUs.'\n")
    prolog.chmod(0o755)
    engine = distlab.Slurm(nodes=2, options=options)
    assert distlab.run(lambda: int(os.environ["RANK"]), 2, engine=engine) == [0, 1]
    prolog.write_text("#!/bin/sh\nprintf 'print \\035{Welcome}\\036\\n'\n")  # as if it were one
    job = distlab.launch(sleeper, 2, engine=engine)
    assert "a task has said what is no message, or its prolog has: b'\\x1d{Welcome}" in ended(job)
    job.cancel()


CHIEF = """
import json, pathlib, distlab
from distlab import checkpoints
info = distlab.rank_info()
alone = checkpoints.is_chief()
info.prepare("jax")
with checkpoints.replacing("{folder}/saved") as own:
    said = [info.rank, alone, checkpoints.is_chief(), str(own)]
    pathlib.Path("{folder}", f"said.{{info.rank}}").write_text(json.dumps(said))
    own.touch()
"""


def assert_one_chief(folder):
    # Each rank has written a file: a launcher may join the lines of several ranks.
    said = [json.loads((folder / f"said.{rank}").read_text()) for rank in range(3)]
    chiefs = [(rank, alone, prepared) for rank, alone, prepared, _ in said]
    assert chiefs == [(0, True, True), (1, False, False), (2, False, False)]
    assert len({place for *_, place in said}) == 3


@needs_slurm
@pytest.mark.parametrize("nodes", [1, 2])
def test_one_chief_under_srun(cluster, tmp_path, nodes):
    require("jax")
    code = CHIEF.format(folder=tmp_path)
    srun = ["srun", f"--nodes={nodes}", "--ntasks=3", sys.executable, "-c", code]
    cluster.ask(*srun, timeout=120)
    assert_one_chief(tmp_path)


@pytest.mark.needs("mpi")
def test_one_chief_under_mpirun(tmp_path):
    require("jax")
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "oob_tcp_if_include"]
    mpirun += ["lo", "-n", "3", sys.executable, "-c", CHIEF.format(folder=tmp_path)]
    done = subprocess.run(mpirun, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert_one_chief(tmp_path)


@needs_slurm
def test_a_kernel_that_is_a_task_of_slurm_has_ranks_of_its_own(cluster):
    code = """
import distlab, json
def who():
    info = distlab.rank_info()
    return [info.rank, info.world_size, info.local_rank]
if __name__ == "__main__":
    print(json.dumps([distlab.rank_info().launcher, distlab.run(who, 3, quiet=True)]))
"""
    (line,) = cluster.ask("srun", "--pty", sys.executable, "-c", code).splitlines()
    assert json.loads(line) == ["Slurm", [[0, 3, 0], [1, 3, 1], [2, 3, 2]]]


@needs_slurm
def test_a_rank_of_a_finished_slurm_job(in_slurm):
    job = distlab.launch(lambda: 5, 2, engine=in_slurm)
    assert job.results(60) == [5, 5]
    with pytest.raises(RuntimeError, match="the places of its ranks were given back"):
        job.restart(0)
    job.cancel()
    assert job.partial_results == [5, 5]


# A cluster of Ray's that distlab starts.

IN_RAY = """
import psutil
job = distlab.launch(lambda: (print("here", flush=True), time.sleep(600)), 2, engine="ray")
try:
    for rank in range(2):
        job.wait_for_output(rank, "here", 200)
except distlab.RankError as error:
    say(str(error))
import ray
below = [psutil.Process(), *psutil.Process().children(recursive=True)]
found = []
for process in below:
    try:
        found += [[s.laddr.ip, s.laddr.port, process.name()]
            for s in process.net_connections("inet") if s.status == "LISTEN"]
    except psutil.Error:
        pass
say([ray.get_runtime_context().gcs_address, found, [p.pid for p in below]])
hear()
job.cancel()
"""
STRANGE = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # or it would ask at another address
    "RAY_py_gcs_connect_timeout_s": "2",
}
STRANGER = """
import sys, ray
try:
    ray.init(sys.argv[1], log_to_driver=False)
except Exception as error:
    print("refused", type(error).__name__, str(error)[:2000])
else:
    print("let in", ray.nodes())
"""


@needs_ray
def test_a_ray_whose_node_does_not_come_up_is_started_once_more(monkeypatch):
    keepers = []
    hear = ray_session._hear

    def hear_second(keeper):
        keepers.append(keeper)
        if len(keepers) == 1:
            raise RuntimeError("Exception: The current node timed out during startup.")
        return hear(keeper)

    monkeypatch.setattr(ray_session, "_hear", hear_second)
    assert distlab.run(lambda: 1, 1, engine="ray", quiet=True) == [1]
    first, second = keepers
    assert first.wait(60) == second.wait(60) == 0


@needs_ray
def test_a_ray_started_here_is_closed_to_others(tmp_path):
    long = tmp_path / ("long" * 20)
    long.mkdir()
    with Kernel(IN_RAY, RAY_AUTH_MODE="disabled", TMPDIR=str(long)) as kernel:
        heard = kernel.heard()
        assert len(heard) == 3, heard  # or else it is an error, in words
        address, found, pids = heard
        told = subprocess.run(
            [sys.executable, "-c", STRANGER, address],
            env=os.environ | STRANGE,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert told.stdout.startswith("refused"), told.stdout
        assert "Authentication token is missing or incorrect" in told.stderr
        kernel.tell()
        assert kernel.process.wait(60) == 0
        assert wait_gone(pids, 30) == []
    assert {ip.removeprefix("::ffff:") for ip, *_ in found} == {"127.0.0.1"}, found
    assert len(str(long)) > 60
    assert list(long.iterdir()) == []
