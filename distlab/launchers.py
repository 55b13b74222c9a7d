"""What the variables of this process say about its place in a group, one launcher at a time."""

import json
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

ROLES = ("chief", "worker", "ps", "evaluator")
"""TensorFlow's task types, in the order in which ranks are numbered."""


@dataclass(frozen=True)
class Claim:
    """What one launcher says of a process, as in `ranks.RankInfo`; None where it does not say.

    Attributes:
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


@dataclass(frozen=True)
class Launcher:
    """The variables by which a launcher tells a process its place; empty where it has none.

    Attributes:
        node: Of several the first that is set.
        when: It has started this process only where this is set, too.
        unless: It has not where this is set.
        more: What follows from others of its variables, by the names of `Claim`.
    """

    name: str
    rank: str
    world_size: str
    local_rank: str = ""
    local_world_size: str = ""
    node: tuple[str, ...] = ()
    host: str = ""
    port: str = ""
    when: str = ""
    unless: str = ""
    more: Callable[[_Reader], dict[str, Any]] = lambda _: {}

    def read(self, environment: Mapping[str, str]) -> Claim | None:
        """What it says; None if it has not started this process."""
        if (self.when and self.when not in environment) or self.unless in environment:
            return None
        reader = _Reader(environment)
        rank, world_size = reader.number(self.rank), reader.number(self.world_size)
        if rank is None and world_size is None:
            return None
        told = f"{self.name}: {', '.join(reader.read)}"
        if rank is None or world_size is None:
            missing = self.rank if rank is None else self.world_size
            raise ValueError(f"{told}, but {missing} is not set. Set both, or neither.")
        if rank >= world_size:
            raise ValueError(f"{told}; a rank is less than the world size.")
        host, port = reader.text(self.host), reader.text(self.port)
        claim = Claim(
            self.name,
            rank,
            world_size,
            reader.number(self.local_rank),
            reader.number(self.local_world_size),
            reader.number(*self.node),
            f"{host}:{port}" if host and port else host,
        )
        more = self.more(reader)
        return replace(claim, **more, variables=tuple(reader.read))


def _tensorflow(environment: Mapping[str, str]) -> Claim | None:
    # https://www.tensorflow.org/guide/distributed_training#setting_up_the_tf_config_environment_variable
    value = environment.get("TF_CONFIG", "").strip()
    if not value:
        return None
    try:
        config = json.loads(value)
        named = {"master": "chief"}  # its old name
        cluster = {
            named.get(role, role): list(addresses) for role, addresses in config["cluster"].items()
        }
        role, index = str(config["task"]["type"]), int(config["task"].get("index", 0))
        role = named.get(role, role)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"TF_CONFIG is {value!r}; expected JSON such as "
            '{"cluster": {"worker": ["host:port"]}, "task": {"type": "worker", "index": 0}}.'
        ) from error
    if not cluster:  # TensorFlow, too, takes that for a process of its own
        return None
    members = [(kind, i) for kind in ROLES for i in range(len(cluster.get(kind, ())))]
    if role == "evaluator" and "evaluator" not in cluster:  # it is no member of the cluster
        rank = len(members)
        return Claim("TF_CONFIG", rank, rank + 1, variables=("TF_CONFIG",))
    if (role, index) not in members:
        raise ValueError(f"TF_CONFIG is {value!r}; its task {role} {index} is not in its cluster.")
    rank = members.index((role, index))
    addresses = [str(cluster[kind][i]) for kind, i in members]
    hosts = [address.rsplit(":", 1)[0] for address in addresses]
    neighbours = [i for i, host in enumerate(hosts) if host == hosts[rank]]
    node = list(dict.fromkeys(hosts)).index(hosts[rank])
    local = neighbours.index(rank), len(neighbours), node
    return Claim("TF_CONFIG", rank, len(members), *local, addresses[0], ("TF_CONFIG",))


def _slurm_step(reader: _Reader) -> dict[str, Any]:
    counts = slurm_tasks(reader.text("SLURM_STEP_TASKS_PER_NODE") or "")
    node = int(reader.environment.get("SLURM_NODEID") or len(counts))
    nodes = reader.text("SLURM_STEP_NODELIST")
    distribution = reader.text("SLURM_DISTRIBUTION") or ""
    # Rank 0 is on the first node, unless each rank's node was chosen by hand.
    by_hand = distribution.startswith("arbitrary") and len(counts) > 1
    return {
        "local_world_size": counts[node] if node < len(counts) else None,
        "coordinator": slurm_hosts(nodes)[0] if nodes and not by_hand else None,
    }


def slurm_tasks(text: str) -> list[int]:
    """Return tasks per node as Slurm writes them: `"2(x3),1"` is three nodes with 2, one with 1."""
    counts: list[int] = []
    for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        counts += [int(count)] * int(times or 1)
    return counts


def slurm_nodes(counts: list[int], environment: Mapping[str, str]) -> list[int]:
    """Return the number of each rank's node, as srun's `--distribution` deals the ranks out.

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


_ELASTIC = "TORCHELASTIC_RUN_ID"
"""Within torchrun, what a scheduler outside it says is about torchrun's own process."""
_TORCH = Launcher(
    "RANK and WORLD_SIZE",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    ("GROUP_RANK", "NODE_RANK"),
    "MASTER_ADDR",
    "MASTER_PORT",
    unless=_ELASTIC,
)
READERS: tuple[Callable[[Mapping[str, str]], Claim | None], ...] = (
    # https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables
    replace(_TORCH, name="torchrun", when=_ELASTIC, unless="").read,
    _TORCH.read,
    _tensorflow,
    # https://docs.jax.dev/en/latest/_autosummary/jax.distributed.initialize.html
    Launcher(
        "JAX's variables", "JAX_PROCESS_ID", "JAX_NUM_PROCESSES", host="JAX_COORDINATOR_ADDRESS"
    ).read,
    # https://docs.open-mpi.org/en/main/tuning-apps/environment-var.html
    Launcher(
        "Open MPI",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        host="MASTER_ADDR",
        unless=_ELASTIC,
    ).read,
    # MPICH and Intel MPI; Slurm sets the first two as well, with `srun --mpi=pmi2`.
    Launcher(
        "MPI's process manager",
        "PMI_RANK",
        "PMI_SIZE",
        "MPI_LOCALRANKID",
        "MPI_LOCALNRANKS",
        host="MASTER_ADDR",
        unless=_ELASTIC,
    ).read,
    # https://slurm.schedmd.com/srun.html#SECTION_OUTPUT-ENVIRONMENT-VARIABLES
    # In a batch script, outside srun, there is an allocation but no step, and so no ranks.
    Launcher(
        "Slurm",
        "SLURM_PROCID",
        "SLURM_STEP_NUM_TASKS",
        "SLURM_LOCALID",
        node=("SLURM_NODEID",),
        when="SLURM_STEP_NUM_TASKS",
        unless=_ELASTIC,
        more=_slurm_step,
    ).read,
)
"""Those that are known, the innermost first."""


def places(environment: Mapping[str, str]) -> list[Claim]:
    """What each launcher says that left variables in an environment, the innermost first.

    Raises:
        ValueError: If one of them is incomplete, contradicts itself or can't be understood.
    """
    return [place for read in READERS if (place := read(environment)) is not None]
