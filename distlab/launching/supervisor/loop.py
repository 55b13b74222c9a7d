"""A loop that waits for descriptors, for children and for the clock, without a thread."""

import os
import selectors
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

Action = Callable[[], object]


@dataclass(frozen=True, eq=False)
class Timer:
    """Something to do once, at a time of `time.monotonic`."""

    when: float
    action: Action


_LONGEST = 3600.0
"""A selector takes no timeout of years, so the loop looks up at least once an hour."""


class Loop:
    """Calls one action at a time, whichever is due.

    Args:
        on_children: What to do when children have ended, stopped or gone on.
    """

    def __init__(self, on_children: Action) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[Timer] = []
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

    def later(self, seconds: float, action: Action) -> Timer:
        """Do `action` once, after `seconds`, unless it is cancelled."""
        timer = Timer(time.monotonic() + seconds, action)
        self._timers.append(timer)
        return timer

    def cancel(self, timer: Timer) -> None:
        """Do not do what was to be done later, if it has not been done yet."""
        if timer in self._timers:
            self._timers.remove(timer)

    def run(self, until: Callable[[], bool]) -> None:
        """Run until `until` is true after some action."""
        while True:
            now = time.monotonic()
            due = [timer.action for timer in self._timers if timer.when <= now]
            self._timers = [timer for timer in self._timers if timer.when > now]
            if not due:
                wait = min((timer.when - now for timer in self._timers), default=_LONGEST)
                due = [key.data for key, _ in self._selector.select(min(wait, _LONGEST))]
            for action in due:
                action()
                if until():
                    return

    def close(self) -> None:
        """In a forked process: close what is the loop's own."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        os.close(self._wake)
        os.close(self._woken)
