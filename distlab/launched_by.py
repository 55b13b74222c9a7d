"""What says the place of this process: a group that it has formed, or variables of launchers."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from distlab.errors import listed

ROLES = ("chief", "worker", "ps", "evaluator")
"""TensorFlow's task types, in the order in which ranks are numbered."""
STARTERS = ("submitit", "Open MPI", "MPI's process manager", "Slurm")
"""Launchers that may well have started other launchers."""
ELASTIC = "TORCHELASTIC_RUN_ID"
"""Within torchrun, what a scheduler outside it says is about torchrun's own process."""


@dataclass(frozen=True)
class Membership:
    """The place of a process in its group: see `ranks.RankInfo`."""

    rank: int
    world_size: int
    local_rank: int | None
    local_world_size: int | None
    node: int | None
    coordinator: str | None
    launcher: str

    def __getattr__(self, name: str) -> NoReturn:
        words = f"RankInfo has no attribute {name!r}. It has {listed(list(vars(self)))}."
        raise AttributeError(words, name=name, obj=self)


def memberships(environment: Mapping[str, str]) -> list[Membership]:
    """What each launcher says that left variables in an environment, the innermost first.

    Raises:
        ValueError: If one of them is incomplete, contradicts itself or can't be understood.
    """
    readers = [_torch, _tensorflow, _jax]
    if ELASTIC not in environment:
        readers += [_submitit, _open_mpi, _mpich, _slurm]
    return [place for read in readers if (place := read(environment)) is not None]


def formed() -> Membership | None:
    """The place of this process in a group that it has formed; nothing is imported to find out."""
    for name, (module, ask) in _GROUPS.items():
        if (loaded := sys.modules.get(module)) is not None and (known := ask(loaded)):
            return Membership(*known, None, name)
    return None


_Known = tuple[int, int, int | None, int | None, int | None]


def _ask_torch(dist: Any) -> _Known | None:
    if not (dist.is_available() and dist.is_initialized()) or dist.get_backend() == "fake":
        return None
    return dist.get_rank(), dist.get_world_size(), None, None, None


def _ask_jax(module: Any) -> _Known | None:
    state = module.global_state  # `jax.process_index()` would start JAX's backends
    # It knows its place also once the group has been shut down, as before a save at the end.
    known = state.process_id, state.num_processes, None, None, None
    return known if state.num_processes > 1 else None


def _ask_tensorflow(module: Any) -> _Known | None:
    # What a strategy of several workers tells TensorFlow's runtime.
    context = module.context_safe()
    server = getattr(context, "_collective_ops_server_def", None)
    if server is None:
        return None
    members = _in_order({job.name: job.tasks for job in server.cluster.job})
    rank = members.index((server.job_name, server.task_index))
    return rank, len(members), None, None, None


def _ask_ray(train: Any) -> _Known | None:
    try:
        context = train.get_context()
    except RuntimeError:  # this process is no worker of Ray Train's
        return None
    return (
        context.get_world_rank(),
        context.get_world_size(),
        context.get_local_rank(),
        context.get_local_world_size(),
        context.get_node_rank(),
    )


_GROUPS: dict[str, tuple[str, Callable[[Any], _Known | None]]] = {
    "torch.distributed": ("torch.distributed", _ask_torch),
    "jax.distributed": ("jax._src.distributed", _ask_jax),
    "tf.distribute": ("tensorflow.python.eager.context", _ask_tensorflow),
    "ray.train": ("ray.train", _ask_ray),
}
"""What has formed a group, and the module that knows of it."""


def _read(
    environment: Mapping[str, str],
    launcher: str,
    rank_in: str,
    world_size_in: str,
    local_rank_in: str = "",
    local_world_size_in: str = "",
    node_in: str = "",
    coordinator: str | None = None,
) -> Membership | None:
    """Read the variables of these names, which are empty where a launcher has none.

    Of several names for one thing, with spaces between them, the first that is set counts.
    """
    rank, world_size = _number(environment, rank_in), _number(environment, world_size_in)
    if rank is None and world_size is None:
        return None
    names = [_first(environment, rank_in), _first(environment, world_size_in)]
    if rank is None or world_size is None:
        missing, there = names if rank is None else reversed(names)
        told = f"{launcher}: {there}={environment[there]}"
        raise ValueError(f"{told}, but {missing} is not set. Set both, or neither.")
    if rank >= world_size:
        told = f"{launcher}: {names[0]}={rank}, {names[1]}={world_size}"
        raise ValueError(f"{told}; a rank is less than the world size.")
    return Membership(
        rank,
        world_size,
        _number(environment, local_rank_in),
        _number(environment, local_world_size_in),
        _number(environment, node_in),
        coordinator,
        launcher,
    )


