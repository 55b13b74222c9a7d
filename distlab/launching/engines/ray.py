"""Ranks on a Ray cluster: Ray finds the nodes, on each a supervisor of ours starts the ranks.

Ray Train is not used: its workers are one process each, whose logs, exit and pauses are Ray's
own affair, and it forms no JAX group on CPUs. A placement group and one actor per node do all
that is needed from Ray.
"""

import importlib.util
import math
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distlab.errors import did_you_mean, shown
from distlab.launching.engines import ray_session
from distlab.launching.engines.base import Engine, PlacementError, Work
from distlab.launching.engines.ray_place import RayPlace
from distlab.launching.engines.remote_supervisor import RemoteSupervisor
from distlab.launching.kernel.arguments import check_flag, check_text, check_timeout
from distlab.launching.protocol.tasks import Part

_PATIENCE = 5.0
"""Seconds for a node to end its ranks when it is told to."""
_LOOK = 0.05


_STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")


@dataclass(frozen=True, kw_only=True)
class Ray(Engine):
    """A Ray cluster, for `launch(..., engine=Ray())`: one that runs, or one of its own.

    Args:
        address: Of a running cluster, `"host:port"` or `"auto"`. By default the one this process
            is connected to; if there is none, one is started on this machine, for the job alone.
        resources: What Ray reserves for each rank, such as `{"CPU": 4, "GPU": 1}`, and nothing
            else; one CPU by default. `OMP_NUM_THREADS` is set to the number of CPUs. With GPUs
            each rank sees its own only.
        strategy: Ray's placement strategy: `"PACK"` fills one node after the other, `"SPREAD"`
            uses many, `"STRICT_PACK"` and `"STRICT_SPREAD"` insist.
        upload_cwd: Send the working directory (what .gitignore names is left out) and distlab to
            the nodes of the cluster at `address`, which must have all else. On a connection that
            you have made yourself, the `runtime_env` of your `ray.init` says what is sent.
        placement_timeout: How many seconds to wait until the cluster has room; None, for ever.

    Raises:
        TypeError: If there is no such option, or it is of another type.
        ValueError: If an option is out of range.

    Example:
        >>> import distlab
        >>> distlab.Ray(resources={"CPU": 2}, strategy="SPREAD")
        Ray(address=None, resources={'CPU': 2}, strategy='SPREAD', upload_cwd=True, ...)
    """

    address: str | None = None
    resources: Mapping[str, float] | None = None
    strategy: str = "PACK"
    upload_cwd: bool = True
    placement_timeout: float | None = 60.0

    def __post_init__(self) -> None:
        check_text(self.address, "address", "host:6379")
        check_flag(self.upload_cwd, "upload_cwd")
        check_timeout(self.placement_timeout, "placement_timeout")
        if self.strategy not in _STRATEGIES:
            expected = ", ".join(map(repr, _STRATEGIES))
            raise ValueError(
                f"strategy is {shown(self.strategy)}; expected one of {expected}."
                + did_you_mean(self.strategy, _STRATEGIES)
            )
        if not isinstance(self.resources, Mapping | None):
            raise TypeError(
                f'resources is a dict such as {{"CPU": 2}}, not {shown(self.resources)}.'
            )
        for name, amount in self.needs.items():
            if isinstance(amount, bool) or not isinstance(amount, int | float) or not amount > 0:
                raise ValueError(f"resources has {name!r}: {amount!r}; expected a number above 0.")
            if name not in ("CPU", "GPU") and name.upper() in ("CPU", "GPU"):
                raise ValueError(f"resources has {name!r}; Ray calls that {name.upper()!r}.")

    @property
    def needs(self) -> dict[str, float]:
        """What Ray reserves for each rank."""
        return dict(self.resources or {"CPU": 1})

    def check(self, count: int) -> None:  # noqa: ARG002 - any number may find room
        """Raise ModuleNotFoundError if Ray is not installed."""
        if importlib.util.find_spec("ray") is None:
            raise ModuleNotFoundError(
                "The engine Ray needs the package ray, which is not installed. Install it with: "
                "pip install 'distlab[ray]'",
                name="ray",
            )

    def place(self, work: Work, cancelled: threading.Event) -> "RayPlacement":
        """Reserve what the ranks need, and start an actor on each node."""
        cpus = int(self.needs.get("CPU", 0) * len(work.launch.tasks) + 0.999)
        try:
            directory = work.launch.cwd if self.upload_cwd else None
            local = ray_session.enter(self.address, cpus, directory)
        except Exception as error:
            where = "start Ray here" if self.address is None else f"join Ray at {self.address!r}"
            raise PlacementError(f"Could not {where}: {error}") from error
        placement = RayPlacement()
        try:
            placement.fill(self, work, local, cancelled)
        except BaseException:
            placement.release()
            raise
        return placement


