"""What a rank that is told to end has time for, and who is blamed where several have failed."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from _processes import Kernel, require, wait_gone

import distlab

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ranks are not forked there")

KILLS = 50 if os.environ.get("DISTLAB_FAULTS") == "full" else 10
"""How often each of four tests kills a rank."""


def save_slowly(place: str) -> None:
    """Saves what a worker gives, as a loader's worker does, and takes its time."""
    import multiprocessing

    begin, data = multiprocessing.Event(), multiprocessing.Queue()

    def give() -> None:
        begin.wait()
        data.put("state")

    multiprocessing.Process(target=give, daemon=True).start()

    def end(*_: object) -> None:
        begin.set()
        time.sleep(2.5)
        Path(place, os.environ["RANK"]).write_text(data.get(timeout=5))
        sys.exit()

    signal.signal(signal.SIGTERM, end)
    print("ready", flush=True)
    while True:
        time.sleep(0.05)


def cancelled(place: Path, grace: float | None, of_launch: float | None = None) -> distlab.Job:
    job = distlab.launch(save_slowly, 2, args=[str(place)], grace=of_launch)
    for rank in range(2):
        job.wait_for_output(rank, "ready")
    job.cancel(grace)
    return job


@pytest.mark.parametrize(("grace", "of_launch"), [(30, None), (None, 30)])
def test_a_rank_can_save_with_its_workers_while_it_ends(tmp_path, caplog, grace, of_launch):
    began = time.monotonic()
    cancelled(tmp_path, grace, of_launch)
    assert time.monotonic() - began < 20, "it ends as soon as they have"
    saved = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert saved == {"0": "state", "1": "state"}
    assert caplog.messages == []


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("grace", [30, None])
def test_ranks_have_their_grace_when_the_program_that_launched_them_is_ended(tmp_path, how, grace):
    program = f"""
        from test_grace import save_slowly
        job = distlab.launch(save_slowly, 2, args=[{str(tmp_path)!r}], grace={grace})
        for rank in range(2):
            job.wait_for_output(rank, "ready")
        job.pause(1)
        say([*supervisors(), *(status.pid for status in job.status)])
        job.wait()
    """
    with Kernel(program, PYTHONPATH=str(Path(__file__).parent)) as kernel:
        pids = kernel.heard()
        kernel.process.send_signal(how)
        assert wait_gone(pids, 20) == []
    saved = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert saved == ({} if grace is None else {"0": "state", "1": "state"})


def test_ranks_that_were_told_to_end_are_not_told_twice(tmp_path):
    program = f"""
        def end_slowly():
            def end(*_):
                with open({str(tmp_path / "told")!r}, "a") as file:
                    file.write("told ")
                print("told", flush=True)
                time.sleep(600)
            signal.signal(signal.SIGTERM, end)
            print("ready", flush=True)
            time.sleep(600)
        job = distlab.launch(end_slowly, 1, grace=60)
        job.wait_for_output(0, "ready")
        threading.Thread(target=job.cancel, daemon=True).start()
        job.wait_for_output(0, "told")
        say([*supervisors(), job.status[0].pid])
        hear()
    """
    with Kernel("import signal, threading, time", program) as kernel:
        pids = kernel.heard()
        kernel.process.send_signal(signal.SIGTERM)
        assert wait_gone(pids, 20) == [], "the second time it ends at once"
    assert (tmp_path / "told").read_text() == "told "


@pytest.mark.parametrize("grace", [None, 1])
def test_who_was_killed_while_it_ended_is_named(tmp_path, caplog, grace):
    cancelled(tmp_path, grace)
    assert list(tmp_path.iterdir()) == []
    words = f"did not end within {grace or 2} s of SIGTERM and was killed"
    assert sorted(caplog.messages) == [f"rank 0 {words}", f"rank 1 {words}"]


def test_of_ranks_that_end_at_once_nothing_is_said(caplog):
    with distlab.launch(time.sleep, 2, args=[600]):
        pass
    assert caplog.messages == []


@pytest.mark.parametrize("saves", [False, True])
def test_of_a_jax_rank_it_is_said_if_the_target_handles_sigterm(caplog, saves):
    """JAX catches the signal in every group, so its ranks outlive it without a reason."""
    require("jax")

    def wait():
        import jax

        jax.distributed.initialize()
        if saves:
            signal.signal(signal.SIGTERM, lambda *_: time.sleep(60))
        print("ready", flush=True)
        time.sleep(600)

    with distlab.launch(wait, 1, "jax") as job:
        job.wait_for_output(0, "ready")
    words = "rank 0 did not end within 2 s of SIGTERM and was killed"
    assert caplog.messages == [words] * saves


@pytest.mark.parametrize("grace", [0, -1, True, "2"])
def test_a_grace_is_a_number_of_seconds(grace):
    with pytest.raises((TypeError, ValueError), match="grace"):
        distlab.launch(os.getpid, 1, grace=grace)


def add_up(in_own_words: bool) -> None:
    """Adds up with the others, for whom rank 1 is too late."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    dist.all_reduce(torch.zeros(1))
    print("here", flush=True)
    if dist.get_rank() == 1:
        signal.pause()
    try:
        dist.all_reduce(torch.zeros(1))
    except RuntimeError as error:
        if in_own_words:
            raise ValueError("training is over") from None
        raise error


@pytest.mark.parametrize("in_own_words", [False, True])
@pytest.mark.parametrize("how", ["Job.kill", "from outside"])
def test_who_was_killed_comes_before_who_lost_a_peer(how, in_own_words):
    require("torch")
    for _ in range(KILLS):
        job = distlab.launch(add_up, 4, "torch", args=[in_own_words])
        for rank in range(4):
            job.wait_for_output(rank, "here")
        if how == "Job.kill":
            job.kill(1)
        else:
            os.kill(job.status[1].pid, signal.SIGKILL)
        error = job.exception()
        words = "was killed by Job.kill" if how == "Job.kill" else "was ended by SIGKILL"
        assert error.headline.startswith(f"rank 1 of 4 {words}")


@pytest.mark.parametrize("in_own_words", [False, True])
@pytest.mark.parametrize("leaving", ["failed: KeyError: 'mine'", "exited with status 0"])
def test_who_leaves_comes_before_who_lost_a_peer(leaving, in_own_words):
    require("torch")

    def leave():
        import torch.distributed as dist

        dist.init_process_group("gloo")
        if dist.get_rank() == 2:
            if leaving.startswith("exited"):
                os._exit(0)
            raise KeyError("mine")
        try:
            dist.barrier()
        except RuntimeError as error:
            if in_own_words:
                raise ValueError("training is over") from error
            raise

    for _ in range(10):
        error = distlab.launch(leave, 4, "torch").exception()
        assert error.headline.startswith(f"rank 2 of 4 {leaving}")
        if not in_own_words:  # whether they were stopped or noticed it first
            assert str(error).endswith("these were stopped: ranks 0, 1 and 3")
            assert "peer" not in str(error)
