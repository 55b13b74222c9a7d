"""Too much at once, and ends at bad moments; docs/faults.md has the list.

DISTLAB_FAULTS=full takes the numbers of that list: 200 interrupts, a minute of two kernels, a line
of 200 MB, a result of 1 GB.
"""

import os
import sys
from itertools import product

import pytest
from _hardship import RUN, WELL, ended
from _processes import Kernel, family, require, wait_gone

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="watches processes through /proc")

FULL = os.environ.get("DISTLAB_FAULTS") == "full"


# The supervisor is killed.


def test_the_supervisor_killed_while_a_launch_is_under_way(tmp_path):
    code = """
    import psutil, threading
    for wanted in (0, 1, 4, 16):  # ranks that it has started by then
        distlab.run(lambda: 5, 1, quiet=True)
        supervisor = psutil.Process(supervisors()[0])
        def watch():
            while len(supervisor.children()) < wanted:
                pass
            supervisor.kill()
        watcher = threading.Thread(target=watch)
        watcher.start()
        job = distlab.launch(time.sleep, 32, args=[600])
        attempt(job.results)
        watcher.join()
        say([status.pid for status in job.status if status.pid])
    """
    with Kernel(code, RUN, "hear()", TMPDIR=str(tmp_path)) as it:
        for _ in range(4):
            kind, message = it.heard()
            assert kind == "RankError"
            assert "started and watched the ranks was ended by SIGKILL" in message
            assert wait_gone(it.heard(), 10) == []
        assert it.heard() == WELL
        ended(it, tmp_path)


# Much at once.


def test_more_ranks_than_cores(tmp_path):
    code = """
    say(sum(distlab.run(lambda: int(os.environ["RANK"]), 64, quiet=True)))
    def summed():
        import torch, torch.distributed as dist
        dist.init_process_group("gloo")
        total = torch.tensor([dist.get_rank()])
        dist.all_reduce(total)
        dist.destroy_process_group()
        return int(total)
    say(distlab.run(summed, 64, "torch", quiet=True) == [2016] * 64)
    def one():
        if os.environ["RANK"] == "63":
            raise ValueError("why")
        time.sleep(600)
    attempt(lambda: distlab.run(one, 64, quiet=True))
    """
    require("torch")
    with Kernel(code, RUN, "hear()", TMPDIR=str(tmp_path)) as it:
        assert it.heard() == 2016
        assert it.heard() is True
        kind, message = it.heard()
        assert kind == "RankError"
        assert message.startswith("rank 63 of 64 failed: ValueError: why")
        assert it.heard() == WELL
        ended(it, tmp_path)


def test_two_kernels_that_launch_at_once(tmp_path):
    code = f"""
    say("ready")
    hear()
    end = time.monotonic() + {60 if FULL else 8}
    wrong, rounds = [], 0
    while time.monotonic() < end:
        count = rounds % 4 + 1
        method = "fork" if count % 4 else "spawn"
        got = distlab.run(
            lambda: int(os.environ["RANK"]), count, quiet=True, start_method=method
        )
        if got != list(range(count)):
            wrong.append(got)
        rounds += 1
    say([rounds > 3, wrong])
    """
    place = {"TMPDIR": str(tmp_path)}
    with (
        Kernel(code, "hear()", **place) as one,
        Kernel(code, "hear()", **place) as two,
    ):
        for kernel in (one, two):
            assert kernel.heard() == "ready"
        for kernel in (one, two):
            kernel.tell()
        for kernel in (one, two):
            assert kernel.heard() == [True, []]
        below = family(one.process.pid) + family(two.process.pid)
        for kernel in (one, two):
            kernel.tell()
            assert kernel.process.wait(20) == 0
        assert wait_gone(below, 10) == []
    assert list(tmp_path.iterdir()) == []


def test_a_large_result(tmp_path):
    size = (1024 if FULL else 256) << 20
    code = f"""
    def result():
        block = bytearray({size})
        block[-1] = 7
        return block
    job = distlab.launch(result, 1)
    (block,) = job.results()
    say([len(block), block[-1], job.partial_results[0] is block])
    """
    with Kernel(code, RUN, "hear()", TMPDIR=str(tmp_path)) as it:
        assert it.heard() == [size, 7, True]
        assert it.heard() == WELL
        ended(it, tmp_path)