class RayPlacement:
    """What one job has on a Ray cluster."""

    def __init__(self) -> None:
        self.places: list[RayPlace] = []
        self._group: Any = None

    def fill(self, engine: Ray, work: Work, local: bool, cancelled: threading.Event) -> None:
        """Find places for all ranks. Raises PlacementError."""
        import ray

        count = len(work.launch.tasks)
        self._group = ray.util.placement_group([engine.needs] * count, engine.strategy)
        deadline = (
            math.inf
            if engine.placement_timeout is None
            else time.monotonic() + engine.placement_timeout
        )
        # Its wait() submits a task each time, which costs more than to look.
        while ray.util.placement_group_table(self._group)["state"] != "CREATED":
            if cancelled.wait(_LOOK):
                raise PlacementError("The job was stopped before Ray had room for it.")
            if time.monotonic() > deadline:
                raise PlacementError(_no_room(count, engine))
        table = ray.util.placement_group_table(self._group)["bundles_to_node_id"]
        ids = [table[bundle] for bundle in range(count)]
        nodes = list(dict.fromkeys(sorted(ids, key=ids.index)))
        # Ranks of one node in a row, whatever Ray has numbered its bundles by.
        bundles = sorted(range(count), key=lambda bundle: (nodes.index(ids[bundle]), bundle))
        at = {rank: nodes.index(ids[bundle]) for rank, bundle in enumerate(bundles)}
        alone = "GPU" in engine.needs  # an actor is shown the GPUs of one bundle only
        groups = (
            [[rank] for rank in at]
            if alone
            else [[rank for rank in at if at[rank] == node] for node in range(len(nodes))]
        )
        hosts = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
        names = _names([hosts[node] for node in nodes])
        target = None
        if work.launch.script is None:
            target = ray.put((Path(work.launch.directory) / "target").read_bytes())
        for ranks in groups:
            node = at[ranks[0]]
            part = Part(ranks, hosts[nodes[node]], node, len(nodes), ranks)
            actor = _actor(engine, work, self._group, bundles[ranks[0]])
            here = local or not engine.upload_cwd
            self.places.append(RayPlace(part, names[node], nodes[node], actor, target, here))

    def release(self) -> None:
        """End what is there, and give the places back."""
        import ray

        for place in self.places:
            place.closed = True
        try:
            if ray.is_initialized():
                closing = [
                    place.actor.close.options(concurrency_group="send").remote()
                    for place in self.places
                ]
                if closing:
                    ray.wait(closing, num_returns=len(closing), timeout=_PATIENCE)
                for place in self.places:
                    ray.kill(place.actor)
                if self._group is not None:
                    ray.util.remove_placement_group(self._group)
        finally:
            for place in self.places:
                place.wait_until_silent()
            self.places, self._group = [], None
            ray_session.leave()


def _actor(engine: Ray, work: Work, group: Any, bundle: int) -> Any:
    """A `RemoteSupervisor` in one bundle of a placement group."""
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    threads = str(max(1, int(engine.needs.get("CPU", 1))))
    settings = {"OMP_NUM_THREADS": threads} | work.settings
    kind = ray.remote(num_cpus=0, concurrency_groups={"send": 1, "receive": 1})(RemoteSupervisor)
    return kind.options(
        num_gpus=engine.needs.get("GPU", 0),
        scheduling_strategy=PlacementGroupSchedulingStrategy(group, bundle),
    ).remote(work.launch.framework, work.fork, work.launch.overrides, settings)


def _names(hosts: list[str]) -> list[str]:
    """Nodes in words: their addresses, numbered where several have the same."""
    if len(set(hosts)) == len(hosts):
        return hosts
    return [f"{host} #{number}" for number, host in enumerate(hosts)]


def _no_room(count: int, engine: Ray) -> str:
    import ray

    has = {k: v for k, v in ray.cluster_resources().items() if k in engine.needs}
    free = {k: v for k, v in ray.available_resources().items() if k in engine.needs}
    return (
        f"Ray has no room for {count} ranks of {engine.needs} each ({engine.strategy}) after "
        f"{engine.placement_timeout:g} s: the cluster has {has or 'none of it'}, of which "
        f"{free or 'none'} is free. Start fewer ranks, ask for less with resources=, or wait "
        "longer with placement_timeout=."
    )
