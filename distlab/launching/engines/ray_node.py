"""On a node of a Ray cluster: a supervisor, and the way to what it says and its ranks write."""

import contextlib
import os
import queue
import sys
import time
from pathlib import Path

from msgspec.structs import replace

from distlab.launching.kernel.client import LocalClient, environments, supervisors_own
from distlab.launching.protocol.messages import AnyEvent, AnyRequest, Launch, SupervisorLost
from distlab.launching.tracebacks import in_words

_PAUSE = 0.05
"""Seconds between two looks at the ranks' logs."""
_POLL = 0.5
"""Seconds to wait for anything to tell."""


class NodeActor:
    """The ranks of one job that run on this node; Ray makes an actor of it.

    It speaks a supervisor's language: requests go in, events come out, and with them what ranks
    have added to their files, their logs above all.

    Args:
        framework: What the ranks use.
        fork: Whether they may be forked from one process that has imported it.
        overrides: Variables to set in the ranks.
        settings: Variables that frameworks read, as they are where the job was launched.
    """

    def __init__(
        self,
        framework: str | None,
        fork: bool,
        overrides: dict[str, str],
        settings: dict[str, str],
    ) -> None:
        self._environment, own = environments(os.environ | settings, framework, overrides)
        fork = fork and sys.platform == "linux"
        # Ray kills what an actor has started together with the actor.
        self._client = LocalClient(framework, fork, supervisors_own(own), apart=True)
        self._events: queue.SimpleQueue[AnyEvent] = queue.SimpleQueue()
        self._job = ""
        self._told: dict[Path, int] = {}

    def send(self, request: AnyRequest, target: bytes | None = None) -> None:
        """Pass a request on to the supervisor.

        Args:
            request: As the kernel would send it to its own supervisor, less what is this node's.
            target: With a launch: the function and its arguments.
        """
        try:
            if isinstance(request, Launch):
                request = self._complete(request, target)
            self._client.send(self, request)
        except Exception as error:  # noqa: BLE001 - told to the kernel
            self._on_lost(f"was lost: {in_words(error)}")

    def _complete(self, launch: Launch, target: bytes | None) -> Launch:
        self._job = launch.job
        directory = self._client.directory / launch.job
        directory.mkdir(mode=0o700)
        if target is not None:
            (directory / "target").write_bytes(target)
        # For a function, what can be imported here can be imported by its rank.
        here = None if launch.script else [str(Path(p).absolute()) for p in sys.path]
        return replace(
            launch,
            directory=str(directory),
            environment=self._environment,
            path=launch.path or here,
            cwd=launch.cwd or str(Path.cwd()),
        )

    def receive(self) -> tuple[dict[str, bytes], list[AnyEvent]]:
        """What has happened since the last call; nothing if that is so for a while.

        Returns:
            What was added to the files of the job's directory, by name, and events in order. What
            a rank wrote before an event is there with it.
        """
        events: list[AnyEvent] = []
        end = time.monotonic() + _POLL
        while True:
            while not self._events.empty():
                events.append(self._events.get())
            grown = self._grown()
            if events or grown or time.monotonic() > end:
                return grown, events
            with contextlib.suppress(queue.Empty):
                events.append(self._events.get(timeout=_PAUSE))

    def _grown(self) -> dict[str, bytes]:
        grown = {}
        for path in sorted((self._client.directory / self._job).glob("rank*")):
            if path.suffix != ".partial":
                with path.open("rb") as file:
                    file.seek(self._told.get(path, 0))
                    if data := file.read():
                        grown[path.name] = data
                    self._told[path] = file.tell()
        return grown

    def close(self) -> None:
        """End all ranks, and the supervisor."""
        self._client.close()

    def _on_event(self, event: AnyEvent) -> None:
        self._events.put(event)

    def _on_lost(self, why: str) -> None:
        self._events.put(SupervisorLost(job=self._job, why=why))
