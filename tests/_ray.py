"""A Ray cluster of two nodes on this machine, in a process of its own, for tests."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

_CLUSTER = """
import json, sys
from ray.cluster_utils import Cluster

def tell(**words):
    sys.stdout.write(json.dumps(words) + "\\n")
    sys.stdout.flush()

own = dict(num_cpus=2, include_dashboard=False, temp_dir=sys.argv[1])
cluster = Cluster(
    initialize_head=True, shutdown_at_exit=True,
    head_node_args=own | dict(node_ip_address="127.0.0.2"),
)
nodes = [cluster.add_node(num_cpus=2, node_ip_address="127.0.0.3")]
tell(address=cluster.address)
for line in sys.stdin:
    if line == "remove\\n":
        cluster.remove_node(nodes.pop())
    else:
        nodes.append(cluster.add_node(num_cpus=2, node_ip_address="127.0.0.3"))
    tell(nodes=len(nodes))
cluster.shutdown()
"""


class RayCluster:
    """Two nodes with two CPUs each, 127.0.0.2 and 127.0.0.3; the second comes and goes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.address: str = self._hear()["address"]

    def remove(self) -> None:
        """Take the second node away."""
        self._ask("remove")

    def add(self) -> None:
        """Bring it back."""
        self._ask("add")

    def _ask(self, what: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(what + "\n")
        self._process.stdin.flush()
        assert "nodes" in self._hear()

    def _hear(self) -> dict:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise RuntimeError(f"The cluster's process ended with {self._process.wait()}.")


@contextlib.contextmanager
def two_nodes() -> Iterator[RayCluster]:
    """Start the cluster; end it on the way out."""
    own = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    with tempfile.TemporaryDirectory(prefix="ray-") as directory:
        process = subprocess.Popen(
            [sys.executable, "-c", _CLUSTER, directory],
            env=os.environ | own,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        try:
            yield RayCluster(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)
