"""Odd clocks, targets that spoil their own process, strangers; docs/faults.md has the list."""

import json
import os
import socket
import subprocess
import sys

import psutil
import pytest
from _hardship import ROOT, RUN, STRANGER, WELL, ended, other_clock
from _processes import Kernel, family, require

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="watches processes through /proc")

# Clocks.


def test_a_monotonic_clock_of_years(tmp_path):
    code = """
    say(time.monotonic() > 10**9)
    attempt(lambda: distlab.run(time.sleep, 1, args=[600], quiet=True, timeout=0.5))
    """
    with Kernel(code, RUN, "hear()", by=other_clock(10**9), TMPDIR=str(tmp_path)) as it:
        assert it.heard() is True
        kind, message = it.heard()
        assert kind == "JobTimeoutError", message
        assert it.heard() == WELL
        ended(it, tmp_path)


# What a target does to itself.

TARGETS = {
    "chdir": ("os.chdir('/'); return 5", "", True),
    "umask": ("os.umask(0o777); print('x'); return 5", "x\n", True),
    "handlers": (
        "for n in set(signal.valid_signals()) - {9, 19}: signal.signal(n, signal.SIG_IGN)\n"
        "    print('x'); return 5",
        "x\n",
        True,
    ),
    "closed stdout": ("os.close(1); os.close(2); return 5", "", True),
    "another stdout": (
        "print('x'); os.dup2(os.open(os.devnull, os.O_WRONLY), 1); print('gone'); return 5",
        "x\n",
        True,
    ),
    "all closed": ("os.closerange(0, 1000); return 5", "", True),
    "all closed, and an error": ("os.closerange(0, 1000); raise ValueError('why')", "", "why"),
    "no environment": ("os.environ.clear(); return 5", "", True),
    "another program": ("os.execvp('true', ['true'])", "", "exited with status 0 before"),
    "an alarm": ("signal.alarm(1); time.sleep(600)", "", "was ended by SIGALRM"),
}


def test_what_a_target_does_to_itself(tmp_path, subtests):
    # One kernel for all: what one target does must not reach the next.
    code = ["os.chdir(os.environ['TMPDIR'])"]
    for index, (body, _, _) in enumerate(TARGETS.values()):
        code.append(f"def target{index}():\n    {body}")
        code.append(f"attempt(lambda: distlab.run(target{index}, 2, quiet=True, timeout=20))")
        code.append("say(distlab.last_job().log(0))")
        code.append("say(distlab.run(lambda: [os.getcwd(), os.umask(0o22)], 1, quiet=True))")
    before = os.umask(0o22)
    try:
        with Kernel(*code, "hear()", TMPDIR=str(tmp_path)) as it:
            for name, (_, printed, outcome) in TARGETS.items():
                with subtests.test(name):
                    kind, said = it.heard()
                    log, after = it.heard(), it.heard()
                    if outcome is True:
                        assert [kind, said] == WELL
                    else:
                        assert kind == "RankError"
                        assert outcome in said
                    assert log == printed
                    assert after == [[str(tmp_path), 0o22]]
            ended(it, tmp_path)
    finally:
        os.umask(before)


def test_a_target_that_ignores_every_signal_can_be_stopped(tmp_path):
    body = TARGETS["handlers"][0].replace("return 5", "time.sleep(600)")
    code = f"def target():\n    {body}\njob = distlab.launch(target, 2)"
    rest = "job.wait_for_output(0, 'x')\njob.cancel()\nsay([s.state for s in job.status])"
    with Kernel(code, rest, RUN, "hear()", TMPDIR=str(tmp_path)) as it:
        assert it.heard() == ["stopped", "stopped"]
        assert it.heard() == WELL
        ended(it, tmp_path)


# A hostile neighbour.

GROUPS = {
    "torch": """
    def target(stop):
        import torch, torch.distributed as dist
        dist.init_process_group("gloo")
        def summed(value):
            both = torch.tensor([value])
            dist.all_reduce(both)
            return int(both)
        return rounds(summed, stop)
    """,
    "jax": """
    def target(stop):
        import jax, jax.numpy as jnp
        from jax.experimental.multihost_utils import process_allgather
        jax.distributed.initialize()
        return rounds(lambda value: process_allgather(jnp.array([value])).sum(), stop)
    """,
}
ROUNDS = """
def rounds(summed, stop):
    done = 0
    while summed(int(os.path.exists(stop))) < 2:
        done += 1
        if done == 3:  # the group is formed
            print("joined", flush=True)
    return done
"""
ATTACK = r"""
import json, os, random, socket, sys
directory, pids, ports, user = json.loads(sys.argv[1])
"x".encode("idna")  # an import that a stranger may not do
if user is not None:
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
rubbish = [b"", bytes(1 << 16), b"\xff" * (1 << 16), b"GET / HTTP/1.0\r\n\r\n"]
rubbish += [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff", random.Random(0).randbytes(1 << 20)]
held = []
for address in ports:
    for each in rubbish * 3:
        connection = socket.create_connection(address, 5)
        connection.settimeout(1)
        try:
            connection.sendall(each)
        except OSError:
            pass  # hung up, or not reading
        held.append(connection)
read = []
names = ("fd", "environ", "mem")
for path in [directory, *(f"/proc/{pid}/{name}" for pid in pids for name in names)]:
    try:
        os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(1)
        read.append(path)
    except OSError:
        pass
print(json.dumps([len(held), read]), flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("framework", GROUPS)
def test_a_hostile_neighbour(framework, tmp_path):
    require(framework)
    stop = tmp_path / "stop"
    code = f"""
    job = distlab.launch(target, 2, "{framework}", args=[{str(stop)!r}], timeout=60)
    for rank in range(2):
        job.wait_for_output(rank, "joined")
    say([str(job._record.directory), [*supervisors(), *pids(job)]])
    hear()
    attempt(lambda: min(job.results()) >= 3)
    """
    with Kernel(ROUNDS, GROUPS[framework], code, "hear()", TMPDIR=str(tmp_path)) as it:
        directory, pids = it.heard()
        ports, others = set(), set()
        for pid in [it.process.pid, *family(it.process.pid)]:
            for each in psutil.Process(pid).net_connections("all"):
                if each.family == socket.AF_UNIX:
                    others.add(each.laddr)
                elif each.status == psutil.CONN_LISTEN:
                    ports.add((each.laddr.ip.removeprefix("::ffff:"), each.laddr.port))
        assert others <= {""}  # no socket that has a name
        assert {host for host, _ in ports} == {"127.0.0.1"}
        told = json.dumps([directory, pids, sorted(ports), STRANGER if ROOT else None])
        with subprocess.Popen(
            [sys.executable, "-c", ATTACK, told],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as stranger:
            connections, read = json.loads(stranger.stdout.readline())
            assert connections == 18 * len(ports)
            if ROOT:  # a user may read what is his own
                assert read == []
            stop.touch()
            it.tell()
            assert it.heard() == ["ok", True]
            stranger.communicate()
        stop.unlink()
        ended(it, tmp_path)