def _number(environment: Mapping[str, str], names: str) -> int | None:
    name = _first(environment, names)
    value = environment.get(name)
    if value and not value.isdecimal():
        raise ValueError(f"{name} is {value!r}; expected a number from 0 on.")
    return int(value) if value else None


def _first(environment: Mapping[str, str], names: str) -> str:
    """The first of several names that is set, or the first of all."""
    return next(filter(environment.get, names.split()), names.partition(" ")[0])


def _torch(environment: Mapping[str, str]) -> Membership | None:
    # https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables
    launcher = "torchrun" if ELASTIC in environment else "RANK and WORLD_SIZE"
    job = environment.get("DISTLAB_JOB")
    if job and environment.get(ELASTIC, job) == job:
        launcher = "distlab"
    # DeepSpeed's launcher says LOCAL_SIZE and CROSS_RANK.
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE LOCAL_SIZE")
    node = "GROUP_RANK NODE_RANK CROSS_RANK"
    said = {name for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK") if environment.get(name)}
    if said == {"WORLD_SIZE", "LOCAL_RANK"} and environment.get("NODE_RANK") == "0":
        # Lightning's processes have no rank; its first node has the first ranks.
        launcher, names = "Lightning", ("LOCAL_RANK", *names[1:])
    host, port = environment.get("MASTER_ADDR") or None, environment.get("MASTER_PORT")
    coordinator = f"{host}:{port}" if host and port else host
    return _read(environment, launcher, *names, node, coordinator=coordinator)


def _tensorflow(environment: Mapping[str, str]) -> Membership | None:
    # https://www.tensorflow.org/guide/distributed_training#setting_up_the_tf_config_environment_variable
    value = environment.get("TF_CONFIG", "").strip()
    if not value:
        return None
    try:
        config = json.loads(value)
        cluster = {
            role: {int(i): str(address) for i, address in _numbered(addresses)}
            for role, addresses in config.get("cluster", {}).items()
        }
        if not cluster:  # TensorFlow, too, takes that for a process of its own
            return None
        role, index = str(config["task"]["type"]), int(config["task"].get("index", 0))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"TF_CONFIG is {value!r}; expected JSON such as "
            '{"cluster": {"worker": ["host:port"]}, "task": {"type": "worker", "index": 0}}.'
        ) from error
    members = _in_order(cluster)
    if role == "evaluator" and "evaluator" not in cluster:  # it is no member of the cluster
        rank = len(members) + index
        return Membership(rank, rank + 1, None, None, None, None, "TF_CONFIG")
    if (role, index) not in members:
        raise ValueError(f"TF_CONFIG is {value!r}; its task {role} {index} is not in its cluster.")
    rank = members.index((role, index))
    addresses = [cluster[kind][i] for kind, i in members]
    hosts = [address.rsplit(":", 1)[0] for address in addresses]
    neighbours = [i for i, host in enumerate(hosts) if host == hosts[rank]]
    node = list(dict.fromkeys(hosts)).index(hosts[rank])
    local = neighbours.index(rank), len(neighbours), node
    return Membership(rank, len(members), *local, addresses[0], "TF_CONFIG")


def _numbered(tasks: Any) -> Iterable[tuple[Any, Any]]:
    """The tasks of one type, which are a list, or a mapping where only some are known."""
    return tasks.items() if isinstance(tasks, dict) else enumerate(tasks)


def _in_order(cluster: Mapping[str, Mapping[int, str]]) -> list[tuple[str, int]]:
    """The tasks of a cluster in the order of their ranks."""
    known = ("master", *ROLES)  # an old name of the chief
    kinds = [*(kind for kind in known if kind in cluster), *sorted(set(cluster) - set(known))]
    return [(kind, i) for kind in kinds for i in sorted(cluster[kind])]


