"""Which rank this process is, whoever started it, and how every framework gets to know."""

import functools
import json
import logging
import os
import socket
import zlib
from collections.abc import Mapping
from typing import Any

from distlab import frameworks, launched_by
from distlab.errors import brief
from distlab.launched_by import Membership
from distlab.ports import HOST, HeldPort, interface_of

_ALONE = Membership(0, 1, 0, 1, 0, None, "nobody")
"""What holds of a process that nobody else started."""

since: float | None = None
"""When the ranks of this group were started, in seconds of `time.time`, if anybody has said."""

_held: list[HeldPort] = []
"""Ports chosen here, kept until this process ends or the framework takes them."""


class RankInfo(Membership):
    """The place of this process in its group.

    Attributes:
        rank: Its number, from 0.
        world_size: How many processes there are.
        local_rank: Its number among those on its node; None if nobody says.
        local_world_size: How many there are on its node; likewise.
        node: The number of its node, from 0; likewise.
        coordinator: Where the group meets, `"host:port"` or `"host"`; likewise.
        launcher: Who started it: `"distlab"`, `"torchrun"`, `"Slurm"`, `"Open MPI"`, the variables
            or the group (`"torch.distributed"`) it was told by, or `"nobody"`.
    """

    def prepare(self, framework: str) -> dict[str, str]:
        """Set the variables from which a framework learns its place, where they are missing.

        After it `torch.distributed.init_process_group()`, `jax.distributed.initialize()`,
        `keras.distribution.initialize()` and `tf.distribute.MultiWorkerMirroredStrategy()` need no
        arguments. Every rank must call it, before the framework is imported. Gloo, which PyTorch
        and JAX use on CPUs, then listens on the address by which this machine reaches the
        coordinator: by itself it listens where the host name leads, on many machines 127.0.0.1.
        JAX itself detects Slurm and others, and then gives each process one of its node's devices.
        After this it does not: a process has all that it sees, or those in `JAX_LOCAL_DEVICE_IDS`.

        Args:
            framework: `"torch"`, `"jax"` or `"tensorflow"`.

        Returns:
            The variables that were set; those that were there already are left as they are.

        Raises:
            TypeError: If the framework is not a string.
            ValueError: If it is unknown.
            RuntimeError: If the surroundings do not tell where the group can meet.

        Example:
            >>> import distlab
            >>> distlab.rank_info().prepare("jax")  # doctest: +SKIP
            {'JAX_COORDINATOR_ADDRESS': 'node1:61711', 'JAX_NUM_PROCESSES': '8', ...}
        """
        frameworks.check_name(framework, tuple(_KNOWN_BY))
        added = {}
        if not all(os.environ.get(name) for name in _KNOWN_BY[framework]):
            wanted = _variables(self, framework)
            added = {name: str(v) for name, v in wanted.items() if not os.environ.get(name)}
            os.environ.update(added)
        if framework == "jax":
            address = os.environ["JAX_COORDINATOR_ADDRESS"]
            host, *port = address.rsplit(":", 1)
            if (asked := os.environ.get("JAX_COORDINATOR_PORT")) and [asked] != port:
                _say_once(f"JAX_COORDINATOR_PORT={asked} does not count: JAX meets at {address}.")
            frameworks.show_jax_its_group(_own_address(host))
        elif framework == "torch" and not os.environ.get("GLOO_SOCKET_IFNAME"):
            own = _own_address(os.environ["MASTER_ADDR"])
            if own is not None and (interface := interface_of(own)) is not None:
                os.environ["GLOO_SOCKET_IFNAME"] = added["GLOO_SOCKET_IFNAME"] = interface
        return added


