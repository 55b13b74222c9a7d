"""A thread for each rank, of which one at a time goes on: turns, and ends.

A rank goes on until it needs something that is not there yet. Then the lowest rank that can go on
does. So what happens follows from the program alone, never from the machine; and when no rank can
go on, the run is over.
"""

import contextlib
import ctypes
import functools
import io
import sys
import sysconfig
import threading
import traceback
import types
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from os import sep
from typing import Any

from distlab.puzzles.memory import OWN, HeldTensor, Place

MOST_LINES = 500_000
"""Lines of the solution that a rank may run: a loop that never ends does not run for ever."""
_COUNTED = MOST_LINES // 10
"""Of the last so many it is counted how often each runs."""
_AFTERWARDS = 1_000
"""Lines that a rank may run when it has failed, to leave the solver's function."""
_MOST_PRINTED = 500
"""Lines that are shown of what the ranks of a run print: a loop must not flood the page."""
_LOOK = 0.1
"""Seconds between two looks at the rank that goes on."""
_IDLE_LOOKS, _IDLE_LINES = 20, 1_000
"""After so many looks with fewer lines each, and no call of `me`, it waits for ever."""
_OTHERS = (
    OWN,
    "<frozen ",
    *(sysconfig.get_path(kind) + sep for kind in ("stdlib", "purelib", "platlib")),
)
"""Files that are not the solver's."""


class RunOverError(BaseException):
    """The run is over for a rank: it leaves the solver's function."""


class _LeaveError(RunOverError):
    """Raised in a thread from outside: a program that catches it meets it again at its next line.

    Python makes it in that thread. So its constructor can set a trace there, also in the functions
    that have begun.
    """

    def __init__(self) -> None:
        frame: types.FrameType | None = sys._getframe(1)
        while frame is not None:
            if not frame.f_code.co_filename.startswith(_OTHERS):
                frame.f_trace = self._leave
            frame = frame.f_back
        sys.settrace(self._leave)

    @staticmethod
    def _leave(frame: types.FrameType, _: str, __: Any) -> None:
        if not frame.f_code.co_filename.startswith(_OTHERS):
            raise RunOverError


@dataclass(eq=False)
class Seat:
    """A rank: its thread, what it has done, and its last call."""

    rank: int
    state: str = "new"  # running, waiting, returned or failed
    can_go_on: Callable[[], bool] = lambda: True  # if it waits
    why: tuple[str, Place | None] = ("", None)  # it has failed, and where
    when: float = 0.0  # that was, in logical time
    thread: threading.Thread | None = None
    turn: threading.Lock = field(default_factory=threading.Lock)  # taken but for its turn
    trace: Callable[..., Any] | None = None
    lines: int = 0  # of the solution that it has run
    counts: Counter[tuple[types.CodeType, int]] = field(default_factory=Counter)  # of the last ones
    calls: int = 0
    call: str = ""
    place: Place | None = None
    operands: list[HeldTensor] = field(default_factory=list)
    kept: dict[str, tuple[Place, list[HeldTensor]]] = field(default_factory=dict)
    dropped: deque[HeldTensor] = field(default_factory=deque)  # no variable holds them any more
    made: int = 0  # bytes


class _Printed(io.TextIOBase):
    """Passes on what the ranks print, up to some lines, and then says how many more there were."""

    def __init__(self) -> None:
        self._shown, self._lines = sys.stdout, 0

    def write(self, text: str) -> int:
        room = max(0, _MOST_PRINTED - self._lines)
        self._shown.write("".join(text.splitlines(keepends=True)[:room]))
        self._lines += text.count("\n")
        return len(text)

    def flush(self) -> None:
        self._shown.flush()

    def tell_rest(self) -> None:
        if self._lines > _MOST_PRINTED:
            self._shown.write(f"({self._lines - _MOST_PRINTED:,} more lines were printed)\n")