def _jax(environment: Mapping[str, str]) -> Membership | None:
    # https://docs.jax.dev/en/latest/_autosummary/jax.distributed.initialize.html
    # and https://keras.io/api/distribution/distribution_utils/#initialize-function
    addresses = environment.get("KERAS_DISTRIBUTION_JOB_ADDRESSES")
    coordinator = environment.get("JAX_COORDINATOR_ADDRESS") or (addresses or "").split(",")[0]
    names = (
        "JAX_PROCESS_ID KERAS_DISTRIBUTION_PROCESS_ID",
        "JAX_NUM_PROCESSES KERAS_DISTRIBUTION_NUM_PROCESSES",
    )
    return _read(environment, "JAX's variables", *names, coordinator=coordinator or None)


def _submitit(environment: Mapping[str, str]) -> Membership | None:
    # The tasks that submitit runs on this machine; on Slurm it leaves that to Slurm's variables.
    names = ("GLOBALID", "NTASKS", "LOCALID", "", "NODEID")
    place = _read(environment, "submitit", *(name and f"SUBMITIT_LOCAL_{name}" for name in names))
    nodes = _number(environment, "SUBMITIT_LOCAL_JOB_NUM_NODES")
    if place is None or not nodes:
        return place
    return replace(place, local_world_size=place.world_size // nodes)


def _open_mpi(environment: Mapping[str, str]) -> Membership | None:
    # https://docs.open-mpi.org/en/main/tuning-apps/environment-var.html
    return _read(
        environment,
        "Open MPI",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        coordinator=environment.get("MASTER_ADDR"),
    )


def _mpich(environment: Mapping[str, str]) -> Membership | None:
    # MPICH and Intel MPI; Slurm sets the first two as well, with `srun --mpi=pmi2`.
    names = ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")
    coordinator = environment.get("MASTER_ADDR")
    return _read(environment, "MPI's process manager", *names, coordinator=coordinator)


def _slurm(environment: Mapping[str, str]) -> Membership | None:
    # https://slurm.schedmd.com/srun.html#SECTION_OUTPUT-ENVIRONMENT-VARIABLES
    # In a batch script, outside srun, there is an allocation but no step, and so no ranks.
    if not environment.get("SLURM_STEP_NUM_TASKS"):
        return None
    names = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "", "SLURM_NODEID")
    place = _read(environment, "Slurm", *names)
    assert place is not None
    counts, node = _slurm_tasks(environment), place.node
    count = counts[node] if node is not None and node < len(counts) else None
    # Rank 0 is on the first node, unless each rank's node was chosen by hand.
    by_hand = environment.get("SLURM_DISTRIBUTION", "").startswith("arbitrary") and len(counts) > 1
    nodes = environment.get("SLURM_STEP_NODELIST")
    first = _slurm_nodes(nodes)[0] if nodes and not by_hand else None
    return replace(place, local_world_size=count, coordinator=first)


def slurm_hosts(environment: Mapping[str, str]) -> list[str]:
    """The host name of each rank's node under srun.

    Raises:
        RuntimeError: If that is not known: srun has not dealt the ranks out in blocks, or its list
            of nodes needs `scontrol` to be taken apart and that fails.
    """
    counts = _slurm_tasks(environment)
    dealt = [node for node, count in enumerate(counts) for _ in range(count)]
    here, ranks = environment.get("SLURM_NODEID"), environment.get("SLURM_GTIDS")
    own = ",".join(str(rank) for rank, node in enumerate(dealt) if str(node) == here)
    if ranks and ranks != own:
        raise RuntimeError(
            "Slurm has not dealt the ranks out over the nodes in blocks (SLURM_DISTRIBUTION="
            f"{environment.get('SLURM_DISTRIBUTION')}, SLURM_GTIDS={ranks}): start them with "
            "srun --distribution=block."
        )
    names = _slurm_nodes(environment["SLURM_STEP_NODELIST"])
    return [names[node] for node in dealt]


def _slurm_tasks(environment: Mapping[str, str]) -> list[int]:
    """Tasks per node, which Slurm writes as `"2(x3),1"`: three nodes with 2, one with 1."""
    counts: list[int] = []
    text = environment.get("SLURM_STEP_TASKS_PER_NODE", "")
    for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        counts += [int(count)] * int(times or 1)
    return counts


def _slurm_nodes(text: str) -> list[str]:
    """The host names of a node list such as `"gpu[1-3,7]"`."""
    if "[" not in text:
        return text.split(",")
    command = ["scontrol", "show", "hostnames", text]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise RuntimeError(f"Slurm's node list {text!r} can't be read: {error}") from error
    return done.stdout.split()
