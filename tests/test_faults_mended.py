"""What once went wrong when something around a job failed: results lost, waiting for ever."""

import os
import shutil
import sys
import threading
from pathlib import Path

import psutil
import pytest
from _processes import Kernel, can, wait_gone
from msgspec.structs import replace

import distlab
from distlab.launching import doctor
from distlab.launching.kernel.client import LocalClient, client_for
from distlab.launching.protocol.messages import Launch, Over
from distlab.launching.protocol.tasks import Part, Task
from distlab.launching.supervisor import resources

linux = pytest.mark.skipif(sys.platform != "linux", reason="namespaces and /proc are Linux' own")


# Results and logs.

KEPT = """
import contextlib, gc, io
def work(word):
    print("said", word)
    return [word] * 2
def launch(word):
    job = distlab.launch(work, 1, args=[word], env={"OMP_NUM_THREADS": str(word)})
    with contextlib.redirect_stdout(io.StringIO()):
        job.follow()  # to its end, without a look at its results
    return job
"""


def test_results_and_logs_of_jobs_whose_supervisor_had_to_go():
    code = (
        KEPT
        + """
jobs = [launch(word) for word in range(1, 9)]
directories = [str(job._client.directory) for job in jobs]
say([len(supervisors()), directories])
attempt(jobs[0].restart)
say([[job.partial_results, job.log(0)] for job in jobs])
jobs[7].restart()
say(jobs[7].results())
del jobs[:2]
gc.collect()
hear()
deadline = time.monotonic() + 10
while any(map(os.path.exists, directories[:2])) and time.monotonic() < deadline:
    time.sleep(0.01)
say([os.path.exists(directory) for directory in directories])
"""
    )
    with Kernel(code) as kernel:
        supervisors, directories = kernel.heard()
        assert supervisors == 6
        kind, refusal = kernel.heard()
        assert kind == "RuntimeError"
        assert refusal.startswith("The job cannot be started again. ")
        assert "6 others, for other frameworks or variables, have been used since" in refusal
        assert kernel.heard() == [[[[n, n]], f"said {n}\n"] for n in range(1, 9)]
        assert kernel.heard() == [[8, 8]]
        kernel.tell()
        assert kernel.heard() == [False, False, *[True] * 6]
        assert kernel.process.wait(20) == 0
    assert not any(map(os.path.exists, directories))


def test_results_and_logs_of_a_job_whose_supervisor_was_killed():
    code = (
        KEPT
        + """
job = launch(3)
say([supervisors(), str(job._client.directory)])
hear()
job._client._thread.join()
say([job.partial_results, job.log(0)])
attempt(job.restart)
say([job.partial_results, job.log(0)])
job.cancel()
"""
    )
    with Kernel(code) as kernel:
        (supervisor,), directory = kernel.heard()
        os.kill(supervisor, 9)
        kernel.tell()
        assert kernel.heard() == [[[3, 3]], "said 3\n"]
        kind, refusal = kernel.heard()
        assert kind == "RuntimeError"
        assert "cannot be started again. " in refusal and "was ended by SIGKILL" in refusal
        assert kernel.heard() == [[[3, 3]], "said 3\n"]
        assert kernel.process.wait(20) == 0
    assert not Path(directory).exists()


# What cannot be started.


def test_an_interpreter_that_cannot_be_run():
    code = """
own, sys.executable = sys.executable, sys.argv[0] + "nowhere"
job = distlab.launch(print, 2)
attempt(lambda: job.results(20))
say([s.state for s in job.status])
job.cancel()
sys.executable = own
say(distlab.run(lambda: 5, 2))
"""
    with Kernel(code) as kernel:
        kind, message = kernel.heard()
        assert kind == "RankError"
        assert "watches the ranks could not be started: FileNotFoundError" in message
        assert kernel.heard() == ["lost", "lost"]
        assert kernel.heard() == [5, 5]


# Who listens, and who speaks.


class Followers:
    """Listens to one job; breaks at its first event if told to."""

    def __init__(self, broken: bool) -> None:
        self.broken = broken
        self.said = threading.Event()
        self.words = ""

    def _on_event(self, event) -> None:
        if self.broken:
            raise OSError(28, "No space left on device")
        if isinstance(event, Over):
            self._on_lost(event.how)

    def _on_lost(self, why: str) -> None:
        self.words = why
        self.said.set()


