"""The processes of ranks: where it can be, they are forked before anybody asks for them."""

import contextlib
import functools
import os
import resource
import signal
import socket
from collections.abc import Callable
from typing import NoReturn

import msgspec

from distlab.launching.supervisor import identity, rank, store
from distlab.launching.supervisor.forking import fork
from distlab.launching.supervisor.identity import RankSpec
from distlab.launching.supervisor.loop import Loop
from distlab.launching.supervisor.pages import Pages

MOST = 32
"""Processes that wait at most: each holds up to 20 MB."""
_PAUSE = 0.02
"""Seconds without a job before the next process is forked ahead: a launch comes first."""
_LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
_PIECE = 1 << 16
_TASK = msgspec.json.Decoder(RankSpec)


class Pool:
    """Starts ranks and stores, and hears what ranks say.

    A process that waits has set and read nothing yet. It is used once.

    Args:
        loop: Where to listen.
        hear: Told what a process says, a line at a time; None once it has closed its socket.
        afresh: Whether each rank is a fresh interpreter; then none waits.

    Attributes:
        size: How many processes are to wait while there is nothing to do.
        leaving: Ranks that have ended but for the memory that the system takes back.
    """

    def __init__(self, loop: Loop, hear: Callable[[int, bytes | None], None], afresh: bool) -> None:
        self.size = 0
        self.leaving: set[int] = set()
        self._loop = loop
        self._hear = hear
        self._afresh = afresh
        if not afresh:
            rank.pages = Pages()
        self._waiting: dict[int, socket.socket] = {}
        self._channels: dict[int, socket.socket] = {}
        """Our ends of the sockets to the ranks at work."""
        self._forked_in: object = None
        """What those that wait have inherited, as it was then."""

    @property
    def spare(self) -> set[int]:
        """Processes that belong to no job."""
        return self.leaving | set(self._waiting)

    def start(self, spec: RankSpec) -> int:
        """Start a rank; return its process id.

        Raises:
            OSError: If the system allows no more processes, or descriptors.
        """
        pid, channel = self._handed_over(msgspec.json.encode(spec)) or self._fork(
            functools.partial(rank.main_afresh if self._afresh else rank.main, spec)
        )
        self._channels[pid] = channel
        self._loop.watch(channel.fileno(), functools.partial(self.listen, pid))
        return pid

    def start_store(self, listening: int) -> int:
        """Start a store on a socket that listens, as `start` does."""
        pid, channel = self._handed_over(b"", listening) or self._fork(
            functools.partial(store.serve, listening)
        )
        channel.close()
        return pid

    def listen(self, pid: int) -> bool:
        """Hear what a rank has said; whether there may be more."""
        if (channel := self._channels.get(pid)) is None:
            return False
        try:
            data = channel.recv(_PIECE)
        except BlockingIOError:
            return False
        except ConnectionError:
            data = b""
        for line in data.splitlines():
            self._hear(pid, line)
        if not data:
            self._loop.unwatch(channel.fileno())
            self._channels.pop(pid).close()
            self._hear(pid, None)
        return bool(data)

    def let_go(self, pid: int) -> None:
        """Let a rank end that stays for others."""
        if pid in self._channels:
            with contextlib.suppress(OSError):  # it has ended
                self._channels[pid].shutdown(socket.SHUT_WR)

    def on_change(self, pid: int, change: int | str) -> bool:
        """A process has ended, or stopped; whether that concerns no job."""
        if pid not in self.spare:
            return False
        if isinstance(change, str):  # somebody has stopped it: nobody would ever let it go on
            os.kill(pid, signal.SIGKILL)
        else:
            self.leaving.discard(pid)
        if channel := self._waiting.pop(pid, None):
            channel.close()
        return True

    def refill(self, idle: Callable[[], bool]) -> None:
        """Have as many processes wait as are wanted: one now and then, as long as all is idle."""

        def add() -> None:
            if not idle() or self._afresh:
                return
            if self._forked_in != (now := _inherited()):
                self._dismiss(0)
                self._forked_in = now
            wanted = min(self.size, MOST)
            self._dismiss(wanted)
            if len(self._waiting) < wanted:
                # It is a convenience: where the system refuses, ranks are forked when needed.
                with contextlib.suppress(OSError):
                    pid, channel = self._fork(_wait)
                    self._waiting[pid] = channel
                    self.refill(idle)

        self._loop.later(_PAUSE, add)

    def _dismiss(self, kept: int) -> None:
        while len(self._waiting) > kept:
            pid, channel = self._waiting.popitem()
            channel.close()
            self.leaving.add(pid)

    def _handed_over(self, task: bytes, *given: int) -> tuple[int, socket.socket] | None:
        """Give a task to a process that waits; None if none is as one forked now would be."""
        if self._waiting and self._forked_in != _inherited():
            self._dismiss(0)
        while self._waiting:
            pid = next(iter(self._waiting))  # the oldest
            channel = self._waiting.pop(pid)
            line = task + b"\n"
            with contextlib.suppress(OSError):  # it has ended, or is too much for the socket
                if socket.send_fds(channel, [line], given) == len(line):
                    return pid, channel
            channel.close()
            self.leaving.add(pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return None

    def _fork(self, main: Callable[[int], NoReturn]) -> tuple[int, socket.socket]:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        supervisor = os.getpid()

        def child() -> NoReturn:
            ours.close()
            identity.part(supervisor)
            main(theirs.detach())

        try:
            pid = fork(child)
        except OSError:
            ours.close()
            theirs.close()
            raise
        theirs.close()
        return pid, ours

    def leave(self) -> None:
        """In a forked process: close what is the supervisor's."""
        for channel in (*self._waiting.values(), *self._channels.values()):
            channel.close()


def _inherited() -> object:
    """What a process has from the one that forks it, and somebody else may have changed since."""
    limits = [resource.getrlimit(each) for each in _LIMITS]
    return limits, os.getpriority(os.PRIO_PROCESS, 0), os.sched_getaffinity(0)


def _wait(channel: int) -> NoReturn:
    """Wait for a task, and do it."""
    if rank.pages is not None:
        rank.pages.copy()
    connection = socket.socket(fileno=channel)
    task, given = b"", list[int]()
    while not task.endswith(b"\n"):
        piece, descriptors, *_ = socket.recv_fds(connection, _PIECE, 1)
        if not piece:  # it is not needed any more
            os._exit(0)
        task += piece
        given += descriptors
    channel = connection.detach()
    if given:
        store.serve(given[0], channel)
    rank.main(_TASK.decode(task), channel)
