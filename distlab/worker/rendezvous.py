"""What a rank must be told to find its group, and ports that nobody else takes meanwhile."""

import contextlib
import json
import re
import socket
import sys
from dataclasses import dataclass

HOST = "127.0.0.1"
ROLES = ("chief", "worker", "ps", "evaluator")
"""TensorFlow's task types, in the order in which ranks are numbered."""


@dataclass(frozen=True)
class Part:
    """The ranks of a job that one supervisor starts, and where: all of them, at home.

    Attributes:
        ranks: Which ranks these are.
        host: The address of their node, at which the other ranks reach them.
        node: The number of that node among those of the job, from 0.
        nodes: How many nodes there are.
        on_node: All ranks of the job on that node, which another supervisor may share.
    """

    ranks: list[int]
    host: str
    node: int
    nodes: int
    on_node: list[int]


def whole(world_size: int) -> Part:
    """All ranks of a job, on this machine."""
    ranks = list(range(world_size))
    return Part(ranks, HOST, 0, 1, ranks)


@dataclass(frozen=True)
class Task:
    """The place of one rank in its job: its task type and its index among those of that type."""

    role: str
    index: int

    def __str__(self) -> str:
        return f"{self.role} {self.index}"


def services(tasks: list[Task]) -> set[int]:
    """Ranks that never end by themselves: where there are parameter servers, all but the chief."""
    roles = {task.role for task in tasks}
    serving = {"ps", "worker"} if {"ps", "chief"} <= roles else set()
    return {rank for rank, task in enumerate(tasks) if task.role in serving}


class HeldPort:
    """A port of this machine that stays ours until the process it is meant for takes it.

    Args:
        reuse: Set `SO_REUSEPORT`, so that a process which sets it too can bind the port while it
            is held. Without it the port must be handed over first.
        host: The address it is on.
    """

    def __init__(self, reuse: bool = False, host: str = HOST) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if reuse:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._socket.bind((host, 0))
        self.number: int = self._socket.getsockname()[1]
        self.address = f"{host}:{self.number}"

    def listen(self) -> int:
        """Start to listen, and give the descriptor away: from now on connections queue."""
        self._socket.listen(128)
        return self._socket.detach()

    def hand_over(self) -> None:
        """Free the port for a server that does not set `SO_REUSEPORT`.

        A connection closed from this side leaves the port in TIME_WAIT for a minute. The system
        gives such a port to nobody who asks for any free one, while a server that names it and
        sets `SO_REUSEADDR`, as gRPC does, may bind it.
        """
        if self._socket.fileno() < 0:
            return
        # Not before: while it is held, such a port could be bound by others.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.listen(1)
        with socket.create_connection(self._socket.getsockname()):
            accepted, _ = self._socket.accept()
            accepted.close()
        # Ranks forked just now may hold a copy, which would go on listening when ours is closed.
        with contextlib.suppress(OSError):  # not on macOS, where there are no forks either
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def close(self) -> None:
        """Let go of the port."""
        self._socket.close()


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


STALE = re.compile(
    r"(TF_CONFIG|MASTER_(ADDR|PORT)|(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|ROLE_NAME"
    r"|TORCHELASTIC_.*|JAX_COORDINATOR_.*|JAX_(NUM_PROCESSES|PROCESS_ID)|KERAS_DISTRIBUTION_.*)"
)
"""Variables of another group, which a new rank must not inherit."""
