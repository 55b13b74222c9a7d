"""On another node: a supervisor of its own, and a copy of all that it says and its ranks write."""

import os
import queue
import sys
import threading
from pathlib import Path

from msgspec.structs import replace

from distlab.launching.kernel.client import LocalClient
from distlab.launching.kernel.environment import environments, supervisors_own
from distlab.launching.protocol.messages import (
    AnyEvent,
    AnyRequest,
    FileGrown,
    Launch,
    SupervisorLost,
)

_CHUNK = 1 << 24
_PAUSE = 0.05
"""Seconds between two looks at the ranks' logs."""


class RemoteSupervisor:
    """The ranks of one job that run on this node.

    It speaks a supervisor's language: requests go in, events come out. The files that ranks leave,
    their logs above all, come as events too: each has the bytes added since the last.

    Args:
        framework: What the ranks use.
        fork: Whether they may be forked from one process that has imported it.
        overrides: Variables to set in the ranks.
        settings: Variables that frameworks read, as they are where the job was launched.
        task: Whether this process is a task of a scheduler that has one for each rank.
    """

    def __init__(
        self,
        framework: str | None,
        fork: bool,
        overrides: dict[str, str],
        settings: dict[str, str],
        task: bool = False,
    ) -> None:
        inherited = os.environ | settings
        self._environment, own = environments(inherited, framework, overrides, scheduled=task)
        fork = fork and sys.platform == "linux"
        # Ray and Slurm kill what a task has started together with the task.
        self._client = LocalClient(framework, fork, supervisors_own(own), apart=True)
        self._events: queue.SimpleQueue[AnyEvent] = queue.SimpleQueue()
        self._job = ""
        self._directory: Path | None = None
        self._seen: dict[str, int] = {}
        self._reading = threading.Lock()

    def send(self, request: AnyRequest, target: bytes | None = None) -> None:
        """Pass a request on to the supervisor.

        Args:
            request: As the kernel would send it to its own supervisor, less what is this node's.
            target: With a launch: the function and its arguments.
        """
        if isinstance(request, Launch):
            directory = self._client.directory / request.job
            directory.mkdir(mode=0o700)
            if target is not None:
                (directory / "target").write_bytes(target)
            self._job, self._directory = request.job, directory
            # For a function, what can be imported here can be imported by its rank.
            here = None if request.script else [str(Path(p).absolute()) for p in sys.path]
            request = replace(
                request,
                directory=str(directory),
                environment=self._environment,
                path=request.path or here,
                cwd=request.cwd or str(Path.cwd()),
            )
        self._client.send(self, request)

    def receive(self, timeout: float) -> list[AnyEvent]:
        """What has happened since the last call.

        Args:
            timeout: How many seconds to wait for anything at all.

        Returns:
            Events in their order; none if nothing has happened.
        """
        events: list[AnyEvent] = []
        rounds = max(1, round(timeout / _PAUSE))
        for _ in range(rounds):
            self._read()
            try:
                events.append(self._events.get(timeout=_PAUSE))
            except queue.Empty:
                continue
            break
        while not self._events.empty():
            events.append(self._events.get())
        return events

    def close(self) -> None:
        """End all ranks, and the supervisor."""
        self._client.close()

    # What the supervisor says.

    def _on_event(self, event: AnyEvent) -> None:
        """Pass an event on, after what was written before it."""
        self._read()
        self._events.put(event)

    def _on_lost(self, why: str) -> None:
        """Pass on that there is no supervisor any more."""
        self._read()
        self.lose(why)

    def lose(self, why: str) -> None:
        """Say that nothing more can be done here."""
        self._events.put(SupervisorLost(job=self._job, why=why))

    def _read(self) -> None:
        """Turn what was added to the job's files into events."""
        if self._directory is None:
            return
        with self._reading:
            for path in sorted(self._directory.glob("rank*")):
                if path.suffix == ".partial":
                    continue
                with path.open("rb") as file:
                    file.seek(self._seen.get(path.name, 0))
                    while data := file.read(_CHUNK):
                        self._events.put(FileGrown(job=self._job, name=path.name, data=data))
                    self._seen[path.name] = file.tell()
