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
    """

    def __init__(self) -> None:
        self._came = False
        self._before: Callable[[int, FrameType | None], Any] | int | None = None

    def __enter__(self) -> "Held":
        handler = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is threading.main_thread() and callable(handler):
            self._before = handler
            signal.signal(signal.SIGINT, self._note)
        return self

    def _note(self, *_: object) -> None:
        self._came = True

    def release(self) -> None:
        """Let interrupts through again, one that has waited at once."""
        before, self._before = self._before, None
        if before is None:
            return
        signal.signal(signal.SIGINT, before)
        if self._came:
            signal.raise_signal(signal.SIGINT)

    def __exit__(self, *_: object) -> None:
        self.release()
