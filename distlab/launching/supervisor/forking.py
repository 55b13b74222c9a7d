"""How a supervisor starts a process: by a fork of itself."""

import os
import signal
import warnings
from collections.abc import Callable
from typing import NoReturn

Child = Callable[[], NoReturn]
"""What a forked process has to do, once it has left the supervisor's loop."""

HANDLED = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)
"""The signals on which a supervisor acts."""


class Forked(BaseException):
    """Takes a process that was just forked out of the supervisor's loop.

    Args:
        child: What it has to do then.
    """

    def __init__(self, child: Child) -> None:
        self.child = child


def fork(child: Child) -> int:
    """Fork this process.

    Args:
        child: What the new process has to do.

    Returns:
        The new process's id.

    Raises:
        Forked: In the new process.
        OSError: If the system allows no more processes.
    """
    # The new process must not act on a signal as the supervisor would.
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of forks beside threads: there are none
            pid = os.fork()
        if pid == 0:
            for number in HANDLED:
                signal.signal(number, signal.SIG_DFL)
            raise Forked(child)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
    return pid
