"""Steps that an interrupt must not break in two."""

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any


class Held:
    """A context manager within which an interrupt waits, until it is left or `release` is called.

    Some steps must not be interrupted half way: a job that runs already would have no name yet.
    Only the main thread is ever interrupted, so elsewhere this does nothing.

    Args:
        at_once: Whether it begins to hold them when it is entered.
    """

    def __init__(self, at_once: bool = True) -> None:
        self._at_once = at_once
        self._came = False
        self._before: Callable[[int, FrameType | None], Any] | int | None = None

    def __enter__(self) -> "Held":
        if self._at_once and _is_main():
            for held in (*_waiting, self):
                held._hold()
            _waiting.clear()
        return self

    def begin_with_next(self) -> None:
        """Begin to hold interrupts as soon as the next one does, for longer than that."""
        if _is_main():
            _waiting[:] = [self]

    def _hold(self) -> None:
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler):
            self._before = handler
            signal.signal(signal.SIGINT, self._note)

    def _note(self, *_: object) -> None:
        self._came = True

    def release(self) -> None:
        """Let interrupts through again, one that has waited at once."""
        if self in _waiting:
            _waiting.remove(self)
        before, self._before = self._before, None
        if before is None:
            return
        signal.signal(signal.SIGINT, before)
        if self._came:
            signal.raise_signal(signal.SIGINT)

    def __exit__(self, *_: object) -> None:
        self.release()


_waiting: list[Held] = []


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()
