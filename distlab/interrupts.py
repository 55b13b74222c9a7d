"""What a reader sees who interrupts a cell that waits for ranks, or for an import."""

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from distlab.shell import notebook_shell


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


def interrupted(stopped: int) -> KeyboardInterrupt:
    """The interrupt of a wait, in one line, after the ranks were stopped.

    Args:
        stopped: How many ranks had to be stopped.

    Returns:
        What to raise. IPython shows its message alone and none of distlab's lines.
    """
    ranks = f"{stopped} rank{'s' * (stopped != 1)} {'was' if stopped == 1 else 'were'} stopped"
    return _in_one_line(f"interrupted; {ranks}")


def left_alone(over: bool) -> KeyboardInterrupt:
    """The interrupt of something that only watches a job, likewise.

    Args:
        over: Whether the job has come to its end.
    """
    return _in_one_line(
        "interrupted; the job is over" if over else "interrupted; the job goes on: stop() ends it"
    )


def while_importing(framework: str) -> KeyboardInterrupt:
    """The interrupt of an import, likewise.

    Args:
        framework: What was being imported.
    """
    return _in_one_line(f"interrupted while {framework} was being imported; {start_again()}")


def start_again() -> str:
    """What to do where Python itself has to begin anew: a kernel, or a program."""
    return "restart the kernel" if notebook_shell() is not None else "start Python again"


def _in_one_line(words: str) -> KeyboardInterrupt:
    error = KeyboardInterrupt(words)
    # An attribute of the instance, so that the type stays the one that everybody catches.
    error._render_traceback_ = lambda: [f"KeyboardInterrupt: {error}"]  # type: ignore[attr-defined]
    return error
