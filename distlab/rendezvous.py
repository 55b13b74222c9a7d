"""What a rank must be told to find its group, and ports that nobody else takes meanwhile."""

import contextlib
import json
import os
import re
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"
ROLES = ("chief", "worker", "ps", "evaluator")
"""TensorFlow's task types, in the order in which ranks are numbered."""


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
    """

    def __init__(self, framework: str | None, tasks: list[Task], job: str, attempt: int) -> None:
        self.framework = framework
        self.tasks = tasks
        self.job = job
        self.attempt = attempt
        self._ports: dict[int, HeldPort] = {}
        if framework == "torch":
            self._ports[0] = HeldPort()
        elif framework == "jax":
            self._ports[0] = HeldPort(reuse=True)
        elif framework == "tensorflow":
            members = [rank for rank, task in enumerate(tasks) if task.role != "evaluator"]
            self._ports = {rank: HeldPort() for rank in members}

    def environment(self, rank: int) -> dict[str, str]:
        """The variables that tell `rank` who it is and where its group meets."""
        world_size = len(self.tasks)
        variables: dict[str, object] = {
            "RANK": rank,
            "WORLD_SIZE": world_size,
            "LOCAL_RANK": rank,
            "LOCAL_WORLD_SIZE": world_size,
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
        return {
            "MASTER_ADDR": HOST,
            "MASTER_PORT": self._ports[0].number,
            "GROUP_RANK": 0,
            "GROUP_WORLD_SIZE": 1,
            "ROLE_NAME": "default",
            "ROLE_RANK": rank,
            "ROLE_WORLD_SIZE": world_size,
            "TORCHELASTIC_RUN_ID": self.job,
            "TORCHELASTIC_RESTART_COUNT": self.attempt,
            "TORCHELASTIC_MAX_RESTARTS": 0,
            # Every rank joins the job's store as a client, rank 0 too.
            "TORCHELASTIC_USE_AGENT_STORE": True,
            # Gloo listens where the host name leads unless told otherwise.
            "GLOO_SOCKET_IFNAME": "lo" if sys.platform == "linux" else "lo0",
        }

    def _jax(self, rank: int, world_size: int) -> dict[str, object]:
        address = self._ports[0].address
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
        for member, port in sorted(self._ports.items()):
            cluster.setdefault(self.tasks[member].role, []).append(port.address)
        task = self.tasks[rank]
        return json.dumps({"cluster": cluster, "task": {"type": task.role, "index": task.index}})

    def store_socket(self) -> int | None:
        """A listening socket, now the caller's, for the ranks' store; None if they need none."""
        return self._ports[0].listen() if self.framework == "torch" else None

    def about_to_start(self, rank: int) -> None:
        """Free the port that `rank` is going to bind."""
        if self.framework == "tensorflow" and rank in self._ports:
            self._ports[rank].hand_over()

    def close(self) -> None:
        """Let go of every port."""
        for port in self._ports.values():
            port.close()


STALE = re.compile(
    r"(TF_CONFIG|MASTER_(ADDR|PORT)|(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|ROLE_NAME"
    r"|TORCHELASTIC_.*|JAX_COORDINATOR_.*|JAX_(NUM_PROCESSES|PROCESS_ID)|KERAS_DISTRIBUTION_.*)"
)
"""Variables of another group, which a new rank must not inherit."""


def share(
    rank: int, world_size: int, framework: str | None, environment: dict[str, str]
) -> dict[str, str]:
    """A rank's share of this machine's cores and GPUs, unless the user has shared them out.

    Cores become thread counts. GPUs: with at least one per rank, JAX and TensorFlow, which take
    all they see, are shown one each, and torch, which picks by LOCAL_RANK, is shown all; with
    fewer they are hidden.

    Args:
        rank: Which rank.
        world_size: How many there are.
        framework: As in `Rendezvous`.
        environment: What the rank starts from; a variable set there is left alone.

    Returns:
        The variables to add.
    """
    threads = str(max(1, core_count() // world_size))
    added = {name: threads for name in THREAD_VARIABLES if name not in environment}
    if framework == "jax" and "NPROC" not in environment:
        added["NPROC"] = threads  # XLA sizes its CPU thread pool by this
    visible = visible_gpus(environment)
    if framework is not None and visible:
        if len(visible) < world_size:
            added["CUDA_VISIBLE_DEVICES"] = "-1"
        elif framework != "torch":
            added["CUDA_VISIBLE_DEVICES"] = visible[rank]
    return added


def unproxied(environment: dict[str, str]) -> dict[str, str]:
    """The variable that keeps gRPC from asking a proxy for this very machine, if there is one.

    TensorFlow and JAX form their groups over gRPC, which otherwise sends even that through the
    proxy, and waits for ever.
    """
    if not {"grpc_proxy", "https_proxy", "http_proxy"} & set(environment):
        return {}
    others = environment.get("no_grpc_proxy") or environment.get("no_proxy")
    return {"no_grpc_proxy": ",".join(filter(None, (others, HOST)))}


THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def core_count() -> int:
    """Cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def visible_gpus(environment: dict[str, str]) -> list[str]:
    """NVIDIA GPUs a process with this environment would see, as CUDA names them."""
    present = [p.name for p in Path("/dev").glob("nvidia*") if re.fullmatch(r"nvidia\d+", p.name)]
    everything = [str(index) for index in range(len(present))]
    named = environment.get("CUDA_VISIBLE_DEVICES")
    if named is None or not present:
        return everything
    return [name.strip() for name in named.split(",") if name.strip() not in ("", "-1")]
