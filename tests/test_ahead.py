"""Ranks that were forked before anybody asked for them: as if forked now, and nothing left."""

import contextlib
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from _processes import Kernel, require, wait_gone
from _ranks import look, rank
from hypothesis import given, settings
from hypothesis import strategies as st

import distlab
from distlab.launching.kernel import client
from distlab.ports import HeldPort

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ranks are not forked there")


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def supervisor(framework: str | None) -> psutil.Process:
    """The supervisor that was used last."""
    known = [c.pid for key, c in client._clients.items() if key[:2] == (framework, True)]
    return psutil.Process(known[-1])


used: set[int] = set()
"""The ranks that `run` has had."""


def run(function: Callable[..., object], *given: object, **options: object) -> list:
    """What `distlab.run` does, and remember who the ranks were."""
    job = distlab.launch(function, *given, **options)
    results = job.results()
    used.update(status.pid for status in job.status)
    return results


def waiting(framework: str | None, count: int) -> list[int]:
    """The ranks ahead, once there are `count` and those of earlier jobs are gone."""

    def ahead() -> list[int]:
        return [child.pid for child in supervisor(framework).children() if child.pid not in used]

    until(lambda: len(ahead()) == len(supervisor(framework).children()) == count)
    return ahead()


LAUNCHES = st.lists(
    st.tuples(
        st.sampled_from([None, None, "torch"]),
        st.integers(1, 4),
        st.dictionaries(
            st.sampled_from(["A", "HOME", "NO_COLOR", "TMPDIR"]), st.text("aé/ ", max_size=9)
        ),
        st.sampled_from(["/", "/tmp"]),
        st.integers(200, 900),
        st.booleans(),
    ),
    min_size=2,
    max_size=3,
)


@settings(max_examples=8, deadline=None)
@given(LAUNCHES)
def test_launches_are_what_fresh_interpreters_are(launches):
    """Those ahead, those that had to be forked when asked for, and new interpreters: all alike.

    A limit that somebody sets for the supervisor counts from then on, as if it forked only now.
    """
    require("torch")
    seen = []
    for framework, nprocs, variables, cwd, files, pause in launches:
        options = {"env": variables, "cwd": cwd}
        assert run(rank, 1, framework) == [0]
        if pause:
            waiting(framework, 1)
        process = supervisor(framework)
        before = process.rlimit(resource.RLIMIT_NOFILE)
        process.rlimit(resource.RLIMIT_NOFILE, (files, before[1]))
        try:
            ranks = run(look, nprocs, framework, **options)
            again = run(look, nprocs, framework, **options)
        finally:
            process.rlimit(resource.RLIMIT_NOFILE, before)
        for has, numbers, _ in (*ranks, *again):
            assert has == ranks[0][0]
            assert has["limits"][resource.RLIMIT_NOFILE][0] == files
            assert variables.items() <= has["environment"].items()
            seen += numbers
        if framework is None:
            spawned = distlab.run(look, nprocs, start_method="spawn", quiet=True, **options)
            spawned[0][0]["limits"] = ranks[0][0]["limits"]  # those of another supervisor
            assert spawned[0][0] == ranks[0][0]
    assert len(set(seen)) == len(seen)


def test_a_rank_that_waits_is_taken_once():
    run(rank, 3)
    ahead = waiting(None, 3)
    first = [pid for _, _, pid in run(look, 3)]
    assert sorted(first) == sorted(ahead)
    after = waiting(None, 3)
    assert not set(after) & set(first)
    run(rank, 1)
    waiting(None, 1)
    distlab.prewarm(nprocs=2)
    waiting(None, 2)


def test_ranks_that_wait_hold_nothing_of_a_job():
    require("torch")

    def hold_much():
        import torch.distributed as dist

        dist.init_process_group("gloo")
        dist.barrier()
        os.open("/proc/self/status", os.O_RDONLY)

    with distlab.launch(time.sleep, 1, "torch", args=[600]):  # its port, its directory
        run(hold_much, 2, "torch")
    run(hold_much, 2, "torch")
    for pid in waiting("torch", 2):
        process = psutil.Process(pid)
        opened = [str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()]
        assert sum("socket:" in file for file in opened) == 1
        left = {file.rpartition("/")[2] for file in opened if "socket:" not in file}
        assert left == {"null", "supervisor.log"}
        assert process.net_connections("inet") == []
        assert process.cwd() == supervisor("torch").cwd()


def test_what_a_rank_had_open_is_free_when_run_returns(tmp_path):
    """Also while the system still takes back its memory."""
    port, lock = HeldPort(), tmp_path / "lock"
    port.close()
    lock.touch()

    def hold(number):
        import fcntl

        if os.environ["RANK"] == "0":
            server = socket.create_server(("127.0.0.1", number))
            os.dup(server.fileno())
            fcntl.flock(os.open(lock, os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB)

    for _ in range(20):
        distlab.run(hold, 2, args=[port.number])


def test_ranks_that_wait_may_be_lost():
    run(rank, 3)
    for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM):
        ahead = waiting(None, 3)
        os.kill(ahead[0], number)
        assert wait_gone(ahead[:1], 10) == []  # nobody would let a stopped one go on
        assert run(rank, 3) == [0, 1, 2]


@pytest.mark.parametrize("victim", ["the kernel", "the supervisor"])
def test_ranks_that_wait_go_along(victim):
    code = """
distlab.prewarm(nprocs=4)
say(distlab.run(lambda: 5, 4))
say(supervisors())
hear()
"""
    with Kernel(code) as kernel:
        assert kernel.heard() == [5] * 4
        (supervisor,) = kernel.heard()
        until(lambda: len(psutil.Process(supervisor).children()) == 4)
        ahead = [child.pid for child in psutil.Process(supervisor).children()]
        os.kill(kernel.process.pid if victim == "the kernel" else supervisor, signal.SIGKILL)
        assert wait_gone([supervisor, *ahead], 10) == []
        with contextlib.suppress(BrokenPipeError):
            kernel.tell()