class Turns:
    """Lets some ranks run, one at a time.

    Args:
        seats: The ranks.
        now: Tells the logical time of a rank.

    Attributes:
        endless: Whether a rank was ended that would not have come to an end.
        stopped: Whether ranks have to leave the solver's function.
    """

    def __init__(self, seats: Sequence[Seat], now: Callable[[int], float]) -> None:
        self.endless = self.stopped = False
        self._seats = seats
        self._now = now
        self._running = seats[0]
        self._over = threading.Event()

    def run(self, solve: Callable[[Seat], Any]) -> None:
        """Call a function for each rank, in a thread of its own, until none can go on.

        Raises:
            KeyboardInterrupt: If it is interrupted; the threads have ended then.
        """
        printed = _Printed()
        try:
            with contextlib.redirect_stdout(printed):
                for seat in self._seats:
                    seat.turn.acquire()
                    main, name = functools.partial(self._main, seat, solve), f"rank {seat.rank}"
                    seat.thread = threading.Thread(target=main, name=name, daemon=True)
                    seat.thread.start()
                self._pass_on()
                self._watch()
        finally:
            self._end()
            printed.tell_rest()

    def wait(self, seat: Seat, until: Callable[[], bool]) -> None:
        """Let others go on until something is there."""
        if until():
            return
        seat.state, seat.can_go_on = "waiting", until
        self._pass_on()
        seat.turn.acquire()
        if self.stopped:
            raise RunOverError
        seat.state = "running"

    def fail(self, seat: Seat, why: str, place: Place | None) -> None:
        """Something is wrong in a rank. The others go on as far as they can without it."""
        if seat.state != "failed":
            seat.state, seat.why, seat.when = "failed", (why, place), self._now(seat.rank)
            seat.lines = max(seat.lines, MOST_LINES - _AFTERWARDS)

    def _main(self, seat: Seat, solve: Callable[[Seat], Any]) -> None:
        with contextlib.suppress(RunOverError):
            seat.turn.acquire()
            if self.stopped:
                return
            seat.state = "running"
            seat.trace = self._tracer(seat)
            sys.settrace(seat.trace)
            try:
                solve(seat)
            except RunOverError:
                pass
            except BaseException as error:  # noqa: BLE001 - told to the solver
                self.fail(seat, *_told(error))
            sys.settrace(None)
            if not self.stopped:
                seat.state = "returned" if seat.state == "running" else seat.state
                self._pass_on()

    def _pass_on(self) -> None:
        """Let the lowest rank go on that can."""
        for seat in self._seats:
            if seat.state == "new" or (seat.state == "waiting" and seat.can_go_on()):
                self._running = seat
                seat.turn.release()
                return
        self._over.set()

    def _tracer(self, seat: Seat) -> Callable[..., Any]:
        """Count the lines of the solution that a rank runs."""

        def line(frame: types.FrameType, event: str, _: Any) -> Callable[..., Any]:
            if event == "line":
                seat.lines += 1
                if seat.lines > MOST_LINES - _COUNTED:
                    seat.counts[frame.f_code, frame.f_lineno] += 1
                    if seat.lines >= MOST_LINES:
                        self._end_loop(seat)
            return line

        def call(frame: types.FrameType, _: str, __: Any) -> Callable[..., Any] | None:
            return None if frame.f_code.co_filename.startswith(_OTHERS) else line

        return call

    def _end_loop(self, seat: Seat) -> None:
        if not self.stopped:
            ((code, number), _), *_ = seat.counts.most_common(1)
            self._give_up(
                seat,
                f"It has run {MOST_LINES:,} lines and has not come to its end. Is there a loop "
                "that never ends? This line ran most:",
                Place.at(code.co_filename, number),
            )
        raise RunOverError

    def _give_up(self, seat: Seat, why: str, place: Place | None) -> None:
        self.stopped = self.endless = True
        self.fail(seat, why, place)
        self._over.set()

    def _watch(self) -> None:
        """Wait for the end; end a rank that waits for something outside of its own lines."""
        looks, before = 0, (-1, 0, 0)
        while not self._over.wait(_LOOK):
            seat = self._running
            now = (seat.rank, seat.calls, seat.lines)
            idle = now[:2] == before[:2] and now[2] < before[2] + _IDLE_LINES
            looks, before = looks + 1 if idle else 0, now
            if looks < _IDLE_LOOKS:
                continue  # and look at no frame, which would hold what its variables hold
            frame = sys._current_frames().get((seat.thread and seat.thread.ident) or 0)
            stack = [(each.f_code.co_filename, line) for each, line in traceback.walk_stack(frame)]
            if not any(file.startswith("<frozen importlib") for file, _ in stack):
                own = (Place.at(*each) for each in stack if not each[0].startswith(_OTHERS))
                self._give_up(
                    seat,
                    f"It has not called me for {looks * _LOOK:g} seconds. Does it wait for "
                    "something that never comes? It is in this line:",
                    next(own, None),
                )

    def _end(self) -> None:
        """End all threads, also those in the solver's lines."""
        self.stopped = True
        threads = [seat.thread for seat in self._seats if seat.thread is not None]
        for seat in self._seats:
            if seat.turn.locked():
                seat.turn.release()
        for attempt in range(25):  # a program may catch what ends it, a few times
            threads = [thread for thread in threads if thread.is_alive()]
            for seat in self._seats:
                seat.lines = MOST_LINES  # the next one is the last
            for thread in threads:
                if attempt > 1:
                    _raise(_LeaveError, thread)
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


def _told(error: BaseException) -> tuple[str, Place | None]:
    """An error of the solver's function, with the innermost line that is the solver's own."""
    place = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        if not frame.f_code.co_filename.startswith(_OTHERS):
            place = Place.at(frame.f_code.co_filename, line)
    words = "".join(traceback.format_exception_only(error)).strip()
    return words if len(words) < 4_000 else f"{words[:2_000]} ... {words[-2_000:]}", place
