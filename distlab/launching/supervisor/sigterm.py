"""SIGTERM, by which the ranks of a job are ended, when it comes to one that has failed already."""

import contextlib
import os
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Within it SIGTERM waits: a rank that has failed by itself comes to say so."""
    came: list[int] = []
    before = signal.getsignal(signal.SIGTERM)
    if before is None:  # set by a library's C code: it cannot be set again from here
        yield
        return
    signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        if came:
            os.kill(os.getpid(), signal.SIGTERM)
