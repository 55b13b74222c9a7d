"""A thread for each rank, of which one at a time goes on: turns, and ends.

A rank goes on until it needs something that is not there yet. Then the lowest rank that can go on
does. So what happens follows from the program alone, never from the machine; and when no rank can
go on, the run is over.
"""

import contextlib
import ctypes
import io
import sys
import threading
import time
import traceback
import types
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from distlab.puzzles.account import HeldTensor, RankClock
from distlab.puzzles.lines import Place, is_solvers

MOST_LINES = 500_000
"""Lines of the solution that a rank may run: a loop that never ends does not run for ever."""
_COUNTED = MOST_LINES // 10
"""Of the last so many it is counted how often each runs."""
LINES_OF_A_CALL = 500
"""As many a call of `me` counts."""
_MOST_PRINTED = 50_000
"""Characters that are shown of what ranks print in a run: a loop must not flood the page."""
_LOOK = 0.1
"""Seconds between two looks at the rank that goes on."""
_IDLE, _IDLE_LINES = 1.5, 200_000
"""After so many seconds without a call of `me`, and with fewer lines in each, it is ended."""


class RunOverError(BaseException):
    """The run is over for a rank: it leaves the solver's function."""


class _LeaveError(RunOverError):
    """Raised in a thread from outside: a program that catches it meets it again at its next line.

    Python makes it in that thread. So its constructor can set a trace there, also in the functions
    that have begun.
    """

    def __init__(self) -> None:
        for frame, _ in traceback.walk_stack(sys._getframe(1)):
            if is_solvers(frame):
                frame.f_trace = _leave
        sys.settrace(_leave)


class _ParkError(RunOverError):
    """Raised in a thread that catches all others: it stands still for ever."""

    def __init__(self) -> None:
        threading.Event().wait()


def _leave(frame: types.FrameType, event: str, _: Any) -> Any:
    # From Python 3.12 on there is an event for the error that set this trace, within the `try`.
    if event == "line" and is_solvers(frame):
        raise RunOverError
    return _leave


@dataclass(eq=False)
class Seat:
    """A rank: its thread, its clock, what it has done, and its last call."""

    rank: int
    clock: RankClock = field(default_factory=RankClock)
    state: str = "new"  # running, waiting, returned or failed
    can_go_on: Callable[[], bool] = lambda: True  # if it waits
    why: tuple[str, Place | None] = ("", None)  # it has failed, and where
    when: float = 0.0  # that was, in logical time
    thread: threading.Thread = field(default_factory=threading.Thread)
    turn: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    lines: int = 0  # of the solution that it has run
    most_lines: int = MOST_LINES
    trace: Callable[..., Any] | None = None
    counts: Counter[Place] = field(default_factory=Counter)  # of the last ones
    calls: int = 0
    call: str = ""
    place: Place = field(default_factory=Place)
    operands: list[HeldTensor] = field(default_factory=list)
    kept: dict[str, list[HeldTensor]] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)  # of what it has kept
    tensors: list[HeldTensor] = field(default_factory=list)
    dropped: deque[HeldTensor] = field(default_factory=deque)  # no variable holds them any more
    made: int = 0  # bytes


class _Printed(io.TextIOBase):
    """Passes on what the ranks print, as long as there is room."""

    def __init__(self) -> None:
        self._shown, self._room = sys.stdout, _MOST_PRINTED

    def write(self, text: str) -> int:
        if self._room > 0:
            self._shown.write(text[: self._room])
        self._room -= len(text)
        if -len(text) <= self._room < 0:
            self._shown.write("\n(More was printed.)\n")
            vars(self)["write"] = len  # as quick as can be, since a loop may print for long
        return len(text)

    def flush(self) -> None:
        self._shown.flush()


