"""Nothing outlives its kernel: whatever is killed, whatever the ranks are doing meanwhile."""

import contextlib
import gc
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest
from _processes import Kernel, family, require, wait_gone

import distlab

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="watches processes through /proc")

SLEEP = "target, options = (lambda: (print('here'), time.sleep(600))), {}"
SPIN = """
def target():
    import ctypes, faulthandler
    print("here")
    pythonapi = ctypes.PyDLL(None)  # calls through it keep the GIL
    pythonapi.pause()
options = {}
"""
IGNORE = """
def target():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    print("here")
    time.sleep(600)
options = {}
"""
CHILDREN = """
def target():
    import multiprocessing, subprocess
    forked = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    forked.start()
    subprocess.Popen(["sleep", "600"])
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    subprocess.Popen("sleep 600 & sleep 600", shell=True, start_new_session=True)
    print("here")
    time.sleep(600)
options = {}
"""
TORCH = """
def target():
    import torch.distributed as dist
    print("here", flush=True)
    dist.init_process_group("gloo")
options = dict(framework="torch", start=[0])
"""
TENSORFLOW = """
def target():
    import tensorflow as tf
    print("here", flush=True)
    tf.distribute.MultiWorkerMirroredStrategy()
options = dict(framework="tensorflow", start=[0])
"""
SITUATIONS = {
    "sleeping": SLEEP,
    "holding the GIL in C": SPIN,
    "ignoring SIGTERM": IGNORE,
    "with children": CHILDREN,
    "in init_process_group": TORCH,
    "in the MultiWorkerMirroredStrategy constructor": TENSORFLOW,
}
WATCH = """
job = distlab.launch(target, 2, start_method={start_method!r}, **options)
started = options.get("start", [0, 1])
for r in started:
    job.wait_for_output(r, "here")
say([os.getpid(), job._client.pid, *(s.pid for s in job.status if s.pid)])
say(str(job._record.directory.parent))
"""
KILL_CASES = [
    (situation, start_method)
    for situation in SITUATIONS
    for start_method in ("fork", "spawn")
    # A fresh rank differs from a forked one in how it starts, whatever it imports then.
    if not (start_method == "spawn" and "framework=" in SITUATIONS[situation])
]


@pytest.mark.parametrize(("situation", "start_method"), KILL_CASES)
def test_a_killed_kernel_takes_everything_along(situation, start_method):
    if situation == "in init_process_group":
        require("torch")
    with Kernel(
        SITUATIONS[situation] + WATCH.format(start_method=start_method) + "hear()"
    ) as kernel:
        pids = kernel.heard()
        directory = Path(kernel.heard())
        pids += family(pids[0])
        kernel.process.send_signal(signal.SIGKILL)
        assert wait_gone(pids, 10) == []
        assert not directory.exists()


def test_a_killed_supervisor_takes_its_ranks_along_and_its_kernel_goes_on(subtests):
    require("torch")
    then = """
hear()
attempt(lambda: job.results(20))
say([s.state for s in job.status])
say(distlab.run(lambda: int(os.environ["RANK"]), 2))
"""
    code = [SITUATIONS[name] + WATCH.format(start_method=how) + then for name, how in KILL_CASES]
    directories = []
    with Kernel(*code, "hear()") as kernel:
        for case in KILL_CASES:
            with subtests.test(case):
                _, supervisor, *ranks = kernel.heard()
                directories.append(Path(kernel.heard()))
                below = family(supervisor)
                os.kill(supervisor, signal.SIGKILL)
                assert wait_gone([supervisor, *ranks, *below], 2.0) == []
                kernel.tell()
                kind, message = kernel.heard()
                assert kind == "RankError"
                assert "that started and watched the ranks was ended by SIGKILL" in message
                assert "lost" in kernel.heard()
                assert kernel.heard() == [0, 1]
        kernel.tell()
        assert kernel.process.wait(10) == 0
    assert not any(map(Path.exists, directories))


