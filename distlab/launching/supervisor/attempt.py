"""What one attempt of a job has open: ports, a store, timers, and a gate for ranks that stay."""

import contextlib
import os
import signal
from collections.abc import Callable
from sched import Event

from distlab.launching.protocol.messages import Launch
from distlab.launching.protocol.tasks import Part
from distlab.launching.supervisor.loop import Loop
from distlab.launching.supervisor.rendezvous import Rendezvous


class Attempt:
    """One attempt of the whole group, with a rendezvous that no earlier one has seen.

    Args:
        request: The job.
        part: The ranks that are started from here.
        number: How often the job was started before, from 0.
        loop: Where to have something done later.

    Attributes:
        rendezvous: How its ranks find one another.
        store: The process id of the ranks' store, if that was started here.

    Raises:
        OSError: If there are no ports for it, or no descriptors.
    """

    def __init__(self, request: Launch, part: Part, number: int, loop: Loop) -> None:
        self.rendezvous = Rendezvous(request, part, number)
        self.store: int | None = None
        self._stays = request.framework == "tensorflow" and len(request.tasks) > 1
        self._gate: tuple[int, int] | None = None
        """A pipe whose writing end is closed when no rank needs another any more."""
        self._loop = loop
        self._timers: list[Event] = []

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Do `action` after some seconds, unless this has been closed by then."""
        self._timers.append(self._loop.later(seconds, action))

    def gate(self) -> int | None:
        """What a rank reads that stays for the others; None where none does."""
        if self._stays and self._gate is None:
            self._gate = os.pipe()
        return self._gate and self._gate[0]

    def let_go(self) -> None:
        """Let the ranks end that have stayed for others."""
        for end in self._gate or ():
            os.close(end)
        self._gate = None

    def close(self) -> None:
        """Let go of all of it."""
        while self._timers:
            with contextlib.suppress(ValueError):  # it has come to pass
                self._loop.timers.cancel(self._timers.pop())
        self.let_go()
        self.rendezvous.close()
        if self.store is not None:
            os.kill(self.store, signal.SIGKILL)
            self.store = None

    def leave(self) -> None:
        """In a forked process: close what is the supervisor's. A rank needs the gate."""
        if self._gate is not None:
            os.close(self._gate[1])
        self.rendezvous.close()
