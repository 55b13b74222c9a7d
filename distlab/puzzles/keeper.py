"""The process that holds all numbers: ranks ask it for everything, and can read nothing of it.

It is neither a child nor a parent of a rank, and other processes of the same user cannot read its
memory or trace it (on Linux; the administrator can). It knows whether any rank can go on, so it
finds a deadlock without waiting for a time to pass.
"""

import contextlib
import ctypes
import hmac
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
from distlab.puzzles.messages import (
    Begin,
    Call,
    Described,
    Done,
    Ended,
    Failed,
    Hello,
    Incoming,
    Listening,
    Outcome,
    Returned,
    Welcome,
    from_notebook,
    from_rank,
    send,
)
from distlab.puzzles.tasks import Drawing
from distlab.puzzles.world import World

_PR_SET_DUMPABLE = 4


class _Run:
    """The ranks of one size, and the sockets on which they talk."""

    def __init__(self, size: int, begin: Begin, generator: np.random.Generator) -> None:
        puzzle = PUZZLES[begin.puzzle]
        self.token = secrets.token_hex(16)
        self.size = size
        self.sockets: dict[int, socket.socket] = {}
        self.started = False
        self.heard = time.monotonic()
        self._solution = begin.solution
        self._task = TASKS[begin.puzzle](Drawing(generator), size)
        allowed = frozenset((*puzzle.calls, *puzzle.operations)) | (
            {"compute"} if puzzle.operations else frozenset()
        )
        self.world = World(self._task, size, allowed, generator, self.answer)

    def answer(self, rank: int, made: list[Described] | None) -> None:
        """Tell a rank what came of its call, or that its part is over."""
        with contextlib.suppress(OSError):  # it may have gone, which its socket will say
            send(self.sockets[rank], Ended() if made is None else Done(made))

    def begin(self) -> None:
        """All ranks have come."""
        self.started = True
        self.heard = time.monotonic()
        for rank, at in self.sockets.items():
            told = self.world.given(rank)
            facts = self._task.facts_of(rank)
            with contextlib.suppress(OSError):  # as above
                send(at, Welcome(self.size, told, facts, self._solution))

    def hear(self, rank: int, message: Call | Failed | Returned) -> None:
        """Take what a rank says."""
        self.heard = time.monotonic()
        match message:
            case Call():
                self.world.on_call(rank, message)
            case Failed(why=why, place=place):
                self.world.fail(rank, why, place)
            case Returned():
                self.world.on_return(rank)

    def gone(self, rank: int) -> None:
        """A rank has closed its socket."""
        if self.world.seats[rank].state in ("running", "waiting"):
            self.world.fail(rank, "The rank has left: its process ended before solve returned.")

    def lose_patience(self, patience: float) -> None:
        """Some rank has been in the solver's code for too long."""
        for rank in self.world.running():
            since = "after this one" if self.world.seats[rank].call else "since it began"
            self.world.fail(
                rank,
                f"No call of me for {patience:g} seconds {since}, and solve has not returned. "
                "Is there a loop that never ends?",
            )


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
        self._runs: list[_Run] = []
        self._patience = 0.0

    def serve(self) -> NoReturn:
        """Go on until the notebook's process ends."""
        while True:
            for key, _ in self._selector.select(self._until_impatient()):
                key.data()
            for run in list(self._runs):
                idle = time.monotonic() - run.heard
                if run.started and not run.world.over and idle > self._patience:
                    run.lose_patience(self._patience)
                if run.started and run.world.over:
                    self._conclude(run)

    def _until_impatient(self) -> float | None:
        heard = [run.heard for run in self._runs if run.started]
        if not heard:
            return None
        return max(0.01, min(heard) + self._patience - time.monotonic())

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

    def _begin(self, begin: Begin) -> None:
        generator = np.random.default_rng()  # from the system: nobody knows what will be drawn
        self._patience = begin.patience
        self._runs = [_Run(size, begin, generator) for size in PUZZLES[begin.puzzle].sizes]
        port = self._listening.getsockname()[1]
        self._tell(Listening(port, {run.size: run.token for run in self._runs}))

    def _on_rank(self) -> None:
        connection, _ = self._listening.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        incoming = Incoming(connection)
        seat: list[tuple[_Run, int]] = []

        def leave() -> None:
            self._selector.unregister(connection)
            connection.close()
            for run, rank in seat:
                run.gone(rank)

        def read() -> None:
            try:
                for message in incoming.arrived():
                    heard = from_rank.decode(message)
                    if not isinstance(heard, Hello):
                        for run, rank in seat:
                            run.hear(rank, heard)
                    elif not seat:  # one seat to a connection
                        seat.extend(self._seat(heard, connection))
                if not seat:
                    leave()
            except (EOFError, ValueError, msgspec.DecodeError):
                leave()

        self._selector.register(connection, selectors.EVENT_READ, read)

    def _seat(self, hello: Hello, connection: socket.socket) -> list[tuple[_Run, int]]:
        for run in self._runs:
            free = 0 <= hello.rank < run.size and hello.rank not in run.sockets
            if free and hmac.compare_digest(hello.token, run.token):
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