def test_what_is_no_text(tmp_path):
    code = r"""
    def rubbish():
        os.write(1, b"\xff\xfe\x00abc\xc3\n")
        print("after")
    job = distlab.launch(rubbish, 1)
    job.follow()
    say([job.log(0), "after" in repr(job)])
    """
    with Kernel(code, "hear()", TMPDIR=str(tmp_path)) as it:
        assert it.heard() == ["\\xff\\xfe\0abc\\xc3\nafter\n", True]
        ended(it, tmp_path)


def test_a_line_without_an_end(tmp_path):
    megabytes = 200 if FULL else 50
    code = f"""
    def long():
        for _ in range({megabytes}):
            os.write(1, b"y" * (1 << 20))
        raise ValueError("why")
    begun = time.process_time()
    import contextlib
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        job = distlab.launch(long, 1)
        job.follow()
    attempt(job.results)
    say([len(job.log(0)), len(repr(job)) < 1000, time.process_time() - begun])
    """
    with Kernel(code, RUN, "hear()", TMPDIR=str(tmp_path)) as it:
        kind, message = it.heard()
        assert (kind, "ValueError: why" in message) == ("RankError", True)
        assert len(message) < 10_000
        size, short, seconds = it.heard()
        assert (size, short) == (megabytes << 20, True)
        assert seconds < megabytes / 10  # of its processor: it was 10 s for 50 MB
        assert it.heard() == WELL
        ended(it, tmp_path)


def test_interrupts_at_random_moments(tmp_path):
    count = 200 if FULL else 20
    code = f"""
    import contextlib, gc, psutil, random, signal, threading
    from distlab.launching.kernel import client
    distlab.run(lambda: 5, 2, quiet=True)
    seed = random.randrange(10**6)
    dice, ends, left = random.Random(seed), set(), []
    handler = signal.getsignal(signal.SIGINT)
    def below():
        known, found = set(supervisors()), []
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.pid not in known and process.name() != "sh":
                    found.append(process.pid)
        return found
    def shoot(delay):
        time.sleep(delay)  # any moment will do
        os.kill(os.getpid(), signal.SIGINT)
    for turn in range({count}):
        # Every other time early: before there is anything to stop.
        delay = dice.random() * (0.05 if turn % 2 else 0.005)
        shooter = threading.Thread(target=shoot, args=[delay])
        try:
            shooter.start()
            method = "spawn" if turn % 10 == 9 else "fork"
            distlab.run(time.sleep, 2, args=[600], quiet=True, start_method=method)
        except KeyboardInterrupt:
            ends.add("interrupted")
        shooter.join()
        # The supervisor has dealt with all that came before.
        distlab.run(lambda: 5, 1, quiet=True, start_method="spawn" if turn % 10 == 9 else "fork")
        # One rank stays ahead, for a launch like the last; others may still give memory back.
        until = time.monotonic() + 10
        while (rest := below()[1:]) and time.monotonic() < until:
            time.sleep(0.01)
        left += rest
        left += [str(job) for c in client._clients.values() for job in c.live]
    say([seed, sorted(ends), left, signal.getsignal(signal.SIGINT) is handler])
    """
    with Kernel(code, RUN, "hear()", TMPDIR=str(tmp_path)) as it:
        seed, ends, left, handled = it.heard()
        assert (ends, left, handled) == (["interrupted"], [], True), seed
        assert it.heard() == WELL
        ended(it, tmp_path)


MOMENTS = ["client_for", "Client.new_job", "Job.__init__", "_begin"]


def test_an_interrupt_between_a_launch_and_its_job(tmp_path, subtests):
    cases = [*product(["run", "launch"], MOMENTS), ("run", "Job.__enter__")]
    code = f"""
    import signal
    from distlab.launching.kernel import client
    distlab.run(lambda: 5, 2, quiet=True)
    for start, moment in {cases}:
        def shoot(frame, event, argument):
            if event == "return" and frame.f_code.co_qualname == moment:
                sys.setprofile(None)
                signal.raise_signal(signal.SIGINT)
        try:
            sys.setprofile(shoot)
            getattr(distlab, start)(time.sleep, 2, args=[600])
        except KeyboardInterrupt:
            say("interrupted")
        say([str(job) for each in client._clients.values() for job in each.live])
        {RUN}
    """
    with Kernel(code, "hear()", TMPDIR=str(tmp_path)) as it:
        for case in cases:
            with subtests.test(case):
                assert it.heard() == "interrupted"
                assert it.heard() == []
                assert it.heard() == WELL
        ended(it, tmp_path)
