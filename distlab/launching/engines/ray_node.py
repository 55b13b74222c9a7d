"""On a node of a Ray cluster: a supervisor, and the way to what it says and its ranks write."""

import contextlib
import dataclasses
import os
import queue
import sys
from pathlib import Path

import ray
from msgspec.structs import replace

from distlab.launching.kernel.client import LocalClient
from distlab.launching.kernel.environment import environments, supervisors_own
from distlab.launching.protocol.messages import AnyEvent, AnyRequest, Broken, Launch
from distlab.launching.protocol.tasks import Part
from distlab.launching.supervisor.rendezvous import hold_ports

_PAUSE = 0.05
"""Seconds between two looks at the ranks' logs."""


class NodeActor:
    """The ranks of one attempt of a job that run on this node; Ray makes an actor of it.

    It speaks a supervisor's language: requests go in, events come out, and with them what ranks
    have added to their files, their logs above all.

    Args:
        launch: The job, less what is this node's.
        part: Which of its ranks are to run here.
        target: The function and its arguments, if it has any.
        fork: Whether ranks may be forked from one process that has imported the framework.
    """

    def __init__(
        self,
        launch: Launch,
        part: Part,
        target: bytes | None,
        fork: bool,
    ) -> None:
        # Not always where the bundle was: Ray may have found it a new place meanwhile.
        part = dataclasses.replace(part, host=ray.util.get_node_ip_address())
        # Held from now on by the supervisor, too, which has them to itself once it is ready.
        self._ports = hold_ports(launch, part)
        self._held = {rank: port.fileno() for rank, port in self._ports.items()}
        environment, own = environments(os.environ, launch.framework, launch.overrides)
        self._client = LocalClient(
            launch.framework,
            fork and sys.platform == "linux",
            supervisors_own(own),
            apart=True,  # Ray kills what an actor has started together with the actor
            inherited=list(self._held.values()),
        )
        self._directory = self._client.directory / launch.job
        self._directory.mkdir(mode=0o700)
        if target is not None:
            (self._directory / "target").write_bytes(target)
        # For a function, what can be imported here can be imported by its rank.
        here = None if launch.script else [str(Path(p).absolute()) for p in sys.path]
        self._launch = replace(
            launch,
            ranks=part.ranks,
            directory=str(self._directory),
            environment=environment,
            path=launch.path or here,
            cwd=launch.cwd or str(Path.cwd()),
        )
        self._told: dict[Path, int] = {}
        self._events: queue.SimpleQueue[AnyEvent | Part | Broken] = queue.SimpleQueue()
        addresses = {rank: port.address for rank, port in self._ports.items()}
        self._events.put(dataclasses.replace(part, addresses=addresses))

    def start(self, part: Part) -> None:
        """Start the ranks, told where those of other nodes listen."""
        self.send(replace(self._launch, part=dataclasses.replace(part, ports=self._held)))

    def send(self, request: AnyRequest) -> None:
        """Pass a request on to the supervisor."""
        self._client.send(self, request)

    @ray.method(concurrency_group="receive")  # type: ignore[untyped-decorator]
    def receive(self) -> tuple[dict[str, bytes], list[AnyEvent | Part | Broken]]:
        """What has happened since the last call, waited for.

        Returns:
            What was added to the files of the job's directory, by name, and events in order. What
            a rank wrote before an event is there with it.
        """
        self._client.ready.wait()
        for port in self._ports.values():
            port.close()
        events: list[AnyEvent | Part | Broken] = []
        while True:
            while not self._events.empty():
                events.append(self._events.get())
            grown = self._grown()
            if events or grown:
                return grown, events
            with contextlib.suppress(queue.Empty):
                events.append(self._events.get(timeout=_PAUSE))

    def _grown(self) -> dict[str, bytes]:
        grown = {}
        for path in sorted(self._directory.glob("rank*")):
            if path.suffix != ".partial":
                with path.open("rb") as file:
                    file.seek(self._told.get(path, 0))
                    if data := file.read():
                        grown[path.name] = data
                    self._told[path] = file.tell()
        return grown

    def _on_event(self, event: AnyEvent) -> None:
        self._events.put(event)

    def _on_lost(self, why: str) -> None:
        self._events.put(Broken(error=why))