def test_a_listener_that_breaks_loses_its_job_and_no_other():
    client = LocalClient(None, sys.platform == "linux", dict(os.environ))
    listeners = [Followers(True), Followers(False)]
    for listener in listeners:
        name, directory = client.new_job()
        script = directory / "script.py"
        script.touch()
        tasks = [Task("worker", 0)]
        launch = Launch(job=name, tasks=tasks, ranks=[0], script=str(script), cwd="/", path=[])
        client.send(listener, replace(launch, directory=str(directory)))
    for listener in listeners:
        assert listener.said.wait(20)
    assert listeners[0].words.endswith("any more: OSError: [Errno 28] No space left on device")
    assert listeners[1].words == "done"
    client.close()


SHOUT = """
def shout():
    for descriptor in range(3, 64):  # one of them is what ranks tell their supervisor by
        try:
            os.write(descriptor, b"this is no message\\n")
        except OSError:
            pass
    return 5
say(distlab.run(shout, 2, start_method="spawn"))
job = distlab.launch(time.sleep, 2, args=[600], start_method="spawn")
job._client._socket.sendall(b"nor is this\\n")
attempt(job.results)
say(distlab.run(lambda: 5, 2, start_method="spawn"))
"""


def test_what_a_supervisor_does_not_understand():
    """From a rank it is noted; from the kernel it is an error, which the job's error shows."""
    with Kernel(SHOUT) as kernel:
        assert kernel.heard() == [5, 5]
        kind, error = kernel.heard()
        assert kind == "RankError"
        assert "started and watched the ranks exited with status 1.\n" in error
        assert "Not a word of a rank's: b'this is no message'" in error
        assert "in _on_request" in error
        assert "msgspec.DecodeError: JSON is malformed" in error
        assert kernel.heard() == [5, 5]


def test_what_an_optimizer_sets_in_the_kernel_starts_no_second_supervisor():
    """torch.optim sets TORCHINDUCTOR_CACHE_DIR, and the next job waited for an import of torch."""
    before = dict(os.environ)
    first = client_for(None, True, before)
    assert client_for(None, True, before | {"TORCHINDUCTOR_CACHE_DIR": "anywhere"}) is first
    assert first.lost is None


