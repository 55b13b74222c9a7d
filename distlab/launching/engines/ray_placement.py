"""What one job has on a Ray cluster: a placement group, and an actor on each of its nodes.

Ray Train is not used: its workers are one process each, whose logs, exit and pauses are Ray's
own affair, and it forms no JAX group on CPUs.
"""

import contextlib
import logging
import math
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distlab.launching.engines.ray import Ray
from distlab.launching.engines.ray_node import NodeActor
from distlab.launching.engines.ray_session import LostError
from distlab.launching.protocol.messages import AnyEvent, AnyRequest, Launch
from distlab.launching.protocol.tasks import Part
from distlab.launching.protocol.variables import STALE
from distlab.launching.tracebacks import in_words

_logger = logging.getLogger("distlab")
_PATIENCE = 5.0
"""Seconds for a node to end its ranks when it is told to."""
_LOOK = 0.05
"""Seconds between two looks whether there is room."""
_SETTING = re.compile(r"(KERAS|TF|XLA|JAX|PYTORCH|TORCH|NCCL|GLOO|DTENSOR|GRPC|TFDS|DISTLAB)_.*")
"""Variables that travel with a job to other nodes: what frameworks are told by."""
SHUT_DOWN = "The ranks were lost: ray.shutdown() has been called here."
_NUMBER = re.compile(r" ?Node I[dD]: \w+\.?")
_FIELD = re.compile(r"(class_name|actor_id|pid|name|namespace|ip): ")


@dataclass(eq=False)
class Node:
    """Ranks on one node, and the actor that speaks for them.

    Attributes:
        part: The ranks, and the address of their node.
        number: By which Ray knows the node.
        actor: The handle of a `NodeActor`.
        target: A reference to the function and its arguments.
        over: The last attempt of the job that has come to its end there.
    """

    part: Part
    number: str
    actor: Any
    target: Any
    over: int = -1

    def send(self, request: AnyRequest) -> None:
        """Pass a request on, in order, without waiting for it to arrive."""
        sending = self.actor.send.options(concurrency_group="send")
        sending.remote(request, self.target if isinstance(request, Launch) else None)

    def receive(self) -> Any:
        """A reference to what happens there next."""
        return self.actor.receive.options(concurrency_group="receive").remote()

    def read(self, reference: Any) -> tuple[dict[str, bytes], list[AnyEvent]]:
        """What has happened there. Raises LostError."""
        import ray

        try:
            files, events = ray.get(reference)
        except ray.exceptions.RayError as error:
            raise LostError(f"was lost on {self.part.host}: {_in_a_line(error)}") from error
        return files, events


@contextlib.contextmanager
def placed(
    engine: Ray, launch: Launch, fork: bool, wanted: Callable[[], object]
) -> Iterator[list[Node]]:
    """Nodes with places for all ranks of a job, which are given back at the end.

    Args:
        engine: What the ranks need.
        launch: The job.
        fork: Whether ranks may be forked from their supervisor.
        wanted: Says whether anybody still wants the places; if not there are none.

    Raises:
        LostError: If there are no places.
    """
    import ray

    nodes: list[Node] = []
    group = ray.util.placement_group([engine.needs] * len(launch.tasks), engine.strategy)
    try:
        if _has_room(group, len(launch.tasks), engine, wanted):
            nodes = _start_actors(engine, launch, fork, group)
        yield nodes
    finally:
        if ray.is_initialized():
            _release(nodes, group)


def _has_room(group: Any, count: int, engine: Ray, wanted: Callable[[], object]) -> bool:
    """Wait for a placement group; whether it is there."""
    import ray

    patience = math.inf if engine.placement_timeout is None else engine.placement_timeout
    deadline = time.monotonic() + patience
    # Its wait() submits a task each time, which costs more than to look.
    while ray.util.placement_group_table(group)["state"] != "CREATED":
        if time.monotonic() > deadline:
            has = {k: v for k, v in ray.cluster_resources().items() if k in engine.needs}
            free = {k: v for k, v in ray.available_resources().items() if k in engine.needs}
            raise LostError(
                f"Ray has no room for {count} ranks of {engine.needs} each ({engine.strategy}) "
                f"after {engine.placement_timeout:g} s: the cluster has {has or 'none of it'}, of "
                f"which {free or 'none'} is free. Start fewer ranks, ask for less with "
                "resources=, or wait longer with placement_timeout=."
            )
        if not wanted():
            return False
        time.sleep(_LOOK)
    return True


def _start_actors(engine: Ray, launch: Launch, fork: bool, group: Any) -> list[Node]:
    """Start an actor on each node; with GPUs for each rank, for it is shown one bundle's."""
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    needs, count = engine.needs, len(launch.tasks)
    settings = {"OMP_NUM_THREADS": str(max(1, int(needs.get("CPU", 1))))} | _settings()
    kind = ray.remote(num_cpus=0, concurrency_groups={"send": 1, "receive": 1})(NodeActor)
    table = ray.util.placement_group_table(group)["bundles_to_node_id"]
    numbers = list(dict.fromkeys(table[bundle] for bundle in range(count)))
    # Ranks of one node in a row, whatever Ray has numbered its bundles by.
    bundles = sorted(range(count), key=lambda bundle: (numbers.index(table[bundle]), bundle))
    hosts = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
    target = None
    if launch.script is None:
        target = ray.put((Path(launch.directory) / "target").read_bytes())
    nodes = []
    for index, number in enumerate(numbers):
        here = [rank for rank, bundle in enumerate(bundles) if table[bundle] == number]
        for ranks in [[rank] for rank in here] if "GPU" in needs else [here]:
            place = PlacementGroupSchedulingStrategy(group, bundles[ranks[0]])
            options = kind.options(num_gpus=needs.get("GPU", 0), scheduling_strategy=place)
            actor = options.remote(launch.framework, fork, launch.overrides, settings)
            part = Part(ranks, hosts[number], index, len(numbers))
            nodes.append(Node(part, number, actor, target))
    return nodes


def given_up(nodes: list[Node]) -> list[Node]:
    """Those that Ray does not count as there any more."""
    import ray

    alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
    return [node for node in nodes if node.number not in alive]


def why_lost(error: BaseException) -> str:
    """Why no ranks are placed any more, in words."""
    import ray

    if not isinstance(error, LostError) and not ray.is_initialized():
        return SHUT_DOWN
    return str(error) if isinstance(error, LostError) else in_words(error)


def _release(nodes: list[Node], group: Any) -> None:
    import ray

    try:
        closing = [node.actor.close.options(concurrency_group="send").remote() for node in nodes]
        if closing:
            ray.wait(closing, num_returns=len(closing), timeout=_PATIENCE)
        for node in nodes:
            ray.kill(node.actor)
        ray.util.remove_placement_group(group)
    except Exception as error:
        left = f"The places of its ranks could not be given back: {in_words(error)}"
        _logger.warning("%s", left)  # a job whose ranks have all returned shows no error
        raise LostError(left) from error


def _settings() -> dict[str, str]:
    """The variables of this process by which frameworks are told what to do."""
    settings = {k: v for k, v in os.environ.items() if _SETTING.fullmatch(k)}
    return {k: v for k, v in settings.items() if not STALE.fullmatch(k)}


def _in_a_line(error: Exception) -> str:
    """Ray's words about an actor's end in one line, without the numbers it names things by."""
    lines = [line.strip() for line in str(error).splitlines()]
    said = [_NUMBER.sub("", line) for line in lines if line and not _FIELD.match(line)]
    return " ".join(said[1:] or said)