def test_a_kernel_killed_while_the_framework_is_imported():
    code = """
job = distlab.launch(print, 2, framework="tensorflow")
while not supervisors()[0]:
    time.sleep(0.001)
say([os.getpid(), *supervisors()])
say(str(job._record.directory.parent))
hear()
"""
    with Kernel(code) as kernel:
        pids = kernel.heard()
        directory = Path(kernel.heard())
        process = psutil.Process(pids[1])
        deadline = time.monotonic() + 30
        while not any("tensorflow" in m.path for m in process.memory_maps()):
            assert time.monotonic() < deadline
        kernel.process.send_signal(signal.SIGKILL)
        assert wait_gone(pids, 10) == []
        assert not directory.exists()


def test_a_cluster_that_ends_all_it_knows_by_a_variable_leaves_nothing():
    mark = str(os.getpid())
    code = SLEEP + WATCH.format(start_method="fork") + "hear()"
    with Kernel(code, DISTLAB_TEST_MARK=mark) as kernel:
        pids = kernel.heard()
        directory = Path(kernel.heard())
        doomed = [kernel.process.pid, *family(kernel.process.pid)]
        marked = [p for p in doomed if psutil.Process(p).environ().get("DISTLAB_TEST_MARK") == mark]
        assert set(pids) <= set(marked)
        for pid in marked:
            with contextlib.suppress(ProcessLookupError):  # the first one's end ends others
                os.kill(pid, signal.SIGKILL)
        assert wait_gone(doomed, 10) == []
    assert not directory.exists()


def test_a_kernel_killed_as_soon_as_there_is_a_directory(tmp_path):
    code = """
def end(frame, event, argument):
    if event == "c_return" and argument is os.mkdir:
        os.kill(os.getpid(), signal.SIGKILL)
sys.setprofile(end)
distlab.launch(print, 2)
"""
    with Kernel(code, TMPDIR=str(tmp_path)) as kernel:
        assert kernel.process.wait(20) == -signal.SIGKILL
    deadline = time.monotonic() + 10
    while left := [*tmp_path.iterdir()]:
        assert time.monotonic() < deadline, left
        time.sleep(0.01)


def test_a_path_that_leads_nowhere_any_more_leaves_nothing(tmp_path):
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("sh", "rm", "sleep"):
        (programs / name).symlink_to(shutil.which(name))
    with Kernel(SLEEP + WATCH.format(start_method="fork") + "hear()", PATH=str(programs)) as kernel:
        pids = kernel.heard()
        directory = Path(kernel.heard())
        doomed = [kernel.process.pid, *family(kernel.process.pid)]
        shutil.rmtree(programs)
        for pid in pids:  # the supervisor, too, which would remove it
            with contextlib.suppress(ProcessLookupError):  # the first one's end ends others
                os.kill(pid, signal.SIGKILL)
        assert wait_gone(doomed, 10) == []
    assert not directory.exists()


def test_a_forked_child_of_the_kernel_does_not_keep_ranks_alive():
    code = """
child = os.fork()
if child == 0:
    time.sleep(30)
    os._exit(0)
say(child)
hear()
"""
    with Kernel(SLEEP + WATCH.format(start_method="fork") + code) as kernel:
        pids = kernel.heard()
        directory = Path(kernel.heard())
        child = kernel.heard()
        others = [pid for pid in family(pids[0]) if pid not in pids]
        kernel.process.send_signal(signal.SIGKILL)
        assert wait_gone(pids, 10) == []
        os.kill(child, signal.SIGKILL)
        assert wait_gone(others, 10) == []  # one of them removes the directory
        assert not directory.exists()


@pytest.mark.parametrize("ending", ["pass", "sys.exit(3)", "raise ValueError", "os._exit(0)"])
def test_a_kernel_that_ends_by_itself_leaves_nothing(ending):
    with Kernel(SLEEP + WATCH.format(start_method="fork") + f"hear()\n{ending}") as kernel:
        pids = kernel.heard()
        directory = Path(kernel.heard())
        pids += family(pids[0])  # one of them removes the directory
        kernel.tell()
        assert wait_gone(pids, 10) == []
        assert not directory.exists()


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_an_interrupt_stops_the_job_waited_for_and_nothing_else(start_method):
    code = f"""
def stubborn():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("here")
    time.sleep(600)
handler = signal.getsignal(signal.SIGINT)
job = distlab.launch(stubborn, 2, start_method={start_method!r})
for r in range(2):
    job.wait_for_output(r, "here")
say_when_waiting(pids(job))
try:
    job.results()
except KeyboardInterrupt:
    say("interrupted")
assert signal.getsignal(signal.SIGINT) is handler
say(supervisors())
say(distlab.run(lambda: 5, 1, start_method={start_method!r}))
say(supervisors())
"""
    with Kernel(code) as kernel:
        ranks = kernel.heard()
        started = time.monotonic()
        kernel.process.send_signal(signal.SIGINT)
        assert kernel.heard() == "interrupted"
        assert time.monotonic() - started < 10
        assert wait_gone(ranks, 0.0) == []
        before = kernel.heard()
        assert kernel.heard() == [5]
        assert kernel.heard() == before


