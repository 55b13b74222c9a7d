"""How the ranks of one attempt find each other, and stay as long as one needs another."""

import json
import os
import signal
import time
from collections.abc import Callable

from distlab.launching.processes import JOB_VARIABLE
from distlab.launching.protocol.messages import Launch
from distlab.launching.protocol.tasks import Part
from distlab.launching.protocol.variables import STALE
from distlab.launching.supervisor.resources import share, unproxied
from distlab.ports import HeldPort, interface_of
from distlab.ranks import jax_variables

BARRIER = "TORCH_DIST_INIT_BARRIER"
"""With 1 no rank of PyTorch goes on before all have formed their group."""


def hold_ports(request: Launch, part: Part) -> dict[int, HeldPort]:
    """Hold a port for each rank of a part of a job that others of it look for."""
    members: list[int] = []
    if request.framework in ("torch", "jax"):
        members = [0]
    elif request.framework == "tensorflow":
        members = [rank for rank, task in enumerate(request.tasks) if task.role != "evaluator"]
    reuse = request.framework == "jax"
    return {rank: HeldPort(reuse, part.host) for rank in members if rank in part.ranks}


class Rendezvous:
    """What one attempt of one job has open, and what its ranks are told of it.

    Args:
        request: The job.
        part: Which ranks are started from here.
        attempt: How often the job was started before, from 0.

    Attributes:
        since: When it began, in seconds of `time.time`.
        addresses: Where the ranks listen that others look for.
        listening: A socket that the store is to be started on when a rank looks for it.
        store: The process id of the store through which torch ranks find each other, if it is here.

    Raises:
        OSError: If there are no ports for it, or no descriptors.
    """

    def __init__(self, request: Launch, part: Part, attempt: int) -> None:
        self._request = request
        self._part = part
        self._attempt = attempt
        self.since = time.time()
        self.listening: int | None = None
        self.store: int | None = None
        self.addresses = part.addresses
        self._ports = {rank: HeldPort(descriptor=held) for rank, held in part.ports.items()}
        if not self.addresses:
            self._ports = hold_ports(request, part)
            self.addresses = {rank: port.address for rank, port in self._ports.items()}

    def environment(self, rank: int) -> dict[str, str]:
        """All variables of `rank`: those of the job, and what tells it its place and its share."""
        request, overrides = self._request, self._request.overrides
        base = {k: v for k, v in request.environment.items() if not STALE.fullmatch(k)}
        base[JOB_VARIABLE] = request.job
        hosts = {address.rpartition(":")[0] for address in self.addresses.values()}
        base |= unproxied(base | overrides, hosts | {self._part.host})
        base |= share(rank, self._part, request.framework, base | overrides)
        return base | self._place(rank) | overrides

    def _place(self, rank: int) -> dict[str, str]:
        """The variables that tell `rank` who it is and where its group meets."""
        world_size = len(self._request.tasks)
        variables: dict[str, object] = {
            "RANK": rank,
            "WORLD_SIZE": world_size,
            "LOCAL_RANK": self._part.ranks.index(rank),
            "LOCAL_WORLD_SIZE": len(self._part.ranks),
            "GROUP_RANK": self._part.node,
            "GROUP_WORLD_SIZE": self._part.nodes,
        }
        if self._request.framework == "torch":
            variables |= self._torch(rank, world_size)
        elif self._request.framework == "jax":
            variables |= self._jax(rank, world_size)
        elif self._request.framework == "tensorflow":
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
            "TORCHELASTIC_RUN_ID": self._request.job,
            "TORCHELASTIC_RESTART_COUNT": self._attempt,
            "TORCHELASTIC_MAX_RESTARTS": 0,
            # Every rank joins the job's store as a client, rank 0 too.
            "TORCHELASTIC_USE_AGENT_STORE": True,
            # A rank that returns at once would close connections while others still make theirs.
            BARRIER: self._request.environment.get(BARRIER, 1),
        }
        # Gloo listens where the host name leads unless told otherwise.
        if interface := interface_of(self._part.host):
            variables["GLOO_SOCKET_IFNAME"] = interface
        return variables

    def _jax(self, rank: int, world_size: int) -> dict[str, object]:
        address = self.addresses[0]
        bind: dict[str, object] = {"JAX_COORDINATOR_BIND_ADDRESS": address}
        return bind | jax_variables(address, world_size, rank)

    def _tf_config(self, rank: int) -> str:
        cluster: dict[str, list[str]] = {}
        for member, address in sorted(self.addresses.items()):
            cluster.setdefault(self._request.tasks[member].role, []).append(address)
        task = self._request.tasks[rank]
        return json.dumps({"cluster": cluster, "task": {"type": task.role, "index": task.index}})

    def listen(self) -> int | None:
        """Listen for ranks that look for the store, if it is to be here; a socket's descriptor."""
        if self._request.framework == "torch" and 0 in self._ports:
            self.listening = self._ports[0].listen()
        return self.listening

    def start_store(self, start: Callable[[int], int]) -> None:
        """Start the store, on the socket that listens."""
        assert self.listening is not None
        listening, self.listening = self.listening, None
        try:
            self.store = start(listening)
        except OSError:
            os.close(listening)
            raise
        os.close(listening)

    def about_to_start(self, rank: int) -> bool:
        """Free the port that `rank` is going to bind; whether it is to stay for the others."""
        if self._request.framework == "tensorflow" and rank in self._ports:
            self._ports[rank].hand_over()
        return self._request.framework == "tensorflow" and len(self._request.tasks) > 1

    def close(self) -> None:
        """Let go of every port and of the store."""
        self.leave()
        if self.store is not None:
            os.kill(self.store, signal.SIGKILL)
            self.store = None

    def leave(self) -> None:
        """Close what is the supervisor's: a forked process does it, too."""
        if self.listening is not None:
            os.close(self.listening)
            self.listening = None
        for port in self._ports.values():
            port.close()
