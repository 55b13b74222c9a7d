"""A loop that waits for descriptors, for children and for the clock, without a thread."""

import os
import sched
import selectors
import signal
import time
from collections.abc import Callable
from typing import NoReturn

Action = Callable[[], object]

_LONGEST = 3600.0
"""A selector takes no timeout of years, so the loop looks up at least once an hour."""


class Loop:
    """Calls one action at a time, whichever is due.

    Args:
        on_children: What to do when children have ended, stopped or gone on.

    Attributes:
        timers: What is to be done later, in seconds of `time.monotonic`.
    """

    def __init__(self, on_children: Action) -> None:
        self.timers = sched.scheduler(time.monotonic)
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._woken, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)

        def awake() -> None:
            os.read(self._wake, 1 << 16)
            on_children()

        self.watch(self._wake, awake)

    def watch(self, descriptor: int, action: Action) -> None:
        """Do `action` whenever `descriptor` can be read."""
        self._selector.register(descriptor, selectors.EVENT_READ, action)

    def unwatch(self, descriptor: int) -> None:
        """Do nothing any more when `descriptor` can be read."""
        self._selector.unregister(descriptor)

    def later(self, seconds: float, action: Action) -> sched.Event:
        """Do `action` once, after `seconds`, unless the event is cancelled in `timers`."""
        return self.timers.enter(seconds, 0, action)

    def run(self) -> NoReturn:
        """Run for ever: an exception is the way out."""
        while True:
            due = self.timers.run(blocking=False)
            wait = _LONGEST if due is None else min(due, _LONGEST)
            for key, _ in self._selector.select(wait):
                key.data()

    def close(self) -> None:
        """In a forked process: close what is the loop's own."""
        signal.set_wakeup_fd(-1)
        self._selector.close()
        os.close(self._wake)
        os.close(self._woken)
