"""What the variables of this process say about its place in a group, one launcher at a time."""

import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

ROLES = ("chief", "master", "worker", "ps", "evaluator")
"""TensorFlow's task types, in the order in which ranks are numbered."""


@dataclass(frozen=True)
class Claim:
    """What one launcher says.

    Attributes:
        launcher: Who says it.
        rank: This process's number, from 0.
        world_size: How many processes there are.
        local_rank: Its number among those on its node; None where the launcher does not say.
        local_world_size: How many there are on its node; likewise.
        node: The number of its node; likewise.
        coordinator: Where the group meets, `"host:port"` or `"host"`; likewise.
        variables: What was read.
    """

    launcher: str
    rank: int
    world_size: int
    local_rank: int | None = None
    local_world_size: int | None = None
    node: int | None = None
    coordinator: str | None = None
    variables: tuple[str, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        seen = ", ".join(self.variables)
        return f"{self.launcher}: rank {self.rank} of {self.world_size} ({seen})"


class _Reader:
    """Reads variables and remembers which, for messages."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment
        self.read: list[str] = []

    def text(self, name: str) -> str | None:
        value = self.environment.get(name) or None
        if value is not None:
            self.read.append(f"{name}={value}" if len(value) <= 60 else f"{name}=...")
        return value

    def number(self, *names: str) -> int | None:
        """The first of these variables that is set, as a number from 0 on."""
        for name in names:
            value = self.text(name)
            if value is not None:
                if not value.isdecimal():
                    raise ValueError(f"{name} is {value!r}; expected a number from 0 on.")
                return int(value)
        return None

    def pair(self, launcher: str, rank: str, world_size: str) -> tuple[int, int] | None:
        """Rank and world size; None if neither is set."""
        numbers = self.number(rank), self.number(world_size)
        if numbers == (None, None):
            return None
        if numbers[0] is None or numbers[1] is None:
            missing = rank if numbers[0] is None else world_size
            raise ValueError(
                f"{launcher}: {', '.join(self.read)}, but {missing} is not set. "
                "Set both, or neither."
            )
        if numbers[0] >= numbers[1]:
            raise ValueError(
                f"{launcher}: {', '.join(self.read)}; a rank is less than the world size."
            )
        return numbers[0], numbers[1]


def _torch(reader: _Reader) -> Claim | None:
    # https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables
    elastic = "TORCHELASTIC_RUN_ID" in reader.environment
    name = "torchrun" if elastic else "RANK and WORLD_SIZE"
    pair = reader.pair(name, "RANK", "WORLD_SIZE")
    if pair is None:
        return None
    host, port = reader.text("MASTER_ADDR"), reader.text("MASTER_PORT")
    local, locals_ = reader.number("LOCAL_RANK"), reader.number("LOCAL_WORLD_SIZE")
    node = reader.number("GROUP_RANK", "NODE_RANK")
    coordinator = f"{host}:{port}" if host and port else host
    return Claim(name, *pair, local, locals_, node, coordinator, tuple(reader.read))


def _tensorflow(reader: _Reader) -> Claim | None:
    # https://www.tensorflow.org/guide/distributed_training#setting_up_the_tf_config_environment_variable
    value = reader.text("TF_CONFIG")
    if value is None or not value.strip():
        return None
    try:
        config = json.loads(value)
        cluster = {role: list(config["cluster"][role]) for role in config["cluster"]}
        role, index = str(config["task"]["type"]), int(config["task"].get("index", 0))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"TF_CONFIG is {value!r}; expected JSON such as "
            '{"cluster": {"worker": ["host:port"]}, "task": {"type": "worker", "index": 0}}.'
        ) from error
    if not cluster:  # TensorFlow, too, takes that for a process of its own
        return None
    members = [(kind, i) for kind in ROLES for i in range(len(cluster.get(kind, ())))]
    if role == "evaluator" and "evaluator" not in cluster:  # it is no member of the cluster
        members.append((role, index))
    if (role, index) not in members:
        raise ValueError(f"TF_CONFIG is {value!r}; its task {role} {index} is not in its cluster.")
    rank = members.index((role, index))
    addresses = [str(cluster[kind][i]) for kind, i in members if kind in cluster]
    if rank >= len(addresses):
        return Claim("TF_CONFIG", rank, len(members), variables=("TF_CONFIG",))
    hosts = [address.rsplit(":", 1)[0] for address in addresses]
    neighbours = [i for i, host in enumerate(hosts) if host == hosts[rank]]
    node = list(dict.fromkeys(hosts)).index(hosts[rank])
    local = neighbours.index(rank), len(neighbours), node
    return Claim("TF_CONFIG", rank, len(members), *local, addresses[0], ("TF_CONFIG",))


def _jax(reader: _Reader) -> Claim | None:
    # https://docs.jax.dev/en/latest/_autosummary/jax.distributed.initialize.html
    pair = reader.pair("JAX's variables", "JAX_PROCESS_ID", "JAX_NUM_PROCESSES")
    if pair is None:
        return None
    coordinator = reader.text("JAX_COORDINATOR_ADDRESS")
    return Claim("JAX's variables", *pair, None, None, None, coordinator, tuple(reader.read))


def _open_mpi(reader: _Reader) -> Claim | None:
    # https://docs.open-mpi.org/en/main/tuning-apps/environment-var.html
    pair = reader.pair("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")
    if pair is None:
        return None
    local = reader.number("OMPI_COMM_WORLD_LOCAL_RANK")
    locals_ = reader.number("OMPI_COMM_WORLD_LOCAL_SIZE")
    host = reader.text("MASTER_ADDR")
    return Claim("Open MPI", *pair, local, locals_, None, host, tuple(reader.read))


def _hydra(reader: _Reader) -> Claim | None:
    # MPICH and Intel MPI; Slurm sets the first two as well, with `srun --mpi=pmi2`.
    pair = reader.pair("MPI's process manager", "PMI_RANK", "PMI_SIZE")
    if pair is None:
        return None
    local, locals_ = reader.number("MPI_LOCALRANKID"), reader.number("MPI_LOCALNRANKS")
    host = reader.text("MASTER_ADDR")
    return Claim("MPI's process manager", *pair, local, locals_, None, host, tuple(reader.read))


def _slurm(reader: _Reader) -> Claim | None:
    # https://slurm.schedmd.com/srun.html#SECTION_OUTPUT-ENVIRONMENT-VARIABLES
    # In a batch script, outside srun, there is an allocation but no step, and so no ranks.
    if "SLURM_STEP_NUM_TASKS" not in reader.environment:
        return None
    pair = reader.pair("Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS")
    assert pair is not None
    local, node = reader.number("SLURM_LOCALID"), reader.number("SLURM_NODEID")
    counts = slurm_tasks(reader.text("SLURM_STEP_TASKS_PER_NODE") or "")
    locals_ = counts[node] if node is not None and node < len(counts) else None
    nodes = reader.text("SLURM_STEP_NODELIST")
    distribution = reader.text("SLURM_DISTRIBUTION") or ""
    # Rank 0 is on the first node, unless each rank's node was chosen by hand.
    by_hand = distribution.startswith("arbitrary") and len(counts) > 1
    host = slurm_hosts(nodes)[0] if nodes and not by_hand else None
    return Claim("Slurm", *pair, local, locals_, node, host, tuple(reader.read))


def slurm_tasks(text: str) -> list[int]:
    """Return tasks per node as Slurm writes them: `"2(x3),1"` is three nodes with 2, one with 1."""
    counts: list[int] = []
    for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        counts += [int(count)] * int(times or 1)
    return counts


def slurm_nodes(counts: list[int], environment: Mapping[str, str]) -> list[int]:
    """Return the number of each rank's node, as srun's `--distribution` deals the ranks out.

    Args:
        counts: The tasks per node.
        environment: The variables of one task.

    Raises:
        RuntimeError: If they are dealt out in another way than in blocks or in turn.
    """
    way = environment.get("SLURM_DISTRIBUTION") or "block"
    if re.match(r"cyclic\b", way):
        turns = sorted((turn, node) for node, count in enumerate(counts) for turn in range(count))
        dealt = [node for _, node in turns]
    else:
        dealt = [node for node, count in enumerate(counts) for _ in range(count)]
    here, of_here = environment.get("SLURM_NODEID"), environment.get("SLURM_GTIDS")
    if here and of_here:
        own = ",".join(str(rank) for rank, node in enumerate(dealt) if node == int(here))
    if not re.match(r"(block|cyclic)\b", way) or (here and of_here and own != of_here):
        raise RuntimeError(
            f"Slurm's distribution of the ranks over the nodes is not known (SLURM_DISTRIBUTION="
            f"{way}, SLURM_GTIDS={of_here}): start them with srun --distribution=block."
        )
    return dealt


def slurm_hosts(nodes: str) -> list[str]:
    """Return the host names of a node list such as `"gpu[1-3,7]"`.

    Raises:
        RuntimeError: If it needs `scontrol` to be taken apart and that fails.
    """
    if "[" not in nodes:
        return nodes.split(",")
    command = ["scontrol", "show", "hostnames", nodes]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise RuntimeError(f"Slurm's node list {nodes!r} can't be read: {error}") from error
    return done.stdout.split()


READERS: tuple[Callable[[_Reader], Claim | None], ...] = (
    _torch,
    _tensorflow,
    _jax,
    _open_mpi,
    _hydra,
    _slurm,
)
_SCHEDULERS = (_open_mpi, _hydra, _slurm)


def places(environment: Mapping[str, str] | None = None) -> list[Claim]:
    """Return what each launcher says that left variables here, the innermost first.

    Within torchrun, what a scheduler outside it says is about torchrun's own process, so it does
    not count.

    Args:
        environment: The variables; by default those of this process.

    Raises:
        ValueError: If one of them is incomplete, contradicts itself or can't be understood.
    """
    environment = os.environ if environment is None else environment
    nested = "TORCHELASTIC_RUN_ID" in environment
    readers = [reader for reader in READERS if not (nested and reader in _SCHEDULERS)]
    found = [reader(_Reader(environment)) for reader in readers]
    return [place for place in found if place is not None]
