"""The surface of launching: results, errors, steering, output; forked and spawned ranks alike."""

import atexit
import ctypes
import functools
import importlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from _processes import require
from _ranks import Adder, crash, nap, rank

import distlab
from distlab.errors import brief
from distlab.launching.kernel import client
from distlab.launching.rank_errors import RankFailure, name_ranks

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="watches processes through /proc")


@pytest.fixture(params=["fork", "spawn"])
def start_method(request):
    return request.param


def failure_of(target, nprocs=1, **options) -> distlab.RankError:
    with pytest.raises(distlab.RankError) as caught:
        distlab.run(target, nprocs, quiet=True, **options)
    return caught.value


# Targets.


def test_every_kind_of_function_gives_one_result_per_rank_in_rank_order(start_method):
    offset = 10

    def closure(number, *, twice=False):
        return (rank() + offset + number) * (1 + twice)

    assert distlab.run(rank, 3, start_method=start_method) == [0, 1, 2]
    assert distlab.run(
        closure, 2, args=(1,), kwargs={"twice": True}, start_method=start_method
    ) == [22, 24]
    assert distlab.run(lambda: offset, 1, start_method=start_method) == [10]
    assert distlab.run(Adder(5).add, 2, start_method=start_method) == [5, 6]
    assert distlab.run(functools.partial(closure, 1), 1, start_method=start_method) == [11]
    assert distlab.run(os.path.basename, 1, args=("a/b",), start_method=start_method) == ["b"]


def test_an_edited_and_reloaded_module(tmp_path, monkeypatch, start_method):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    module = f"edited_{start_method}"
    source = tmp_path / f"{module}.py"
    source.write_text("def answer():\n    return 1\n")
    imported = importlib.import_module(module)
    assert distlab.run(imported.answer, 1, start_method=start_method) == [1]
    source.write_text("def answer():\n    return 2  # edited\n")
    importlib.reload(imported)
    assert distlab.run(imported.answer, 1, start_method=start_method) == [2]


def test_a_script_runs_as_python_runs_it(tmp_path, start_method):
    (tmp_path / "beside.py").write_text("value = 7\n")
    script = tmp_path / "script.py"
    script.write_text(
        "import __main__, atexit, json, os, sys\n"
        "import beside\n"
        "from multiprocessing import get_context\n"
        "def double(x): return 2 * x\n"
        "if __name__ == '__main__':\n"
        "    with get_context('spawn').Pool(1) as pool:\n"
        "        doubled = pool.apply(double, (4,))\n"
        "    facts = dict(argv=sys.argv[1:], name=__name__, file=__file__, beside=beside.value,\n"
        "        main=hasattr(__main__, 'double'), first=sys.path[0], doubled=doubled)\n"
        "    print(json.dumps(facts, sort_keys=True))\n"
        "    atexit.register(print, 'at exit')\n"
    )
    python = subprocess.run(
        [sys.executable, str(script), "--lr", "0.1"], capture_output=True, text=True, check=True
    )
    job = distlab.launch(script, 2, args=("--lr", 0.1), start_method=start_method)
    assert job.results() == [None, None]
    assert job.log(0) == job.log(1) == python.stdout


def test_results_of_classes_made_here_are_of_those_classes(start_method):
    class Answer:
        def __init__(self, value):
            self.value = value

    (answer,) = distlab.run(lambda: Answer(42), 1, start_method=start_method)
    assert isinstance(answer, Answer)
    assert answer.value == 42


