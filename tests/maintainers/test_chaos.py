"""Processes killed at random while jobs run: the kernel always hears of it and goes on.

Ten seconds by default; DISTLAB_CHAOS_SECONDS=300 makes it five minutes, DISTLAB_CHAOS_SEED
repeats a run as far as chance allows.
"""

import contextlib
import os
import random
import signal
import sys
import time

import psutil
import pytest
from _processes import Kernel, family, require, wait_gone

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="watches processes through /proc")

SECONDS = float(os.environ.get("DISTLAB_CHAOS_SECONDS", "10"))

ROUNDS = """
import random
def plain():
    import subprocess
    subprocess.Popen(["sleep", "600"])
    time.sleep(random.random() / 2)
    return "plain"
def sums():
    import torch, torch.distributed as dist
    dist.init_process_group("gloo")
    for _ in range(random.Random(0).randrange(200)):
        dist.all_reduce(torch.ones(1000))
    return "sums"
kinds = [(plain, None), (sums, "torch")]
while True:
    target, framework = random.choice(kinds)
    method = "spawn" if framework is None and random.random() < 0.3 else "fork"
    job = distlab.launch(target, random.randint(1, 4), framework, timeout=60, start_method=method)
    say("started")
    try:
        outcome = set(job.results())
    except distlab.RankError as error:
        outcome = type(error).__name__
    say([str(outcome), [s.state for s in job.status], [s.pid for s in job.status if s.pid]])
"""


def name(pid: int) -> str:
    """The name of a process; "sh" is what removes a directory when all others have been killed."""
    try:
        return psutil.Process(pid).name()
    except psutil.NoSuchProcess:
        return ""


def test_killing_at_random():
    seed = int(os.environ.get("DISTLAB_CHAOS_SEED", random.randrange(10**6)))
    print(f"DISTLAB_CHAOS_SEED={seed}")
    dice = random.Random(seed)
    require("torch")
    outcomes = {"well": 0, "failed": 0}
    deadline = time.monotonic() + SECONDS
    with Kernel(ROUNDS) as kernel:
        while time.monotonic() < deadline:
            assert kernel.heard() == "started"
            time.sleep(dice.random() / 4)  # any moment is a good one to be killed
            victims = [pid for pid in family(kernel.process.pid) if name(pid) != "sh"]
            if victims and dice.random() < 0.7:
                victim = dice.choice(victims)
                number = dice.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victim, number)
            outcome, states, pids = kernel.heard()
            assert set(states) <= {"done", "failed", "stopped", "lost"}, (seed, states)
            assert (set(states) == {"done"}) == outcome.startswith("{"), (seed, outcome, states)
            outcomes["well" if outcome.startswith("{") else "failed"] += 1
            assert wait_gone(pids, 10) == [], seed
        everyone = [kernel.process.pid, *family(kernel.process.pid)]
        kernel.process.send_signal(signal.SIGKILL)
        assert wait_gone(everyone, 10) == [], seed
    assert outcomes["well"] > 0, outcomes
