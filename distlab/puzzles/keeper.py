"""The process that holds all numbers: ranks ask it for everything, and can read nothing of it.

It is neither a child nor a parent of a rank, and other processes of the same user cannot read its
memory or trace it (on Linux; the administrator can). It knows whether any rank can go on, so it
finds a deadlock without waiting for a time to pass.
"""

import contextlib
import ctypes
import hmac
import math
import os
import secrets
import selectors
import signal
import socket
import sys
import time
from typing import NoReturn

import msgspec
import numpy as np

from distlab import processes
from distlab.puzzles.catalogue import PUZZLES
from distlab.puzzles.drawing import TASKS
from distlab.puzzles.incoming import MOST, Incoming
from distlab.puzzles.messages import (
    MOST_LETTERS,
    BeginCheck,
    Call,
    Described,
    Done,
    Ended,
    Failed,
    Hello,
    Listening,
    Outcome,
    SolveReturned,
    SolverLine,
    Welcome,
    from_notebook,
    from_rank,
    send,
)
from distlab.puzzles.tasks import RandomData
from distlab.puzzles.world import MOST_TIMES, World

_PR_SET_DUMPABLE = 4
_MOST_UNSEATED = 64
"""Connections that have not said which rank they are: a rank could open many."""

_MOST_FIRST = 4_096
"""Bytes of the message with which a connection says which rank it is."""

_MOST_BLOCKED = 3.0
"""Seconds that the keeper waits for a rank that does not read its answers, all in all."""


class _Run:
    """The ranks of one size, and the sockets on which they talk."""

    def __init__(self, size: int, begin: BeginCheck, generator: np.random.Generator) -> None:
        puzzle = PUZZLES[begin.puzzle]
        self.token = secrets.token_hex(16)
        self.size = size
        self.sockets: dict[int, socket.socket] = {}
        self.started = False
        self._heard = [math.inf] * size
        self.began = math.inf
        self._with = (begin.solution, begin.patience)
        self._task = TASKS[begin.puzzle](RandomData(generator), size)
        methods = (*puzzle.calls, "compute") if puzzle.operations else puzzle.calls
        most_ticks = MOST_TIMES * puzzle.budgets[size].time
        self.world = World(
            self._task, size, methods, puzzle.operations, generator, self.answer, most_ticks
        )

    def answer(self, rank: int, made: list[Described] | None) -> None:
        """Tell a rank what came of its call, or that its part is over."""
        self._heard[rank] = time.monotonic()
        self._say(rank, Ended() if made is None else Done(made))

    def _say(self, rank: int, message: Welcome | Done | Ended) -> None:
        """Tell a rank something. One that has gone, or that does not read, is left alone."""
        at = self.sockets[rank]
        try:
            send(at, message)
        except OSError:
            with contextlib.suppress(OSError):  # closed already
                at.shutdown(socket.SHUT_RDWR)  # so that its socket says that it has gone

    def begin(self) -> None:
        """All ranks have come."""
        self.started = True
        self.began = time.monotonic()
        self._heard = [time.monotonic()] * self.size
        for rank in sorted(self.sockets):
            told, facts = self.world.given(rank), self._task.facts_of(rank)
            self._say(rank, Welcome(self.size, told, facts, *self._with))

    def hear(self, rank: int, message: Call | Failed | SolveReturned) -> None:
        """Take what a rank says."""
        match message:
            case Call():
                short = _short(message.place)
                self.world.on_call(rank, msgspec.structs.replace(message, place=short))
            case Failed(why=why, place=place):
                self.world.fail(rank, why, None if place is None else _short(place))
            case SolveReturned():
                self.world.on_return(rank)

    def gone(self, rank: int) -> None:
        """A rank has closed its socket."""
        self.world.leave(rank)

    def silent_since(self) -> float:
        """When the rank that has been in the solver's code for longest came there."""
        ranks = self.world.running() if self.started else []
        return min((self._heard[rank] for rank in ranks), default=math.inf)

    def end(self, seconds: float) -> None:
        """End the ranks that are in the solver's code, since it has all taken too long."""
        for rank in self.world.running():
            self.world.fail(
                rank, f"The check has taken {seconds:g} seconds. Is there a loop that never ends?"
            )

    def lose_patience(self, patience: float, now: float) -> None:
        """End the ranks that have been in the solver's code for too long."""
        for rank in self.world.running():
            if now - self._heard[rank] <= patience:
                continue
            since = "after this one" if self.world.seats[rank].call else "since it began"
            self.world.fail(
                rank,
                f"It has not called me for {patience:g} seconds {since}, and does not say where "
                "it is. Is there a loop that never ends?",
            )