def test_environment_directories_threads_and_random_numbers(tmp_path, start_method):
    def facts():
        import random
        import tempfile

        return {
            "colour": os.environ["COLOUR"],
            "directory": str(Path.cwd()),
            "temporary": tempfile.gettempdir(),
            "threads": int(os.environ["OMP_NUM_THREADS"]),
            "draw": random.random(),
        }

    cores = len(os.sched_getaffinity(0))
    blue, elsewhere = {"COLOUR": "blue"}, {"TMPDIR": str(tmp_path)}
    three = distlab.run(facts, 3, env=blue, start_method=start_method)
    (one,) = distlab.run(facts, 1, env=blue | elsewhere, cwd=tmp_path, start_method=start_method)
    two = distlab.run(facts, 2, env=blue, start_method=start_method)
    assert one["colour"] == "blue"
    assert one["directory"] == one["temporary"] == str(tmp_path)
    for ranks in ([one], two, three):
        assert {found["threads"] for found in ranks} == {max(1, cores // len(ranks))}
    assert len({found["draw"] for found in [one, *two, *three]}) == 6


def test_torch_ranks_draw_different_random_numbers_and_finalise_nothing_inherited():
    require("torch")

    def look():
        import weakref

        import torch

        finalizers = list(weakref.finalize._registry)
        due = sum(finalizer.atexit for finalizer in finalizers)
        return torch.rand(4).tolist(), len(finalizers), due

    (first, count, due), (second, *_) = distlab.run(look, 2, "torch", quiet=True)
    assert first != second
    assert count > 0  # torch makes some when it is imported; else this shows nothing
    assert due == 0


# Failures.


def test_an_exception_names_its_rank_and_stops_the_others(start_method):
    def train():
        print(f"rank {rank()} was here")
        if rank() == 1:
            raise ValueError("bad input")
        time.sleep(600)

    error = failure_of(train, 3, start_method=start_method)
    text = str(error)
    assert text.startswith("rank 1 of 3 failed: ValueError: bad input")
    assert 'raise ValueError("bad input")' in text
    assert "stopped: ranks 0 and 2" in text
    assert [f.rank for f in error.failures] == [1]
    assert [o.rank for o in error.others] == [0, 2]
    assert "rank 1 was here" in error.failures[0].output
    assert str(Path(distlab.__file__).parent) not in text


def wait_until(condition):
    while not condition():
        time.sleep(0.01)


def fail_together(kind, message="the same", differ=False):
    """Fail on ranks 0 and 1 at once; the others sleep."""
    if rank() > 1:
        time.sleep(600)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it comes between two failures, if at all
    Path(f"here{rank()}").touch()
    wait_until(lambda: Path("here0").exists() and Path("here1").exists())
    raise kind(f"{message} {rank()}" if differ else message)


def test_a_bug_of_all_ranks_is_told_once(tmp_path, start_method):
    error = failure_of(fail_together, 3, args=(OSError,), start_method=start_method, cwd=tmp_path)
    text = str(error)
    assert {one.rank for one in error.failures} == {0, 1}
    assert [one.rank for one in error.others] == [2]
    assert text.startswith("ranks 0 and 1 of 3 failed: OSError: the same\n")
    assert text.count("Traceback") == 1
    assert text.endswith("\n\nAs a result, these were stopped: rank 2")


def test_ranks_that_fail_soon_after_the_first_are_not_stopped_before():
    def bug():
        time.sleep(0.02 * rank())
        raise OSError("the same")

    text = str(failure_of(bug, 3))
    assert text.startswith("all 3 ranks failed: OSError: the same\n")
    assert "stopped" not in text


def test_another_failure_is_a_later_one(tmp_path):
    options = {"args": (OSError,), "kwargs": {"differ": True}}
    error = failure_of(fail_together, 3, cwd=tmp_path, **options)
    first, second = error.failures
    assert str(error).startswith(f"{first.name} of 3 failed: OSError: the same {first.rank}\n")
    assert f"\n\n{second.name}, later: OSError: the same {second.rank}\n" in str(error)
    assert [one.rank for one in error.others] == [2]


def test_a_crash_that_is_not_the_first_is_a_failure_too(tmp_path):
    def train():
        if rank() == 0:
            asked = []
            signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
            Path("ready").touch()
            wait_until(lambda: asked)
            crash()
        wait_until(Path("ready").exists)
        raise KeyError("the first")

    error = failure_of(train, 2, cwd=tmp_path)
    first, second = error.failures
    assert first.what == "KeyError: 'the first'"
    assert "\n\nrank 0, later: was ended by SIGSEGV" in str(error)
    assert "Current thread (most recent call first):\n" in error.failures[1].traceback
    assert second.rank == 0
    assert error.others == []


def test_a_handler_that_leaves_when_asked_to_has_not_failed(tmp_path, subtests):
    def train(handler):
        if rank() == 0:
            asked = []
            signal.signal(signal.SIGTERM, handler or (lambda *_: asked.append(True)))
            Path("ready").touch()
            wait_until(lambda: asked)
            raise SystemExit(3)
        wait_until(Path("ready").exists)
        raise KeyError("the first")

    def quit_(*_):
        raise InterruptedError

    for handler in (quit_, functools.partial(quit_, 1), None):
        with subtests.test(handler=handler):
            (tmp_path / "ready").unlink(missing_ok=True)
            error = failure_of(train, 2, args=(handler,), cwd=tmp_path)
            assert [one.rank for one in error.failures] == [1]
            assert [one.rank for one in error.others] == [0]
            said = str(error)
            assert said.startswith("rank 1 of 2 failed: KeyError: 'the first'\n")
            assert ("InterruptedError" in said) == (handler is not None)


def test_ranks_that_never_started_were_not_stopped():
    job = distlab.launch(rank, 2, start=[])
    job.cancel()
    with pytest.raises(distlab.RankError) as caught:
        job.results()
    assert str(caught.value) == "The job was cancelled."
    assert caught.value.others == []


def test_some_ranks_in_words():
    def said(*ranks, task=""):
        return name_ranks([RankFailure(n, f"rank {n}{task}", "", "", "") for n in ranks])

    assert (said(1), said(1, 0), said(3, 0, 1)) == ("rank 1", "ranks 0 and 1", "ranks 0, 1 and 3")
    assert said(1, 0, task=" (ps)") == "rank 0 (ps) and rank 1 (ps)"


def test_those_who_lost_a_peer_at_the_same_place_are_told_once():
    gloo = "RuntimeError: [pair.cc:{}] {} by peer [127.0.0.1]:{}"
    first = RankFailure(2, "rank 2", "exited with status 3", "", "")
    others = [
        RankFailure(rank, f"rank {rank}", words, f"in f\n  dist.all_reduce(t)\n{words}", "")
        for rank, words in enumerate(
            [gloo.format(537, "Connection reset", 9650), gloo.format(554, "closed", 4412)]
        )
    ]
    text = str(distlab.RankError("2 ranks failed: a connection was closed", others, []))
    assert "ranks 0 and 1, with the same error: RuntimeError: [pair.cc:537]" in text
    assert text.count("dist.all_reduce(t)") == 1
    text = str(distlab.RankError("rank 2 of 3 exited with status 3", [first, *others], []))
    assert text.endswith("status 3\n\nAs a result, these were stopped: ranks 0 and 1")


def test_in_ipython_a_wrong_argument_is_the_readers_line_and_the_message():
    wrong = {
        "ValueError: nprocs must be": lambda: distlab.run(print, 0),
        "TypeError: launch() has no argument 'nproc'": lambda: distlab.launch(print, 1, nproc=2),
        "TypeError: run() has no argument 'nproc_per_node'. Did you mean 'nprocs'?": lambda: (
            distlab.run(print, nproc_per_node=2)
        ),
        "TypeError: run() has no argument 'lr'. It has target,": lambda: distlab.run(
            print, 1, lr=5
        ),
        "TypeError: framework must be": lambda: distlab.run(print, 1, (5,)),
        "TypeError: Whose devices? Say virtual_devices(8,": lambda: distlab.virtual_devices(8),
        "ValueError: rank must be from 0 to 0, not 7": lambda: distlab.launch(print, 1).kill(7),
        "TypeError: An int has no layout": lambda: distlab.layouts.draw(3),
    }
    for words, call in wrong.items():
        with pytest.raises((TypeError, ValueError)) as error:
            call()
        _, message = error.value._render_traceback_()
        assert message.startswith(words)
    with pytest.raises(ValueError, match="invalid literal") as error:
        brief(lambda: int("x"))()
    assert not hasattr(error.value, "_render_traceback_"), "only distlab's own words are told alone"


def test_frames_of_libraries_are_counted_in_the_message_and_kept_in_the_failure():
    error = failure_of(lambda: json.loads("{"))
    assert "\n      ... 2 frames of Python\n      File" in str(error)
    assert error.failures[0].traceback.count("  File ") == 4


def test_every_way_to_end(start_method, subtests):
    for target, words in [
        (lambda: os._exit(3), "exited with status 3"),
        (lambda: os._exit(0), "exited with status 0 before the function returned"),
        (crash, "ended by SIGSEGV"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "ended by SIGKILL"),
        (lambda: sys.exit("wrong way"), "SystemExit: wrong way"),
        (lambda: sys.exit(4), "SystemExit: 4"),
        (lambda: threading.Lock(), "The rank's result, of type lock, cannot be sent back"),
        (lambda: [Path(__file__).open()], "list, cannot be sent back: the open file '"),  # noqa: SIM115
    ]:
        with subtests.test(words):
            error = failure_of(target, start_method=start_method)
            assert words in error.failures[0].what
            by_python = "SystemExit" in words
            assert bool(error.failures[0].traceback) == (by_python or "SIGSEGV" in words)
            assert (str(error).count(words) == 1) != by_python
            assert ("\nNo exception of your code" in error.headline) == ("status" in words)


def test_a_rank_that_cannot_even_begin_says_why(tmp_path, start_method):
    place = tmp_path / "place"
    place.mkdir()
    with distlab.launch(rank, 1, cwd=place, start=[], start_method=start_method) as job:
        place.rmdir()
        job.start(0)
        with pytest.raises(distlab.RankError, match=r"FileNotFoundError: .*place"):
            job.results()


def test_a_script_that_fails(tmp_path, start_method):
    script = tmp_path / "bad.py"
    script.write_text("import sys\nprint('to the log')\nsys.exit(5)\n")
    error = failure_of(str(script), start_method=start_method)
    assert "SystemExit: 5" in str(error)
    assert "to the log" in error.failures[0].output
    script.write_text("def f():\n    raise OSError('no disk')\nf()\n")
    script.write_text("print('to the log')\n" + script.read_text())
    with distlab.launch(script, 1, start_method=start_method) as job:
        with pytest.raises(distlab.RankError, match="OSError: no disk") as caught:
            job.results()
        (failure,) = caught.value.failures
        line = f'File "{script}", line 3, in f'
        assert line in job.log(0)  # as python prints it
    assert line in failure.traceback
    assert str(caught.value).count(line) == 1
    assert failure.output == "to the log"


def test_errors_that_are_hard_to_tell(subtests):
    class DumbError(Exception):
        def __str__(self):
            raise ZeroDivisionError

    def dumb():
        raise DumbError

    def wide():
        raise ValueError("x" * 1_000_000)

    def long():
        raise ValueError("\n".join(map(str, range(100_000))))

    def first():
        second()

    def second():
        first()

    def as_tensorflow_says_it():
        raise ValueError('in user code:\n\n    File "x.py", line 1\n\n    TypeError: the cause\n')

    for target, beginning, longest in [
        (as_tensorflow_says_it, "ValueError: in user code: TypeError: the cause ...\n", 1_000),
        (dumb, "DumbError: <exception str() failed>\n", 1_000),
        (wide, "ValueError: xxx", 10_000),
        (long, "ValueError: 0 ...\n", 10_000),
        (first, "RecursionError: maximum recursion depth exceeded", 20_000),
    ]:
        with subtests.test(beginning):
            text = str(failure_of(target))
            assert text.startswith(f"rank 0 of 1 failed: {beginning}")
            assert len(text.partition("\n")[0]) < 400
            assert len(text) < longest


def test_a_forked_child_that_fails_or_returns_is_not_the_rank(start_method):
    def fork(fail):
        child = os.fork()
        if child == 0:
            if fail:
                raise ValueError("in the child")
            return "child"
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert distlab.run(fork, 1, args=(True,), quiet=True, start_method=start_method) == [1]
    assert distlab.run(fork, 1, args=(False,), quiet=True, start_method=start_method) == [0]


def test_torch_says_when_a_peer_has_returned():
    require("torch")

    def train():
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo")
        dist.barrier()
        if dist.get_rank() == 1:
            dist.all_reduce(torch.ones(1))

    text = str(failure_of(train, 2, framework="torch"))
    assert text.startswith("rank 1 of 2 lost its connection, as rank 0 had returned already\nDo")


def test_a_future_over_ranks(start_method):
    assert distlab.launch(rank, 2, start_method=start_method).exception() is None
    with distlab.launch(nap, 2, start_method=start_method) as job:
        with pytest.raises(distlab.JobTimeoutError, match=r"not over after 0\.1 s"):
            job.exception(timeout=0.1)
        assert not job.done()
        job.cancel()
        assert job.done()
        error = job.exception()
    assert type(error) is distlab.RankError
    assert str(error).startswith("The job was cancelled.")
    late = distlab.launch(nap, 1, timeout=0.3, start_method=start_method).exception(timeout=60)
    assert "did not end within its timeout of 0.3 s" in str(late)


def test_the_timeout_of_an_ended_job_ends_nothing():
    assert distlab.run(rank, 1, timeout=0.5, quiet=True) == [0]
    assert distlab.run(time.sleep, 1, args=(1,), quiet=True) == [None]


def test_sys_exit_without_an_error_is_none():
    assert distlab.run(lambda: sys.exit() if rank() else sys.exit(0), 2) == [None, None]


def test_a_timeout_shows_where_each_rank_is(start_method):
    def wait_for_ever():
        threading.Event().wait()

    started = time.monotonic()
    with pytest.raises(distlab.JobTimeoutError) as caught:
        distlab.run(wait_for_ever, 2, timeout=1.5, start_method=start_method)
    assert time.monotonic() - started < 10
    assert isinstance(caught.value, TimeoutError)
    assert [f.rank for f in caught.value.failures] == [0, 1]
    for failure in caught.value.failures:
        assert "in wait_for_ever" in failure.traceback
        assert str(Path(distlab.__file__).parent) not in failure.traceback
        assert failure.traceback.startswith("Current thread (most recent call first):\n")
    assert "\nranks 0 and 1, each: was still running\n" in str(caught.value)
    headline, *below = str(caught.value).splitlines()
    assert re.search(r" Where they were: ranks 0 and 1 at .* in wait_for_ever", headline)
    assert "\n".join(below).count("in wait_for_ever") == 1
    stack = below[below.index("    Current thread (most recent call last):") + 1 :]
    assert re.fullmatch(rf' +File "{re.escape(__file__)}", line \d+ in wait_for_ever', stack[0])
    assert re.fullmatch(r" +\.\.\. \d+ frames? of Python", stack[1])
    assert re.fullmatch(r' +File "threading\.py", line \d+ in \w+', stack[2])


def test_stacks_of_several_threads_as_they_are_now():
    def work():
        def beside():
            threading.Event().wait()

        threading.Thread(target=beside, daemon=True).start()
        print("here", flush=True)
        threading.Event().wait()

    with distlab.launch(work, 1) as job:
        job.wait_for_output(0, "here")
        for _ in range(2):
            with pytest.raises(distlab.JobTimeoutError) as caught:
                job.results(timeout=0.1)
            stack = caught.value.failures[0].traceback
            assert stack.count("in work") == stack.count("in beside") == 1
            assert "Thread (most recent call first):" in stack
            assert "0x" not in stack


def test_waiting_has_a_limit_that_leaves_the_job_alone():
    def work():
        print("here", flush=True)
        time.sleep(600)

    with distlab.launch(work, 2, start=[0]) as job:
        job.wait_for_output(0, "here")
        with pytest.raises(distlab.JobTimeoutError, match="Not started: rank 1") as caught:
            job.results(timeout=0.1)
        assert "in work" in str(caught.value)
        assert [s.state for s in job.status] == ["running", "waiting"]


def test_a_timeout_of_ages(subtests):
    for timeout in (1e10, float("inf")):
        with subtests.test(timeout=timeout):
            assert distlab.run(rank, 2, timeout=timeout, quiet=True) == [0, 1]


def test_waiting_for_an_import_has_a_limit_too():
    job = distlab.launch(rank, 2, framework="jax", env={"JAX_NEW_SUPERVISOR": "1"})
    with pytest.raises(distlab.JobTimeoutError, match="jax is being imported for ranks"):
        job.results(timeout=0.1)
    assert job.results() == [0, 1]


def test_a_framework_that_cannot_be_imported(tmp_path):
    (tmp_path / "jax.py").write_text("raise ImportError('no such symbol')\n")
    job = distlab.launch(rank, 2, framework="jax", env={"PYTHONPATH": str(tmp_path)})
    with pytest.raises(distlab.RankError, match=r"cannot be imported(.|\n)*no such symbol"):
        job.results()


def test_garbage_is_collected_in_ranks(start_method):
    def collects():
        import gc

        return gc.isenabled()

    assert distlab.run(collects, 1, start_method=start_method) == [True]


def test_keras_is_not_needed_and_thread_counts_may_be_nested(tmp_path):
    (tmp_path / "keras.py").write_text("raise ImportError('no keras here')\n")
    environment = {"PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "2,1"}
    assert distlab.run(rank, 2, "jax", env=environment) == [0, 1]


def test_an_error_can_be_pickled():
    import pickle

    error = failure_of(lambda: 1 / 0)
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert again.failures == error.failures


# Steering.


def test_kill_says_so_and_restart_brings_the_rank_back(tmp_path, start_method):
    def identity():
        if not Path(f"second{rank()}").exists():
            Path(f"second{rank()}").touch()
            print("first time")
            time.sleep(600)
        return rank(), os.environ["WORLD_SIZE"]

    with distlab.launch(identity, 2, cwd=tmp_path, start_method=start_method) as job:
        for r in range(2):
            job.wait_for_output(r, "first time")
        job.kill(1)
        assert [s.state for s in job.status] == ["running", "killed"]
        job.restart(1)
        job.kill(0)
        with pytest.raises(distlab.RankError, match=r"rank 0: was killed by Job\.kill"):
            job.results()
        assert job.partial_results == [None, (1, "2")]
        assert job.log(1) == ""
        assert job.log(1, attempt=0) == "first time\n"
        job.restart()
        assert job.results() == [(0, "2"), (1, "2")]


def test_restarting_a_job_whose_ranks_are_failing(tmp_path):
    def fail_slowly():
        first = not Path("second").exists()
        Path("second").touch()
        if first:

            def leave():
                print("leaving")
                time.sleep(600)

            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            atexit.register(leave)  # the failure is known before the rank is gone
            raise ValueError("the first attempt")
        time.sleep(0.3)  # time enough for what is left of the first attempt to end this one
        return rank()

    with distlab.launch(fail_slowly, 1, cwd=tmp_path) as job:
        job.wait_for_output(0, "leaving")
        job.restart()
        assert job.results(timeout=30) == [0]


def test_pause_resume_and_stop_a_paused_rank_at_once():
    def tick():
        while True:
            print("tick", flush=True)
            time.sleep(0.01)

    with distlab.launch(tick, 1) as job:
        job.wait_for_output(0, "tick")
        job.pause(0)
        assert job.status[0].state == "paused"
        assert psutil.Process(job.status[0].pid).status() == psutil.STATUS_STOPPED
        with pytest.raises(distlab.JobTimeoutError):
            job.results(timeout=0.1)
        job.resume(0)
        assert job.status[0].state == "running"
        assert psutil.Process(job.status[0].pid).status() != psutil.STATUS_STOPPED
        job.pause(0)
        job.cancel()
        assert job.status[0].exitcode == -signal.SIGTERM  # it took no SIGKILL


def test_a_paused_rank_has_stopped_when_pause_returns_however_busy_the_machine():
    def spin():
        print("here", flush=True)
        while True:
            pass

    with distlab.launch(spin, 4 * len(os.sched_getaffinity(0))) as job:
        for number in range(job.nprocs):
            job.wait_for_output(number, "here")
        for number in range(job.nprocs):
            job.pause(number)
            assert psutil.Process(job.status[number].pid).status() == psutil.STATUS_STOPPED
            job.resume(number)
            assert job.status[number].state == "running"


def test_start_the_ranks_one_by_one():
    with distlab.launch(rank, 3, start=[2]) as job:
        assert [s.state for s in job.status][:2] == ["waiting", "waiting"]
        job.start(0)
        job.start(1)
        assert job.results() == [0, 1, 2]
        with pytest.raises(RuntimeError, match="rank 1 cannot be started: it is done"):
            job.start(1)
        with pytest.raises(RuntimeError, match="Cannot kill rank 1: it is done"):
            job.kill(1)


def test_a_script_that_serves_is_waited_for_by_what_it_prints():
    with distlab.launch(nap, 1) as job:
        assert job.wait_for_output(0, "slee") == "asleep"
        with pytest.raises(distlab.JobTimeoutError, match="had not printed 'awake'"):
            job.wait_for_output(0, "awake", timeout=0.2)
    with pytest.raises(distlab.RankError, match="ended and had not printed 'awake'"):
        job.wait_for_output(0, "awake")


# Output.


def test_output_of_every_origin_arrives(start_method):
    def speak():
        libc = ctypes.CDLL(None)
        print("from Python")
        libc.printf(b"from C\n")
        subprocess.run(["echo", "from a child"], check=True)
        os.write(1, b"not UTF-8: \xff\n")
        print("to standard error", file=sys.stderr)
        sys.stdout.write("no line end")
        os._exit(0)

    job = distlab.launch(speak, 1, start_method=start_method)
    with pytest.raises(distlab.RankError):
        job.results()
    assert job.log(0).splitlines() == [
        "from Python",
        "from C",
        "from a child",
        "not UTF-8: \\xff",
        "to standard error",
        "no line end",
    ]


def test_following_one_rank_until_it_ends(capsys):
    def speak():
        print(f"I am {rank()}")
        if rank() == 0:
            time.sleep(600)

    with distlab.launch(speak, 2) as job:
        job.follow(1)
        assert capsys.readouterr().out == "[rank 1] I am 1\n"
        assert job.status[0].state == "running"


def test_run_shows_output_with_the_rank(capsys):
    distlab.run(lambda: print(f"I am {rank()}"), 2)
    assert sorted(capsys.readouterr().out.splitlines()) == ["[rank 0] I am 0", "[rank 1] I am 1"]
    distlab.run(lambda: print("nothing"), 1, quiet=True)
    assert capsys.readouterr().out == ""


def test_a_hundred_megabytes_from_every_rank_block_nothing():
    def flood():
        for _ in range(100):
            os.write(1, b"x" * 1_048_575 + b"\n")
        return "done"

    before = psutil.Process().memory_info().rss
    with distlab.launch(flood, 4) as job:
        assert job.results(timeout=120) == ["done"] * 4
        assert psutil.Process().memory_info().rss - before < 50_000_000
        sizes = [path.stat().st_size for path in job._record.directory.glob("*.log")]
        assert sizes == [100 * 1_048_576] * 4


# What cannot be sent.


def test_an_argument_that_cannot_be_sent_is_named():
    lock = threading.Lock()

    def work(first, second=None):
        return first

    with pytest.raises(TypeError, match="Cannot send argument 'first' to another"):
        distlab.run(work, 1, args=(lock,))
    with pytest.raises(TypeError, match="Cannot send argument 'second'"):
        distlab.run(work, 1, args=(1,), kwargs={"second": lock})
    with pytest.raises(TypeError, match="Cannot send the function, which uses lock, to another"):
        distlab.run(lambda: lock, 1)


# At once, one after another, one inside another.


def test_a_module_that_is_no_plain_module_is_sent_by_name(tmp_path, monkeypatch, start_method):
    """As `torch.ops` is, which cloudpickle takes along when it reads of `torch` and an `ops`."""
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text(
        "import sys, types\n"
        "class Ops(types.ModuleType):\n"
        "    lock = __import__('threading').Lock()\n"
        "    def __init__(self):\n"
        "        super().__init__('pack.ops')\n"
        "        self.own = self.lock\n"
        "ops = sys.modules['pack.ops'] = Ops()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    pack = importlib.import_module("pack")

    def target():
        return type(pack.ops).__name__, pack.ops.__name__

    assert (
        distlab.run(target, 2, quiet=True, start_method=start_method) == [("Ops", "pack.ops")] * 2
    )
    monkeypatch.delitem(sys.modules, "pack")
    monkeypatch.delitem(sys.modules, "pack.ops")


def test_launch_from_threads_at_once():
    results = {}

    def work(number):
        results[number] = distlab.run(lambda: number * 10 + rank(), 2, quiet=True)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == {n: [n * 10, n * 10 + 1] for n in range(4)}


def test_a_rank_may_launch_ranks(start_method):
    def outer():
        import distlab as inner

        def deepest():
            return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

        return inner.run(deepest, 3, quiet=True)

    assert distlab.run(outer, 2, start_method=start_method) == [[(0, 3), (1, 3), (2, 3)]] * 2


def test_fifty_launches_leave_nothing_behind():
    process = psutil.Process()
    for _ in range(2):
        distlab.run(lambda: 7, 2)
    supervisor = next(iter(client._clients.values()))

    def census():
        watcher = psutil.Process(supervisor.pid)
        return {
            "descriptors": process.num_fds(),
            "threads": threading.active_count(),
            "supervisors": len(client._clients),
            "files": len(list(supervisor.directory.iterdir())),
            "supervisor's descriptors": watcher.num_fds(),
            "supervisor's children": len(watcher.children()),
        }

    def settled(expected):
        deadline = time.monotonic() + 10
        while not expected(now := census()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return now

    before = settled(lambda now: now["supervisor's children"] == 2)  # the ranks ahead
    for _ in range(50):
        assert distlab.run(lambda: 7, 2, quiet=True) == [7, 7]
    assert settled(before.__eq__) == before


def test_jobs_are_found_again_while_they_go_on():
    job = distlab.launch(nap, 2)
    with distlab.launch(rank, 1):
        assert distlab.jobs()[0] is job
    job = distlab.launch(nap, 1)
    lost, last = distlab.jobs()
    assert last is job and lost.nprocs == 2
    lost.cancel()
    assert distlab.jobs() == [job]
    job.cancel()
    assert distlab.jobs() == []


def test_a_job_goes_on_when_nobody_holds_it(tmp_path):
    distlab.launch(lambda: (tmp_path / "done").touch(), 1)
    deadline = time.monotonic() + 30
    while not (tmp_path / "done").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# Bad input: one clear error each, before anything starts.


def test_bad_input(subtests):
    before = len(client._clients)
    for arguments, error, message in [
        ({"framework": "mxnet"}, ValueError, "Unknown framework 'mxnet': expected 'jax' or"),
        ({"framework": 3}, TypeError, "framework must be"),
        ({"nprocs": 0}, ValueError, "nprocs must be from 1 to 512, not 0"),
        ({"nprocs": "4"}, TypeError, "nprocs must be an int, not '4' of type str"),
        ({"nprocs": True}, TypeError, "nprocs must be an int"),
        ({"nprocs": None}, TypeError, r"How many ranks\? Say nprocs=2"),
        ({"target": "no_such.py"}, FileNotFoundError, "There is no script '/.*no_such.py'.$"),
        ({"target": "train"}, FileNotFoundError, "/train'. Name a function without quotes"),
        ({"args": (1,)}, TypeError, r"The arguments do not fit rank\(\) -> int: too many"),
        ({"timeout": -1}, ValueError, "A timeout must be above 0 seconds, not -1"),
        ({"timeout": "5"}, TypeError, "A timeout is a number of seconds"),
        ({"timeout": float("nan")}, ValueError, "A timeout must be above 0"),
        ({"cwd": "no/such/place"}, FileNotFoundError, "no directory 'no/such/place'"),
        ({"env": {"A": 1}}, TypeError, "'A' is set to 1"),
        ({"start": [2]}, ValueError, "rank must be from 0 to 1, not 2"),
        ({"devices_per_rank": 2}, ValueError, "devices_per_rank is for JAX and TensorFlow"),
        ({"devices_per_rank": 0}, ValueError, "devices_per_rank must be from 1"),
        ({"roles": {"worker": 2}}, ValueError, 'roles are for framework="tensorflow"'),
        (
            {"roles": {"chief": 2}, "framework": "tensorflow", "nprocs": None},
            ValueError,
            "at most one chief",
        ),
        (
            {"roles": {"worker": 3}, "framework": "tensorflow"},
            ValueError,
            "roles make 3 ranks in all; nprocs is 2",
        ),
    ]:
        with subtests.test(**arguments):
            call = {"target": rank, "nprocs": 2} | arguments
            with pytest.raises(error, match=message):
                distlab.launch(**call)
            assert len(client._clients) == before
    with pytest.raises(TypeError, match=r"run\(\) has no argument 'start'"):
        distlab.run(rank, 2, start=[0])


def test_bad_ranks():
    with distlab.launch(nap, 2) as job:
        steering = (job.kill, job.pause, job.resume, job.start, job.restart)
        for method in (*steering, job.log, job.follow):
            with pytest.raises(ValueError, match="rank must be from 0 to 1, not 2"):
                method(2)
            with pytest.raises(TypeError, match="rank must be an int, not '1' of type str"):
                method("1")