class Turns:
    """Lets some ranks run, one at a time.

    Args:
        seats: The ranks.

    Attributes:
        stopped: Whether ranks have to leave the solver's function.
    """

    def __init__(self, seats: Sequence[Seat]) -> None:
        self.stopped = False
        self._seats = seats
        self._back = threading.Semaphore(0)  # how many turns were given back

    def run(self, solve: Callable[[Seat], Any]) -> None:
        """Call a function for each rank, in a thread of its own, until none can go on.

        Raises:
            KeyboardInterrupt: If it is interrupted; the threads have ended then.
        """
        try:
            with contextlib.redirect_stdout(_Printed()):
                for seat in self._seats:
                    seat.thread = threading.Thread(
                        target=self._main, args=(seat, solve), name=f"rank {seat.rank}", daemon=True
                    )
                    seat.thread.start()
                while able := self._next():
                    able.state = "running"
                    able.turn.release()
                    self._watch(able)
        finally:
            self._end()

    def _next(self) -> Seat | None:
        """The lowest rank that can go on."""
        waiting = [seat for seat in self._seats if seat.state in ("new", "waiting")]
        able = (seat for seat in waiting if seat.can_go_on())
        return None if self.stopped else next(able, None)

    def wait(self, seat: Seat, until: Callable[[], bool]) -> None:
        """Let others go on until something is there."""
        if not until():
            seat.state, seat.can_go_on = "waiting", until
            self._back.release()
            seat.turn.acquire()
            if self.stopped:
                raise RunOverError

    def fail(self, seat: Seat, why: str, place: Place, stop: bool = False) -> None:
        """Something is wrong in a rank. The others go on as far as they can without it, or stop."""
        self.stopped = self.stopped or stop
        if seat.state != "failed":
            seat.state, seat.why, seat.when = "failed", (why, place), seat.clock.now.end

    def _main(self, seat: Seat, solve: Callable[[Seat], Any]) -> None:
        with contextlib.suppress(RunOverError):
            seat.turn.acquire()
            if self.stopped:
                return
            seat.trace = self._tracer(seat)
            sys.settrace(seat.trace)
            try:
                solve(seat)
            except RunOverError:
                pass
            except BaseException as error:  # noqa: BLE001 - told to the solver
                words = "".join(traceback.format_exception_only(error)).strip()[:2_000]
                frames = reversed([*traceback.walk_tb(error.__traceback__)])
                self.fail(seat, words, Place.innermost(frames))
            sys.settrace(None)
            seat.state = "returned" if seat.state == "running" else seat.state
            self._back.release()

    def _tracer(self, seat: Seat) -> Callable[..., Any]:
        """Count the lines of the solution that a rank runs, and leave it when the run is over."""

        def line(frame: types.FrameType, event: str, _: Any) -> Callable[..., Any]:
            if event == "line":
                seat.lines += 1
                if seat.lines > seat.most_lines - _COUNTED:
                    seat.counts[Place(frame.f_code.co_filename, frame.f_lineno)] += 1
                    if seat.lines >= seat.most_lines:
                        (most, _), *_ = seat.counts.most_common(1)
                        self.fail(
                            seat,
                            f"It has run {seat.lines:,} lines and called me {seat.calls:,} times, "
                            "and has not come to its end. Is there a loop that never ends? This "
                            "line ran most:",
                            most,
                            stop=True,
                        )
                if self.stopped:
                    raise RunOverError
            return line

        def call(frame: types.FrameType, _: str, __: Any) -> Callable[..., Any] | None:
            return line if is_solvers(frame) else None

        return call

    def _watch(self, seat: Seat) -> None:
        """Wait until a rank gives its turn back; end it if it waits outside of its own lines."""
        since, calls, lines = time.monotonic(), seat.calls, seat.lines
        while not self._back.acquire(timeout=_LOOK) and not self.stopped:
            if seat.calls != calls:
                since, calls, lines = time.monotonic(), seat.calls, seat.lines
            idle = time.monotonic() - since
            if idle < _IDLE or seat.lines - lines > idle * _IDLE_LINES:
                continue  # and look at no frame, which would hold what its variables hold
            frames = [*traceback.walk_stack(sys._current_frames().get(seat.thread.ident or 0))]
            if not any("<frozen importlib" in frame.f_code.co_filename for frame, _ in frames):
                self.fail(
                    seat,
                    f"It has not called me for {_IDLE:g} seconds. Does it wait for "
                    "something that never comes, or never end? It is in this line:",
                    Place.innermost(frames),
                    stop=True,
                )

    def _end(self) -> None:
        """End all threads, also those in the solver's lines."""
        self.stopped = True
        threads = [seat.thread for seat in self._seats]
        for seat in self._seats:
            seat.turn.release()
        for attempt in range(25):  # a program may catch what ends it, a few times
            threads = [thread for thread in threads if thread.is_alive()]
            for thread in threads:
                if attempt > 1:
                    _raise(_LeaveError if attempt < 20 else _ParkError, thread)
                thread.join(0.02)
        for thread in threads:  # one that waits outside of Python; it ends when it wakes
            _raise(None, thread)
        if threads:
            _settle()


def _raise(error: type[BaseException] | None, thread: threading.Thread) -> None:
    """Raise an error in a thread, or take back one that it has not met yet."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident or 0), None if error is None else ctypes.py_object(error)
    )


def _settle() -> None:
    """Let Python forget that there was an error to raise in some thread.

    Python 3.11 remembers that until one is met, and threads with a trace stand still meanwhile.
    """
    with contextlib.suppress(RunOverError):
        _raise(RunOverError, threading.current_thread())
        for _ in range(1_000):
            pass