def _short(place: SolverLine) -> SolverLine:
    """A line with what fits into a message."""
    return SolverLine(place.file[:MOST_LETTERS], place.line, place.text[:MOST_LETTERS])


class Keeper:
    """Serves one notebook: one check after the other.

    Args:
        notebook: The socket of the notebook's process.
    """

    def __init__(self, notebook: socket.socket) -> None:
        self._notebook = notebook
        self._incoming = Incoming(notebook)
        self._selector = selectors.DefaultSelector()
        self._selector.register(notebook, selectors.EVENT_READ, self._on_notebook)
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._selector.register(self._listening, selectors.EVENT_READ, self._on_rank)
        self._unseated = 0
        self._runs: list[_Run] = []
        self._patience = self._most_seconds = math.inf

    def serve(self) -> NoReturn:
        """Go on until the notebook's process ends."""
        while True:
            arrived = self._selector.select(self._until_impatient())
            now = time.monotonic()  # what comes while these are served is no rank's silence
            for key, _ in arrived:
                key.data()
            for run in list(self._runs):
                if now - run.silent_since() > self._patience:
                    run.lose_patience(self._patience, now)
                if now - run.began > self._most_seconds:
                    run.end(self._most_seconds)
                if run.started and run.world.over:
                    self._conclude(run)

    def _until_impatient(self) -> float | None:
        ends = [run.silent_since() + self._patience for run in self._runs]
        ends += [run.began + self._most_seconds for run in self._runs]
        end = min(ends, default=math.inf)
        return None if end == math.inf else max(0.01, end - time.monotonic())

    def _conclude(self, run: _Run) -> None:
        outcome = run.world.outcome()
        for rank in range(run.size):
            run.world.fail(rank, "The check is over.")
        self._runs.remove(run)
        self._tell(outcome)

    def _tell(self, message: Listening | Outcome) -> None:
        try:
            send(self._notebook, message)
        except OSError:
            sys.exit()

    def _on_notebook(self) -> None:
        try:
            for message in self._incoming.arrived():
                self._begin(from_notebook.decode(message))
        except EOFError:
            sys.exit()

    def _begin(self, begin: BeginCheck) -> None:
        generator = np.random.default_rng()  # from the system: nobody knows what will be drawn
        self._patience = begin.patience.silent
        self._most_seconds = begin.patience.all
        self._runs = [_Run(size, begin, generator) for size in PUZZLES[begin.puzzle].sizes]
        port = self._listening.getsockname()[1]
        self._tell(Listening(port, {run.size: run.token for run in self._runs}))

    def _on_rank(self) -> None:
        connection, _ = self._listening.accept()
        if self._unseated >= _MOST_UNSEATED and all(run.started for run in self._runs):
            connection.close()
            return
        self._unseated += 1
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(_MOST_BLOCKED)
        incoming = Incoming(connection, _MOST_FIRST)
        seat: list[tuple[_Run, int]] = []

        def leave() -> None:
            self._selector.unregister(connection)
            connection.close()
            self._unseated -= not seat
            for run, rank in seat:
                run.gone(rank)

        def read() -> None:
            try:
                arrived = [from_rank.decode(message) for message in incoming.arrived()]
            except (EOFError, ValueError, msgspec.DecodeError):
                leave()
                return
            for heard in arrived:
                if not isinstance(heard, Hello):
                    for run, rank in seat:
                        run.hear(rank, heard)
                elif not seat:  # one seat to a connection
                    seat.extend(self._seat(heard, connection))
                    self._unseated -= bool(seat)
                    incoming.most = MOST
            if arrived and not seat:
                leave()

        self._selector.register(connection, selectors.EVENT_READ, read)

    def _seat(self, hello: Hello, connection: socket.socket) -> list[tuple[_Run, int]]:
        for run in self._runs:
            free = 0 <= hello.rank < run.size and hello.rank not in run.sockets
            if free and hmac.compare_digest(hello.token.encode(), run.token.encode()):
                run.sockets[hello.rank] = connection
                if len(run.sockets) == run.size:
                    run.begin()
                return [(run, hello.rank)]
        return []


def entry() -> NoReturn:
    """Be the keeper; the descriptor of the notebook's socket is the only argument."""
    parent = os.getppid()
    processes.die_with_parent(parent, signal.SIGKILL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the notebook's process
    Keeper(socket.socket(fileno=int(sys.argv[-1]))).serve()
