"""A Ray cluster of two nodes on this machine, in a process of its own, for tests."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

_CLUSTER = """
import json, sys, time
from ray.cluster_utils import Cluster

def tell(**words):
    sys.stdout.write(json.dumps(words) + "\\n")
    sys.stdout.flush()

# The head waits 15 s, and no longer, for an agent to come up: less beside it, less in its way.
own = dict(num_cpus=2, include_dashboard=False, include_log_monitor=False, no_monitor=True)
cluster = Cluster(
    initialize_head=True, shutdown_at_exit=True,
    head_node_args=own | dict(node_ip_address="127.0.0.2"),
)

def second(tries=3):
    # Ray gives a node 30 s to start, which on a busy machine may be too few.
    while True:
        tries -= 1
        try:
            return cluster.add_node(**own, node_ip_address="127.0.0.3")
        except Exception:
            if not tries:
                raise

def taken():
    has, free = cluster.global_state.cluster_resources(), cluster.global_state.available_resources()
    return has["CPU"] - free.get("CPU", 0)

node = second()
tell(address=cluster.address)
for line in sys.stdin:
    deadline = time.monotonic() + 30
    if line == "remove\\n":
        cluster.remove_node(node)
    else:
        while taken() and time.monotonic() < deadline:
            time.sleep(0.1)
    tell(taken=taken())
cluster.shutdown()
"""


class RayCluster:
    """Two nodes with two CPUs each, 127.0.0.2 and 127.0.0.3."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log
        self.address: str = self._hear()["address"]

    def remove_node(self) -> None:
        """Take the second node away."""
        self._ask("remove")

    def taken(self) -> float:
        """How many CPUs are taken, once nothing changes any more."""
        return self._ask("wait")

    def _ask(self, what: str) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(what + "\n")
        self._process.stdin.flush()
        return self._hear()["taken"]

    def _hear(self) -> dict:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        status, said = self._process.wait(), self._log.read_text(errors="replace")
        raise RuntimeError(f"Ray's cluster ended with {status}. It said:\n{said[-4000:]}")


@contextlib.contextmanager
def two_nodes() -> Iterator[RayCluster]:
    """Start the cluster, which may need more than one try; end it on the way out."""
    with contextlib.ExitStack() as stack:
        for last in (False, False, True):
            with contextlib.ExitStack() as started:
                try:
                    cluster = _start(started)
                except RuntimeError:
                    if last:
                        raise
                else:
                    stack.push(started.pop_all())
                    break
        yield cluster


def _start(stack: contextlib.ExitStack) -> RayCluster:
    own = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    own["RAY_raylet_start_wait_time_s"] = "60"  # 30 are not enough beside other tests
    own["RAY_prestart_worker_first_driver"] = "0"  # with variables of its own no job takes them
    directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="ray-"))
    # All that Ray writes, the address of the cluster too, which it would leave in /tmp/ray.
    own["RAY_TMPDIR"] = directory
    log = Path(directory, "stderr")
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", _CLUSTER],
            env=os.environ | own,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            start_new_session=True,
        )
    stack.callback(process.communicate, timeout=60)
    return RayCluster(process, log)