@brief
def rank_info(environment: Mapping[str, str] | None = None) -> RankInfo:
    """Say which rank this process is, whoever started it.

    A group that the process has formed already (with `torch.distributed`, JAX, a strategy of
    TensorFlow's, Ray Train) says it best. Until then variables do: it understands torchrun, Slurm's
    srun, Open MPI's and MPICH's mpirun, submitit, JAX's variables, `TF_CONFIG`, and RANK and
    WORLD_SIZE with MASTER_ADDR, which distlab and DeepSpeed set. Where one launcher has started
    another, the innermost counts. Started plainly, a process is rank 0 of 1.

    Args:
        environment: The variables to read, and nothing else; by default those of this process.

    Returns:
        Its place.

    Raises:
        ValueError: If the variables are incomplete or contradict one another; the message lists
            them.

    Example:
        >>> import distlab
        >>> info = distlab.rank_info()
        >>> f"{info.rank} of {info.world_size}"
        '0 of 1'
    """
    variables = os.environ if environment is None else environment
    group = launched_by.formed() if environment is None else None
    try:
        found = _agreed(launched_by.memberships(variables))
    except ValueError:
        if group is None:
            raise
        found = []
    if group is not None:
        if any(not _agree(group, place) and not _started(place, group) for place in found):
            _say_once(
                f"The group that {group.launcher} has formed says rank {group.rank} of "
                f"{group.world_size}, which counts, and variables something else:{_lines(found)}"
            )
        found = [place for place in found if _agree(group, place)] + [group]
    if not found and (pod := variables.get("JOB_COMPLETION_INDEX")):
        _say_once(
            f"This is pod {pod} of an Indexed Job of Kubernetes (JOB_COMPLETION_INDEX), which does "
            "not say how many there are: without RANK and WORLD_SIZE it counts as rank 0 of 1, and "
            "each pod is its own chief."
        )
    if not found or found[0].world_size == 1:
        found.append(_ALONE)

    def first(name: str) -> Any:  # what one does not say, another may
        said = (getattr(place, name) for place in found)
        return next((value for value in said if value is not None), None)

    told = {name: first(name) for name in ("local_rank", "local_world_size", "node", "coordinator")}
    world_size = max(place.world_size for place in found)
    return RankInfo(found[0].rank, world_size, launcher=found[0].launcher, **told)


def began() -> float:
    """Say when the ranks of this group were started, in seconds of `time.time`, or this one was."""
    import psutil

    return psutil.Process().create_time() if since is None else since


def _agreed(found: list[Membership]) -> list[Membership]:
    """What launchers say that have started one another, the innermost first, as far as it counts.

    Raises:
        ValueError: If two of them say what cannot both be so.
    """
    if not found:
        return []
    others = [
        place for place in found[1:] if _agree(found[0], place) or not _started(place, found[0])
    ]
    if all(_agree(found[0], place) for place in others):
        return [found[0], *others]
    raise ValueError(
        f"The variables of this process do not agree on its rank:{_lines(found)}\n"
        "Unset those that are left from something else."
    )


def _started(outer: Membership, inner: Membership) -> bool:
    """Whether each process of one launcher may have been another that started some of `inner`."""
    if outer.launcher not in launched_by.STARTERS:
        return False
    times, rest = divmod(inner.world_size, outer.world_size)
    told = outer.local_world_size is not None
    return 1 in (outer.world_size, outer.local_world_size) or (not told and times > 1 and not rest)


def _agree(one: Membership, other: Membership) -> bool:
    if "TF_CONFIG" in (one.launcher, other.launcher):  # its cluster leaves an evaluator out
        return one.rank == other.rank
    return (one.rank, one.world_size) == (other.rank, other.world_size)


def _lines(found: list[Membership]) -> str:
    return "".join(f"\n  {one.launcher}: rank {one.rank} of {one.world_size}" for one in found)


@functools.cache
def _say_once(words: str) -> None:
    logging.getLogger("distlab").warning("%s", words)


def _variables(info: RankInfo, framework: str) -> dict[str, object]:
    """The variables that tell a framework its place."""
    if framework == "tensorflow":
        task = {"type": "worker", "index": info.rank}
        return {"TF_CONFIG": json.dumps({"cluster": {"worker": _addresses(info)}, "task": task})}
    address = _meeting(info, framework)
    if framework == "jax":
        return jax_variables(address, info.world_size, info.rank)
    host, port = address.rsplit(":", 1)
    known = {"LOCAL_RANK": info.local_rank, "LOCAL_WORLD_SIZE": info.local_world_size}
    return {
        "RANK": info.rank,
        "WORLD_SIZE": info.world_size,
        "MASTER_ADDR": host,
        "MASTER_PORT": port,
    } | {name: value for name, value in known.items() if value is not None}


