"""Signals that wait: steps that an interrupt, or SIGTERM, must not break in two."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def held(awaited: signal.Signals) -> Iterator[Callable[[], None]]:
    """Within it a signal waits, until it is left or what it yields is called.

    A job that runs already would have no name yet; a rank that has failed by itself has not said
    so. Only the main thread is ever interrupted, so elsewhere this does nothing; nor where a
    library's C code handles the signal: that handler cannot be set again from here.
    """
    handler = signal.getsignal(awaited)
    came: list[int] = []

    def release() -> None:
        if signal.getsignal(awaited) is note:
            signal.signal(awaited, handler)
            if came:
                signal.raise_signal(awaited)

    def note(number: int, _: object) -> None:
        came.append(number)

    if threading.current_thread() is threading.main_thread() and handler is not None:
        signal.signal(awaited, note)
    try:
        yield release
    finally:
        release()
