"""What one job has on a Ray cluster: a placement group, and an actor on each of its nodes.

Ray Train is not used: its workers are one process each, whose logs, exit and pauses are Ray's
own affair, and it forms no JAX group on CPUs.
"""

import math
import os
import re
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from distlab.launching import processes
from distlab.launching.engines import ray_session
from distlab.launching.engines.ray import Ray
from distlab.launching.engines.ray_node import NodeActor
from distlab.launching.protocol.messages import AnyEvent, AnyRequest, Launch
from distlab.launching.protocol.tasks import Part
from distlab.launching.protocol.variables import STALE

_PATIENCE = 5.0
"""Seconds for a node to end its ranks when it is told to."""
_LOOK = 0.05
"""Seconds between two looks whether there is room."""
_SETTING = re.compile(r"(KERAS|TF|XLA|JAX|PYTORCH|TORCH|NCCL|GLOO|DTENSOR|GRPC|TFDS|DISTLAB)_.*")
"""Variables that travel with a job to other nodes: what frameworks are told by."""
_NUMBER = re.compile(r" ?Node I[dD]: \w+\.?")
_FIELD = re.compile(r"(class_name|actor_id|pid|name|namespace|ip): ")


class LostError(RuntimeError):
    """No places could be found, or a node cannot be reached; the message says why."""


@dataclass(eq=False)
class Node:
    """Ranks on one node, and the actor that speaks for them.

    Attributes:
        part: The ranks.
        name: The node in words.
        number: By which Ray knows the node.
        actor: The handle of a `NodeActor`.
        target: A reference to the function and its arguments.
        over: Whether its part of the attempt has come to its end.
    """

    part: Part
    name: str
    number: str
    actor: Any
    target: Any
    over: bool = False

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
        except ray.exceptions.RayActorError as error:
            raise LostError(f"was lost on {self.name}: {_in_a_line(error)}") from error
        except ray.exceptions.RayError as error:
            raise LostError(f"cannot be reached on {self.name}: {_in_a_line(error)}") from error
        return files, events


@dataclass
class Placement:
    """Places for all ranks of one job.

    Attributes:
        engine: Where to look for them.
        launch: The job.
        fork: Whether ranks may be forked from their supervisor.
        nodes: The nodes with the places, once they are found.
    """

    engine: Ray
    launch: Launch
    fork: bool
    nodes: list[Node] = field(default_factory=list)
    _group: Any = None
    _entered: bool = False

    def fill(self, cancelled: threading.Event) -> None:
        """Find the places, unless that is `cancelled`. Raises LostError if there are none."""
        sent = self.launch.cwd if self.engine.upload_cwd else None
        try:
            ray_session.enter(self.engine.address, sent)
        except Exception as error:
            where = f"at {self.engine.address!r}" if self.engine.address else "on this machine"
            raise LostError(
                f"Could not join Ray {where}: {error} (`ray.init()` starts a cluster here.)"
            ) from error
        self._entered = True
        self._reserve(cancelled)
        if not cancelled.is_set():
            self._start_actors()
        there: dict[str, Any] = {"cwd": "", "path": None} if sent else {}
        self.launch = replace(self.launch, directory="", **there)

    def _reserve(self, cancelled: threading.Event) -> None:
        import ray

        engine, count = self.engine, len(self.launch.tasks)
        self._group = ray.util.placement_group([engine.needs] * count, engine.strategy)
        patience = math.inf if engine.placement_timeout is None else engine.placement_timeout
        deadline = time.monotonic() + patience
        # Its wait() submits a task each time, which costs more than to look.
        while ray.util.placement_group_table(self._group)["state"] != "CREATED":
            if cancelled.wait(_LOOK):
                return
            if time.monotonic() > deadline:
                raise LostError(_no_room(count, engine))

    def _start_actors(self) -> None:
        """Start an actor on each node; with GPUs for each rank, for it is shown one bundle's."""
        import ray

        count = len(self.launch.tasks)
        table = ray.util.placement_group_table(self._group)["bundles_to_node_id"]
        numbers = list(dict.fromkeys(table[bundle] for bundle in range(count)))
        # Ranks of one node in a row, whatever Ray has numbered its bundles by.
        bundles = sorted(range(count), key=lambda bundle: (numbers.index(table[bundle]), bundle))
        at = [numbers.index(table[bundle]) for bundle in bundles]
        hosts = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
        target = None
        if self.launch.script is None:
            target = ray.put((Path(self.launch.directory) / "target").read_bytes())
        for node, number in enumerate(numbers):
            here = [rank for rank in range(count) if at[rank] == node]
            for ranks in [[rank] for rank in here] if "GPU" in self.engine.needs else [here]:
                part = Part(ranks, hosts[number], node, len(numbers), ranks)
                actor = self._actor(bundles[ranks[0]])
                self.nodes.append(Node(part, part.host, number, actor, target))

    def _actor(self, bundle: int) -> Any:
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        needs = self.engine.needs
        settings = {"OMP_NUM_THREADS": str(max(1, int(needs.get("CPU", 1))))} | _settings()
        kind = ray.remote(num_cpus=0, concurrency_groups={"send": 1, "receive": 1})(NodeActor)
        return kind.options(
            num_gpus=needs.get("GPU", 0),
            scheduling_strategy=PlacementGroupSchedulingStrategy(self._group, bundle),
        ).remote(self.launch.framework, self.fork, self.launch.overrides, settings)

    def release(self) -> None:
        """End what is there, and give the places back."""
        import ray

        if not self._entered:
            return
        try:
            if ray.is_initialized():
                closing = [
                    node.actor.close.options(concurrency_group="send").remote()
                    for node in self.nodes
                ]
                ray.wait(closing, num_returns=len(closing), timeout=_PATIENCE) if closing else ()
                for node in self.nodes:
                    ray.kill(node.actor)
                if self._group is not None:
                    ray.util.remove_placement_group(self._group)
        finally:
            self.nodes, self._group, self._entered = [], None, False
            ray_session.leave()


def _settings() -> dict[str, str]:
    """The variables of this process by which frameworks are told what to do."""
    settings = {k: v for k, v in os.environ.items() if _SETTING.fullmatch(k)}
    here = processes.DIRECTORY_VARIABLE  # which names a place on this machine
    return {k: v for k, v in settings.items() if not STALE.fullmatch(k) and k != here}


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


def _in_a_line(error: Exception) -> str:
    """Ray's words about an actor's end in one line, without the numbers it names things by."""
    lines = [line.strip() for line in str(error).splitlines()]
    said = [_NUMBER.sub("", line) for line in lines if line and not _FIELD.match(line)]
    return " ".join(said[1:] or said)