def test_what_keras_sets_in_the_kernel_starts_a_second_supervisor_of_tensorflow_only():
    """A notebook that warmed PyTorch and then imported Keras waited for both imports once more."""
    before = {k: v for k, v in os.environ.items() if not k.startswith("TF_")}
    after = before | {"TF_CPP_MIN_LOG_LEVEL": "1", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    assert client_for(None, False, after) is client_for(None, False, before)
    first = client_for("tensorflow", False, before)
    assert client_for("tensorflow", False, after) is not first
    # Importing TensorFlow sets the first one, a ParameterServerStrategy the second.
    after = before | {"TF2_BEHAVIOR": "1", "TF_PS_DISABLE_ASYNC_EXECUTOR_GLOBALLY": "True"}
    assert client_for("tensorflow", False, after) is first


def test_output_is_waited_for_while_a_job_starts_again(tmp_path):
    saved = tmp_path / "state"

    def work():
        if saved.exists():
            print("second time", flush=True)
            return 1
        saved.touch()
        raise ValueError("x" * 30_000_000)  # whose account takes a while

    job = distlab.launch(work, 1, checkpoint=saved)
    assert job.wait_for_output(0, "second") == "second time"
    assert job.results() == [1]
    assert len(job.restart_reasons) == 1


# Variables.

TOLD = {
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "3",
    "SLURM_NODEID": "0",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_TASKS_PER_NODE": "4",
    "SLURM_STEP_NODELIST": "here",
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "PMI_RANK": "3",
    "PMI_SIZE": "4",
    "PMIX_RANK": "3",
    "MPI_LOCALRANKID": "3",
    "MPI_LOCALNRANKS": "4",
    "SUBMITIT_LOCAL_GLOBALID": "3",
    "SUBMITIT_LOCAL_NTASKS": "4",
}


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_a_kernel_that_is_a_task_itself(start_method):
    code = f"""
def who():
    info = distlab.rank_info()
    return [info.rank, info.world_size, info.local_rank, info.launcher]
say(distlab.rank_info().rank)
say(distlab.run(who, 2, start_method={start_method!r}))
"""
    with Kernel(code, **TOLD) as kernel:
        assert kernel.heard() == 3
        assert kernel.heard() == [[0, 2, 0, "distlab"], [1, 2, 1, "distlab"]]


def test_variables_of_any_letters():
    env = {"PS1": "\033[1m", "BACKSLASH": "\\0", "LINES": "a\nb", "ä": "ö"}

    def read():
        return {name: os.environ[name] for name in env}

    assert distlab.run(read, 1, env=env) == [env]
    for bad in ({"A": "b\0"}, {"A\0": "b"}, {"A=B": "c"}, {"": "c"}):
        with pytest.raises(ValueError, match="no '=' or NUL in a name, no NUL in a value"):
            distlab.launch(read, 1, env=bad)


# Shares of a node.


def test_the_ranks_of_a_node_share_its_gpus(monkeypatch):
    def shown(*ranks: int) -> list[str]:
        part = Part(list(ranks), "", 0, 1)
        shares = [resources.share(rank, part, "jax", {}) for rank in ranks]
        return [each["CUDA_VISIBLE_DEVICES"] for each in shares]

    monkeypatch.setattr(resources, "visible_gpus", lambda _: list("0123"))
    assert shown(0, 1, 2, 3) == ["0", "1", "2", "3"]
    assert shown(0, 1, 2, 3, 4) == ["-1"] * 5
    assert shown(4, 6) == ["0", "1"]  # they need not be the job's first ones


def test_cores_of_a_container(tmp_path, subtests):
    bound = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count()
    cases = [
        ({"cpu.max": "max 100000\n"}, bound),
        ({"cpu.max": "100000 100000\n"}, 1),
        ({"cpu.max": "150000 100000\n"}, min(2, bound)),
        ({"cpu.max": "1000 100000\n"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, bound),
        ({"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 1),
        ({}, bound),
    ]
    for number, (files, expected) in enumerate(cases):
        with subtests.test(files=files):
            groups = tmp_path / str(number)
            for name, text in files.items():
                (groups / name).parent.mkdir(parents=True, exist_ok=True)
                (groups / name).write_text(text)
            assert resources.core_count(groups) == expected


def test_cores_of_this_machine_are_those_that_joblib_counts(monkeypatch):
    joblib = pytest.importorskip("joblib")
    monkeypatch.delenv("LOKY_MAX_CPU_COUNT", raising=False)
    assert resources.core_count() == joblib.cpu_count()


# Directories of others.


@linux
@pytest.mark.skipif(not can("unshare", "--pid", "--fork"), reason="needs namespaces")
def test_a_job_in_a_container_is_left_alone_by_the_doctor(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code = """
job = distlab.launch(lambda: (print("here", flush=True), time.sleep(600)), 2)
for rank in range(2):
    job.wait_for_output(rank, "here")
say(str(job._client.directory))
hear()
"""
    contained = ["unshare", "--pid", "--fork", "--kill-child"]
    with Kernel(code, by=contained) as kernel:
        directory = Path(kernel.heard())
        ours = {child.pid for child in psutil.Process(kernel.process.pid).children(recursive=True)}
        running, lying = doctor.leftovers()
        assert directory not in lying
        assert len(ours) >= 4 and not ours & {process.pid for process in running}
        kernel.process.kill()
        assert wait_gone(ours, 10) == []
    shutil.rmtree(directory, ignore_errors=True)  # the keeper was in the container, too


def test_making_an_optimizer_imports_nothing_in_a_rank():
    """Each rank of each job spent a second on it."""

    def imported():
        import sys

        import torch

        before = set(sys.modules)
        torch.optim.SGD([torch.zeros(1)])
        return sorted(set(sys.modules) - before)

    assert distlab.run(imported, 2, "torch") == [[], []]
