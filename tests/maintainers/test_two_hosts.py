"""Groups across two hosts that have addresses of their own, and what a cut link does to them."""

import functools
import json
import os
import re
import sys
import time
from pathlib import Path

import _training
import numpy as np
import pytest
from _namespaces import ADDRESSES, TwoHosts
from _processes import require
from _training import network, serial_losses

import distlab
from distlab.launching.protocol.variables import STALE

pytestmark = pytest.mark.needs("hosts")
SCRIPT = Path(_training.__file__)
PORT = 29500  # free, as all are on a host just made
LIMIT = 120
STEPS = 1500


@pytest.fixture
def hosts():
    with TwoHosts() as hosts:
        yield hosts


def environment(**variables):
    kept = {name: value for name, value in os.environ.items() if not STALE.fullmatch(name)}
    kept.pop("GLOO_SOCKET_IFNAME", None)  # which is what distlab is to find out
    known = {"CUDA_VISIBLE_DEVICES": "-1", "no_grpc_proxy": ",".join(ADDRESSES)}
    return kept | known | variables


def told(framework, host):
    """The variables of the only rank on a host, where nobody but us sets them."""
    if framework == "tensorflow":
        cluster = {"worker": [f"{address}:{PORT}" for address in ADDRESSES]}
        task = {"type": "worker", "index": host}
        return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}
    place = {"RANK": host, "WORLD_SIZE": 2, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1}
    meeting = {"MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": PORT}
    return {name: str(value) for name, value in (place | meeting | {"NODE_RANK": host}).items()}


def torchrun(*options):
    return [sys.executable, "-m", "torch.distributed.run", *options]


def answers(*outputs):
    """What the ranks say at the end of their training, in rank order."""
    lines = [line for output in outputs for line in output.splitlines()]
    found = [json.loads(line) for line in lines if line.startswith('{"rank"')]
    return sorted(found, key=lambda one: one["rank"])


def wait_for(condition, processes, logs):
    """Wait until that holds, or one of the processes has failed."""
    deadline = time.monotonic() + LIMIT
    while not condition() and not any(process.poll() for process in processes):
        assert time.monotonic() < deadline, [log.read_text() for log in logs]
        time.sleep(0.05)


@functools.cache
def one_host(framework):
    """What two ranks on one host say."""
    return distlab.run(_training.main, 2, framework, args=(framework, STEPS), quiet=True)


@pytest.mark.parametrize(
    ("framework", "starter"),
    [
        ("torch", "torchrun"),
        ("jax", "torchrun"),
        ("tensorflow", "torchrun"),
        ("tensorflow", "TF_CONFIG"),
    ],
)
def test_losses_of_two_hosts_are_those_of_one_and_a_link_that_comes_back_costs_only_time(
    tmp_path, hosts, framework, starter
):
    require("torch")
    require(framework)
    logs = [tmp_path / f"host{host}" for host in range(2)]
    started = []
    for host, log in enumerate(logs):
        if starter == "torchrun":
            meeting = [f"--master-addr={ADDRESSES[0]}", f"--master-port={PORT}"]
            command = torchrun("--nnodes=2", f"--node-rank={host}", "--nproc-per-node=1", *meeting)
            variables = environment()
        else:
            command = [sys.executable]
            variables = environment(**told(framework, host))
        command += [SCRIPT, framework, STEPS]
        started.append(hosts.start(host, *command, log=log, env=variables))
    wait_for(lambda: all("step 50" in log.read_text() for log in logs), started, logs)
    hosts.cut()
    time.sleep(1)
    hosts.mend()
    wait_for(lambda: all(one.poll() is not None for one in started), started, logs)
    print(*(log.read_text() for log in logs), sep="\n")  # which pytest shows whole where it fails
    assert [process.poll() for process in started] == [0, 0]
    two = answers(*(log.read_text() for log in logs))
    one = one_host(framework)

    places = ("rank", "world_size", "launcher", "node", "addresses")
    assert [tuple(rank[name] for name in places) for rank in two] == [
        (host, 2, starter, host, ["127.0.0.1", ADDRESSES[host]]) for host in range(2)
    ]
    assert [(rank["rank"], rank["node"]) for rank in one] == [(0, 0), (1, 0)]
    assert len({network(), *(rank["network"] for rank in two)}) == 3
    assert {rank["network"] for rank in one} == {network()}
    assert min(rank["longest step"] for rank in two) > 0.5  # while the link was cut

    # To the last bit: a sum of two does not depend on their order.
    assert two[0]["losses"] == two[1]["losses"] == one[0]["losses"] == one[1]["losses"]
    np.testing.assert_allclose(two[0]["losses"][:60], serial_losses(60), rtol=1e-4)
    np.testing.assert_allclose(two[0]["losses"], serial_losses(STEPS), rtol=1e-3)


def become(command, variables):
    for name in [name for name in os.environ if STALE.fullmatch(name)]:
        del os.environ[name]
    os.environ.update(variables)
    os.execvp(command[0], command)


def launch(hosts, host, framework, *arguments):
    """The rank of a host as a job of distlab, as on two hosts each has its own."""
    command = hosts.command(host, sys.executable, SCRIPT, framework, *arguments)
    return distlab.launch(become, 1, args=(command, environment(**told(framework, host))))


PATIENCE = {"torch": 4, "jax": 4, "tensorflow": 10}
"""Seconds of silence; TensorFlow's are what it has where nothing sets them."""
SAYS = {
    "torch": ("exited with status 1", r"RuntimeError: .*Timed out waiting 4000ms"),
    "jax": (
        "was ended by SIGABRT (native code gave up)",
        r"(stopped sending heartbeats|DEADLINE_EXCEEDED)",
    ),
    "tensorflow": (
        "exited with status 1",
        r"Collective ops is aborted by: .*(stopped sending heartbeats|Deadline Exceeded)",
    ),
}


@pytest.mark.parametrize("framework", PATIENCE)
def test_a_cut_link_ends_the_ranks_of_both_hosts(hosts, framework, record_testsuite_property):
    """Nobody is told that a link is cut: silence must last for as long as a rank is patient."""
    require(framework)
    patience = PATIENCE[framework]
    training = (framework, 10**9, patience)
    with launch(hosts, 0, *training) as first, launch(hosts, 1, *training) as second:
        for job in (first, second):
            job.wait_for_output(0, "step 50", timeout=LIMIT)
        hosts.cut()
        cut = time.monotonic()
        for host, job in enumerate((first, second)):
            with pytest.raises(distlab.RankError) as caught:
                job.results(timeout=60)
            name = f"seconds until distlab says so, {framework}, host {host}"
            record_testsuite_property(name, round(job.status[0].ended - cut, 1))
            (failure,) = caught.value.failures
            how, message = SAYS[framework]
            assert failure.what == how
            assert re.search(message, job.log(0, include_framework_logs=True))
