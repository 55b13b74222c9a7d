"""What the supervisor knows of one job: its tasks, its processes, and how each came to its end."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from distlab.launching.processes import JOB_VARIABLE
from distlab.launching.protocol.messages import How, Launch
from distlab.launching.protocol.tasks import services, whole
from distlab.launching.protocol.variables import STALE
from distlab.launching.supervisor.loop import Timer
from distlab.launching.supervisor.rendezvous import Rendezvous
from distlab.launching.supervisor.resources import share, unproxied


@dataclass
class SupervisedJob:
    """The ranks of one job.

    Args:
        request: The kernel's request, as it came.
    """

    request: Launch
    rendezvous: Rendezvous | None = None
    store: int | None = None
    """The process id of the ranks' store."""
    running: dict[int, int] = field(default_factory=dict)
    """Process ids by rank."""
    ending: dict[int, str] = field(default_factory=dict)
    """Why a rank that is running has been asked to end: the state it will have then."""
    returned: set[int] = field(default_factory=set)
    """Ranks whose target has returned, and which stay for the others."""
    over: How | None = None
    """How the attempt ended, or is about to; None while it may go on."""
    late: int = -1
    """The attempt that has taken too long."""
    forgotten: bool = False
    """Whether the kernel is done with it."""
    chosen: list[int] = field(default_factory=list)
    """The ranks to start as soon as all parts of the job know where the others listen."""
    timers: list[Timer] = field(default_factory=list)
    """What is to happen to this attempt later."""
    hooks: list[tuple[set[int], Callable[[], None]]] = field(default_factory=list)
    """What to do once all of some ranks are gone."""

    def __post_init__(self) -> None:
        self.name = self.request.job
        self.tasks = self.request.tasks
        self.part = self.request.part or whole(len(self.tasks))
        self.divided = self.request.part is not None
        """Whether other supervisors start the other ranks: then the kernel says when it is over."""
        self.attempts = list(self.request.attempts or [-1] * len(self.tasks))
        self.attempt = self.request.attempt - 1
        self.waiting = set(self.part.ranks)
        self.services = services(self.tasks)
        self.gate: int | None = None
        """What ranks read that stay for the others, once they have returned."""
        self._latch: int | None = None
        """The gate's other end: closed, it lets all of them go."""

    def begin(self, framework: str | None) -> None:
        """Open a new attempt, with a rendezvous that no earlier one has seen."""
        self.attempt += 1
        self.over = None
        self.waiting = set(self.part.ranks)
        self.rendezvous = Rendezvous(framework, self.tasks, self.name, self.attempt, self.part)

    def specify(self, rank: int, framework: str | None, path: list[str]) -> dict[str, Any]:
        """The fields of the next `RankSpec` of `rank`, less those of the supervisor's own."""
        assert self.rendezvous is not None
        request = self.request
        self.over = None
        self.waiting.discard(rank)
        self.returned.discard(rank)
        self.attempts[rank] += 1
        if framework == "tensorflow" and len(self.tasks) > 1 and self.gate is None:
            self.gate, self._latch = os.pipe()
        base = {k: v for k, v in request.environment.items() if not STALE.fullmatch(k)}
        base[JOB_VARIABLE] = self.name
        overrides = request.overrides
        base |= unproxied(base | overrides, self.rendezvous.hosts)
        base |= share(rank, self.part, framework, base | overrides)
        return {
            "job": self.name,
            "rank": rank,
            "attempt": self.attempts[rank],
            "directory": request.directory,
            "framework": framework,
            "script": request.script,
            "arguments": request.arguments,
            "environment": base | self.rendezvous.environment(rank) | overrides,
            "cwd": request.cwd,
            "path": request.path or path,
            "devices": request.devices_per_rank,
            "host": self.part.host,
            "gate": self.gate,
        }

    def left(self) -> set[int]:
        """Ranks that must return or come to an end before the attempt is over."""
        return (set(self.running) | self.waiting) - self.services - self.returned

    def when_gone(self, ranks: Iterable[int], action: Callable[[], None]) -> None:
        """Do `action` once none of `ranks` is running: now, if that is so."""
        self.hooks.append((set(ranks), action))
        self.run_hooks()

    def run_hooks(self) -> None:
        """Do what has been waiting for ranks that are gone now."""
        ready = [hook for hook in self.hooks if not hook[0] & set(self.running)]
        self.hooks = [hook for hook in self.hooks if hook not in ready]
        for _, action in ready:
            action()

    def let_go(self) -> None:
        """Let the ranks end that have stayed for others."""
        if self.gate is not None and self._latch is not None:
            os.close(self.gate)
            os.close(self._latch)
        self.gate = self._latch = None

    def close(self) -> None:
        """Let go of the ports, and of ranks."""
        self.let_go()
        if self.rendezvous is not None:
            self.rendezvous.close()

    def leave(self) -> None:
        """In a forked process: close what is the supervisor's. A rank needs the gate."""
        if self._latch is not None:
            os.close(self._latch)
        if self.rendezvous is not None:
            self.rendezvous.close()
