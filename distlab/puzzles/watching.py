"""A rank that does not call: how long it has computed since, and in which line it is."""

import sys
import sysconfig
import threading
import time
import types
from collections.abc import Callable
from os import sep

from distlab.puzzles.lines import OWN, place_at
from distlab.puzzles.messages import Failed, Patience, SolverLine

_LOOK = 0.25
"""Seconds between two looks."""
_FROZEN = "<frozen "
_LIBRARIES = [sysconfig.get_path(kind) + sep for kind in ("stdlib", "purelib", "platlib")]
_OTHERS = (OWN, _FROZEN, *_LIBRARIES)


class SilenceWatch:
    """Watches the thread that made it, from another one, and tells once if patience has an end.

    What counts is the processor's time, since that does not depend on what else the machine does.
    While a module is imported none is counted.

    Args:
        patience: How long the solver's code may go without a call.
        tell: Called with what has to be told.
    """

    def __init__(self, patience: Patience, tell: Callable[[Failed], None]) -> None:
        self._patience = patience
        self._tell = tell
        self._watched = threading.get_ident()
        self._began: tuple[float, float] | None = None
        self._over = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def begin(self) -> None:
        """The solver's code goes on from here."""
        self._began = (time.monotonic(), time.process_time())

    def pause(self) -> None:
        """A call is under way: nothing is counted until `begin`."""
        self._began = None

    def end(self) -> None:
        """There is nothing more to watch."""
        self._over.set()

    def _run(self) -> None:
        seen: tuple[float, float] | None = None
        imports = 0.0
        last = time.process_time()
        while not self._over.wait(_LOOK):
            began, now = self._began, time.process_time()
            if began is None:
                continue
            if began is not seen:
                seen, imports, last = began, 0.0, began[1]
            if _imports(self._frame()):
                imports += now - last
            last = now
            why = self._why(time.monotonic() - began[0], now - began[1] - imports)
            if why and self._began is began:
                self._tell(Failed(why, place_in(self._frame())))
                return

    def _frame(self) -> types.FrameType | None:
        """Where the solver's code is. No variable keeps it: a frame holds the tensors of a call."""
        return sys._current_frames().get(self._watched)

    def _why(self, seconds: float, computed: float) -> str:
        if computed > self._patience.computing:
            return (
                f"It is in this line, and has computed for {self._patience.computing:g} seconds "
                "since its last call of me. Is there a loop that never ends?"
            )
        if seconds > self._patience.calling:
            return (
                f"It is in this line, and has not called me for {self._patience.calling:g} "
                "seconds. Does it wait for something that never comes?"
            )
        return ""


def _imports(frame: types.FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith(f"{_FROZEN}importlib"):
            return True
        frame = frame.f_back
    return False


def is_solvers(file: str) -> bool:
    """Whether a file of code is the solver's, neither a library's nor distlab's."""
    return not file.startswith(_OTHERS)


def place_in(frame: types.FrameType | None) -> SolverLine | None:
    """The innermost line of the solver's in a stack; None if there is none.

    Args:
        frame: The innermost frame of the stack.
    """
    while frame is not None:
        if is_solvers(frame.f_code.co_filename):
            return place_at(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return None