def jax_variables(coordinator: str, world_size: int, rank: int) -> dict[str, object]:
    """The variables that tell JAX, and Keras on JAX, where the group meets and who this is."""
    return {
        "JAX_COORDINATOR_ADDRESS": coordinator,
        "JAX_NUM_PROCESSES": world_size,
        "JAX_PROCESS_ID": rank,
        "KERAS_DISTRIBUTION_JOB_ADDRESSES": coordinator,
        "KERAS_DISTRIBUTION_NUM_PROCESSES": world_size,
        "KERAS_DISTRIBUTION_PROCESS_ID": rank,
    }


_KNOWN_BY = {
    "torch": ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    "jax": ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"),
    "tensorflow": ("TF_CONFIG",),
}
"""With these a framework finds its group."""


def _meeting(info: RankInfo, framework: str) -> str:
    """Where a group of this framework meets: host:port, the same on every rank."""
    if launched_by.ELASTIC in os.environ and framework != "torch":
        # The store of torchrun, or of distlab in its place, listens at MASTER_PORT.
        return _exchange(info, framework)[0]
    if info.coordinator is not None and ":" in info.coordinator:
        return info.coordinator
    if info.coordinator is not None:
        return f"{info.coordinator}:{_port_of_job('MASTER_PORT')}"
    if info.world_size == 1:
        return _hold(HOST, reuse=framework == "jax")
    if info.local_world_size == info.world_size:
        return f"{HOST}:{_port_of_job('MASTER_PORT')}"
    raise RuntimeError(
        f"{info.launcher} started rank {info.rank} of {info.world_size} but does not say where the "
        "ranks can meet: set MASTER_ADDR and MASTER_PORT to rank 0's host and a free port there."
    )


def _addresses(info: RankInfo) -> list[str]:
    """One host:port for each rank, for TensorFlow's servers."""
    if info.world_size == 1:
        return [_hold(HOST)]
    if launched_by.ELASTIC in os.environ:
        return _exchange(info, "tensorflow")
    if info.launcher == "Slurm" and os.environ.get("SLURM_STEP_NODELIST"):
        hosts = launched_by.slurm_hosts(os.environ)
    elif info.local_world_size == info.world_size:
        hosts = [HOST] * info.world_size
    else:
        raise RuntimeError(
            f"{info.launcher} started rank {info.rank} of {info.world_size}, and TF_CONFIG needs "
            "the address of every one of them, which is not known here: set TF_CONFIG itself."
        )
    return [f"{host}:{_port_of_job('TF_CONFIG', rank)}" for rank, host in enumerate(hosts)]


def _port_of_job(cure: str, number: int = 0) -> int:
    """A port that every rank of a job comes to alone, above those the system hands out.

    `cure` is the variable to set where there is nothing to make one from; `number` says which of
    the job's ports.
    """
    if (port := os.environ.get(cure, "")).isdecimal():
        return int(port)
    slurm, submitit = ("SLURM_JOB_ID", "SLURM_STEP_ID"), "SUBMITIT_LOCAL_JOB_ID"
    names = (*slurm, "PMIX_NAMESPACE", "OMPI_MCA_orte_hnp_uri", submitit)
    words = [os.environ[name] for name in names if name in os.environ]
    if not words:
        raise RuntimeError(f"No port is known at which the ranks could meet: set {cure}.")
    return 61_000 + (zlib.crc32(" ".join(words).encode()) + number) % 4_000


def _exchange(info: RankInfo, framework: str) -> list[str]:
    """Every rank's own address, told to the others through torchrun's store."""
    from torch.distributed import PrefixStore, TCPStore

    if info.coordinator is None:
        raise RuntimeError("torchrun's MASTER_ADDR and MASTER_PORT are not set.")
    host, port = info.coordinator.rsplit(":", 1)
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    store = PrefixStore(f"distlab/{framework}/{attempt}", TCPStore(host, int(port)))
    with socket.create_connection((host, int(port))) as connection:
        own = connection.getsockname()[0]  # the address from which the others are reached
    store.set(str(info.rank), _hold(own, reuse=framework == "jax"))
    return [store.get(str(rank)).decode() for rank in range(info.world_size)]


def _own_address(host: str) -> str | None:
    """The address by which this machine reaches a host; None where that cannot be told."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            host.strip("[]"), 1, type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)  # which sends nothing
            return str(probe.getsockname()[0])
    except OSError:
        return None


def _hold(host: str, reuse: bool = False) -> str:
    held = HeldPort(reuse, host)
    _held.append(held)
    if not reuse:
        held.hand_over()
    return held.address
