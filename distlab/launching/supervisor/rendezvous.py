"""What a rank must be told to find its group."""

import json
import sys

from distlab.launching.protocol.tasks import Part, Task, whole
from distlab.ports import HeldPort


class Rendezvous:
    """One attempt of one job: its ports, and the variables each of its ranks is given.

    Args:
        framework: `"torch"`, `"tensorflow"`, `"jax"` or None for plain processes.
        tasks: One per rank, in rank order.
        job: The job's name, the same on every rank.
        attempt: How often the job was started before, from 0.
        part: Which ranks are started from here. If not all are, `meet` must be called.
    """

    def __init__(
        self,
        framework: str | None,
        tasks: list[Task],
        job: str,
        attempt: int,
        part: Part | None = None,
    ) -> None:
        self.framework = framework
        self.tasks = tasks
        self.job = job
        self.attempt = attempt
        self.part = part or whole(len(tasks))
        members: list[int] = []
        if framework in ("torch", "jax"):
            members = [0]
        elif framework == "tensorflow":
            members = [rank for rank, task in enumerate(tasks) if task.role != "evaluator"]
        self._ports = {
            rank: HeldPort(reuse=framework == "jax", host=self.part.host)
            for rank in members
            if rank in self.part.ranks
        }
        self.addresses = {rank: port.address for rank, port in self._ports.items()}
        """Where the ranks of this part listen that others look for."""

    def meet(self, addresses: dict[int, str]) -> None:
        """Take note of where the ranks of the other parts listen."""
        self.addresses |= addresses

    @property
    def hosts(self) -> set[str]:
        """The addresses of all nodes known here."""
        others = {address.rpartition(":")[0] for address in self.addresses.values()}
        return {self.part.host} | others

    def environment(self, rank: int) -> dict[str, str]:
        """The variables that tell `rank` who it is and where its group meets."""
        world_size = len(self.tasks)
        variables: dict[str, object] = {
            "RANK": rank,
            "WORLD_SIZE": world_size,
            "LOCAL_RANK": self.part.on_node.index(rank),
            "LOCAL_WORLD_SIZE": len(self.part.on_node),
            "GROUP_RANK": self.part.node,
            "GROUP_WORLD_SIZE": self.part.nodes,
        }
        if self.framework == "torch":
            variables |= self._torch(rank, world_size)
        elif self.framework == "jax":
            variables |= self._jax(rank, world_size)
        elif self.framework == "tensorflow":
            variables["TF_CONFIG"] = self._tf_config(rank)
        return {name: str(value) for name, value in variables.items()}

    def _torch(self, rank: int, world_size: int) -> dict[str, object]:
        # The variables of torchrun: https://docs.pytorch.org/docs/stable/elastic/run.html
        host, _, port = self.addresses[0].rpartition(":")
        variables: dict[str, object] = {
            "MASTER_ADDR": host,
            "MASTER_PORT": port,
            "ROLE_NAME": "default",
            "ROLE_RANK": rank,
            "ROLE_WORLD_SIZE": world_size,
            "TORCHELASTIC_RUN_ID": self.job,
            "TORCHELASTIC_RESTART_COUNT": self.attempt,
            "TORCHELASTIC_MAX_RESTARTS": 0,
            # Every rank joins the job's store as a client, rank 0 too.
            "TORCHELASTIC_USE_AGENT_STORE": True,
        }
        # Gloo listens where the host name leads unless told otherwise.
        if interface := interface_of(self.part.host):
            variables["GLOO_SOCKET_IFNAME"] = interface
        return variables

    def _jax(self, rank: int, world_size: int) -> dict[str, object]:
        address = self.addresses[0]
        return {
            "JAX_COORDINATOR_ADDRESS": address,
            "JAX_COORDINATOR_BIND_ADDRESS": address,
            "JAX_NUM_PROCESSES": world_size,
            "JAX_PROCESS_ID": rank,
            "KERAS_DISTRIBUTION_JOB_ADDRESSES": address,
            "KERAS_DISTRIBUTION_NUM_PROCESSES": world_size,
            "KERAS_DISTRIBUTION_PROCESS_ID": rank,
        }

    def _tf_config(self, rank: int) -> str:
        cluster: dict[str, list[str]] = {}
        for member, address in sorted(self.addresses.items()):
            cluster.setdefault(self.tasks[member].role, []).append(address)
        task = self.tasks[rank]
        return json.dumps({"cluster": cluster, "task": {"type": task.role, "index": task.index}})

    def store_socket(self) -> int | None:
        """A listening socket, now the caller's, for the ranks' store; None if it is not here."""
        here = self.framework == "torch" and 0 in self._ports
        return self._ports[0].listen() if here else None

    def about_to_start(self, rank: int) -> None:
        """Free the port that `rank` is going to bind."""
        if self.framework == "tensorflow" and rank in self._ports:
            self._ports[rank].hand_over()

    def close(self) -> None:
        """Let go of every port."""
        for port in self._ports.values():
            port.close()


def interface_of(host: str) -> str | None:
    """The network interface that has an address; None if none has."""
    if host.startswith("127."):
        return "lo" if sys.platform == "linux" else "lo0"
    import psutil

    for name, addresses in psutil.net_if_addrs().items():
        if any(address.address == host for address in addresses):
            return str(name)
    return None