def test_an_interrupt_while_the_framework_is_imported():
    require("torch")
    code = """
job = distlab.launch(print, 2, framework="torch")
say_when_waiting("waiting")
try:
    job.results()
except KeyboardInterrupt:
    say([s.state for s in job.status])
say(distlab.run(lambda: 5, 1, framework="torch"))
"""
    with Kernel(code) as kernel:
        assert kernel.heard() == "waiting"
        started = time.monotonic()
        kernel.process.send_signal(signal.SIGINT)
        assert kernel.heard() == ["stopped", "stopped"]
        assert time.monotonic() - started < 10
        assert kernel.heard() == [5]


def test_what_a_rank_started_ends_with_the_job():
    code = """
def target():
    import subprocess
    subprocess.Popen(["sleep", "600"])
    subprocess.Popen("sleep 600 & sleep 600", shell=True, start_new_session=True)
    print("here")
    return 1
say(distlab.run(target, 2, quiet=True))
hear()
"""
    with Kernel(code) as kernel:
        assert kernel.heard() == [1, 1]
        below = [psutil.Process(pid).cmdline() for pid in family(kernel.process.pid)]
        # The supervisor with its ranks ahead, and what removes its directory.
        assert {command[0] for command in below} == {sys.executable, "sh"}


def test_the_code_that_tensorflow_generates_goes_with_its_job(tmp_path):
    def target():
        import tensorflow as tf

        @tf.function
        def doubled(x):
            if x > 0:  # AutoGraph writes this anew, to a file
                x = 2 * x
            return x

        assert doubled(tf.constant(2)) == 4
        print("traced", flush=True)
        time.sleep(600)

    job = distlab.launch(target, 1, "tensorflow", env={"TMPDIR": str(tmp_path)})
    job.wait_for_output(0, "traced")
    job.kill(0)
    directory = job._record.directory
    assert len(list(directory.glob("__autograph_generated_file*.py"))) > 0
    assert list(tmp_path.iterdir()) == []
    del job
    gc.collect()
    distlab.run(int, 1, "tensorflow", env={"TMPDIR": str(tmp_path)})  # the next one clears up
    assert not directory.exists()


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_a_rank_that_has_returned_and_does_not_end_is_ended(start_method):
    code = f"""
import logging
from distlab.launching import processes
plain = processes.python
def impatient(module, *arguments):
    *python, program = plain(module)
    patience = "from distlab.launching.supervisor import job; job.LEAVING = 0.5; "
    return [*python, program.replace("entry()", patience + "entry()"), *arguments]
processes.python = impatient
logged = []
handler = logging.Handler()
handler.emit = lambda record: logged.append(record.getMessage())
logging.getLogger("distlab").addHandler(handler)
def target():
    import threading
    if os.environ["RANK"] == "1":
        threading.Thread(target=threading.Event().wait).start()
    return "returned"
job = distlab.launch(target, 2, start_method={start_method!r})
say(job.results())
say([[s.state, s.exitcode, s.why] for s in job.status])
say(logged)
"""
    with Kernel(code) as kernel:
        assert kernel.heard() == ["returned"] * 2
        (*well, nothing), (*late, why) = kernel.heard()
        assert (well, nothing) == (["done", 0], "")
        assert late == ["done", -signal.SIGKILL]
        assert why == "had returned, did not end within 0.5 s of that and was killed"
        assert kernel.heard() == [f"rank 1 {why}"]
