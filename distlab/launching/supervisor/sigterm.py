"""What SIGTERM, by which the ranks of a job are ended, has to do with an error of a rank."""

import contextlib
import os
import signal
import traceback
from collections.abc import Iterator


def brought(error: BaseException) -> bool:
    """Whether the target's own handler of SIGTERM raised an error, or what led to it."""
    handler = signal.getsignal(signal.SIGTERM)
    if not callable(handler):
        return False
    if isinstance(error, SystemExit | KeyboardInterrupt):
        return True  # a handler written in C, or one that only notes that it is time to leave
    function = getattr(handler, "func", handler)
    owner = function if hasattr(function, "__code__") else type(function).__call__
    code = getattr(owner, "__code__", None)
    frames = (frame for each in _chain(error) for frame, _ in traceback.walk_tb(each.__traceback__))
    return any(frame.f_code is code for frame in frames)


def _chain(error: BaseException) -> list[BaseException]:
    """An error and all that led to it."""
    seen: list[BaseException] = []
    linked: list[BaseException | None] = [error]
    while linked:
        each = linked.pop()
        if each is not None and not any(each is other for other in seen):
            seen.append(each)
            linked += each.__cause__, each.__context__
    return seen


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
