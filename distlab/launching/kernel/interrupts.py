"""Steps that an interrupt must not break in two."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def held() -> Iterator[Callable[[], None]]:
    """Within it an interrupt waits, until it is left or what it yields is called.

    Some steps must not be interrupted half way: a job that runs already would have no name yet.
    Only the main thread is ever interrupted, so elsewhere this does nothing.
    """
    handler = signal.getsignal(signal.SIGINT)
    waiting: list[int] = []

    def release() -> None:
        if signal.getsignal(signal.SIGINT) is note:
            signal.signal(signal.SIGINT, handler)
            if waiting:
                signal.raise_signal(signal.SIGINT)

    def note(number: int, _: object) -> None:
        waiting.append(number)

    if threading.current_thread() is threading.main_thread() and callable(handler):
        signal.signal(signal.SIGINT, note)
    try:
        yield release
    finally:
        release()
