"""What a job has on a Ray cluster: a connection, a placement group, and an actor on each node.

Ray Train is not used: its workers are one process each, whose logs, exit and pauses are Ray's
own affair, and it forms no JAX group on CPUs.
"""

import math
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from msgspec.structs import replace
from ray.util import placement_group_table
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from distlab.launching.engines.ray import Ray
from distlab.launching.engines.ray_node import NodeActor
from distlab.launching.protocol.messages import Launch
from distlab.launching.protocol.tasks import Part

_PATIENCE = 5.0
"""Seconds for the head node of a cluster to answer."""
_LOOK = 0.05
"""Seconds between two looks whether there is room."""


class PlacementError(RuntimeError):
    """There is no place for ranks; the message says why."""


@dataclass(eq=False)
class Node:
    """Ranks on one node, and the handle of its `NodeActor`."""

    part: Part
    actor: Any


def connect(address: str | None, environment: dict[str, Any]) -> None:
    """Connect this process to a cluster, by default one of this machine.

    Args:
        address: The cluster's.
        environment: Ray's runtime environment: what to send.

    Raises:
        PlacementError: If that fails.
    """
    host, separator, port = (address or "").rpartition(":")
    try:
        if separator and "//" not in host and port.isdecimal():  # Ray would try for minutes
            socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()
        ray.init(
            address or "auto", log_to_driver=False, logging_level="ERROR", runtime_env=environment
        )
    except OSError as error:
        raise PlacementError(
            f"Could not join Ray at {address!r}: nobody answers there ({error}). `ray status` on "
            "the cluster's head node shows whether it runs; its address is host:6379 unless it was "
            "given another port."
        ) from error
    except Exception as error:
        where = "here" if address is None else f"at {address!r}"
        raise PlacementError(f"Could not join Ray {where}: {error}") from error


def has_room(group: Any, engine: Ray, wanted: Callable[[], bool]) -> bool:
    """Wait until a placement group has its places; false as soon as they are not wanted any more.

    Raises:
        PlacementError: If it has none for longer than the engine is patient.
    """
    patience = math.inf if engine.placement_timeout is None else engine.placement_timeout
    deadline = time.monotonic() + patience
    # Its wait() submits a task each time, which costs more than to look.
    while wanted():
        if placement_group_table(group)["state"] == "CREATED":
            return True
        if time.monotonic() > deadline:
            has = {k: v for k, v in ray.cluster_resources().items() if k in engine.needs}
            free = {k: v for k, v in ray.available_resources().items() if k in engine.needs}
            raise PlacementError(
                f"Ray has no room for {group.bundle_count} ranks of {engine.needs} each "
                f"({engine.strategy}) after {engine.placement_timeout:g} s: the cluster has "
                f"{has or 'none of it'}, of which {free or 'none'} is free. Start fewer ranks, ask "
                "for less with resources=, or wait longer with placement_timeout=."
            )
        time.sleep(_LOOK)
    return False


def start_actors(engine: Ray, fork: bool, launch: Launch, group: Any) -> list[Node]:
    """Start an actor on each node; with GPUs for each rank, for it is shown one bundle's."""
    needs, count = engine.needs, len(launch.tasks)
    target = None
    if launch.script is None:
        target = ray.put((Path(launch.directory) / "target").read_bytes())
    if engine.upload_cwd:
        launch = replace(launch, cwd="", path=None)
    table = placement_group_table(group)["bundles_to_node_id"]
    numbers = list(dict.fromkeys(table[bundle] for bundle in range(count)))
    # Ranks of one node in a row, whatever Ray has numbered its bundles by.
    bundles = sorted(range(count), key=lambda bundle: (numbers.index(table[bundle]), bundle))
    hosts = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
    kind = ray.remote(num_cpus=0, concurrency_groups={"receive": 1})(NodeActor)
    nodes = []
    for index, number in enumerate(numbers):
        here = [rank for rank, bundle in enumerate(bundles) if table[bundle] == number]
        for ranks in [[rank] for rank in here] if "GPU" in needs else [here]:
            place = PlacementGroupSchedulingStrategy(group, bundles[ranks[0]])
            options = kind.options(num_gpus=needs.get("GPU", 0), scheduling_strategy=place)
            part = Part(ranks, hosts[number], index, len(numbers))
            nodes.append(Node(part, options.remote(launch, part, target, fork)))
    return nodes
