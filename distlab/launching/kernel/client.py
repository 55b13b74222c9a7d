"""The kernel's end of a supervisor: start it, talk to it, hear of it; one for each environment."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from distlab.launching import processes
from distlab.launching.kernel.environment import read_at_import, supervisors_own
from distlab.launching.protocol.messages import (
    AnyEvent,
    AnyRequest,
    Broken,
    Forget,
    Ready,
    encode,
    read_event,
)
from distlab.launching.tracebacks import in_words

_MOST = 6
"""Supervisors kept; starting another ends the one that was idle longest."""
_LOG = "supervisor.log"
_LAST_WORDS = 20
"""Lines of a supervisor's log that an error shows."""
_EVICTED = (
    f"The process that started the ranks has been ended: {_MOST} others, for other frameworks or "
    "variables, have been used since. Launch the job again."
)


class Listener(Protocol):
    """What a `Client` passes a job's events to."""

    def _on_event(self, event: AnyEvent) -> None:
        """Take note of what is said about the job."""

    def _on_lost(self, why: str) -> None:
        """Take note that nobody says anything any more."""


class Client:
    """What starts and watches ranks, in a process of its own, and the thread that reads its events.

    Args:
        module: The module of distlab's that the process runs.
        words: The arguments it is given, after the descriptor of its socket.
        environment: The variables it starts with.
        preparing: What is being done until requests are dealt with, in words.
        apart: All children of this process may be killed together with it.
        inherited: Other descriptors that it inherits.

    Attributes:
        directory: Where jobs have their directories.
        ready: Set once requests are dealt with.
        preparing: See above.
        live: Jobs that go on, held here so that they do even if nobody else holds them.
        local: Whether the ranks are processes of this machine.
        lost: Why nothing can be started there any more; None while something can.
        pid: The process id.
    """

    local = True

    def __init__(
        self,
        module: str,
        words: Sequence[str],
        environment: Mapping[str, str],
        preparing: str,
        apart: bool = False,
        inherited: Sequence[int] = (),
    ) -> None:
        self.directory, keeper = processes.new_directory(apart)
        weakref.finalize(self, _discard, self.directory, keeper)
        self.ready = threading.Event()
        self.preparing = preparing
        self.live: set[Any] = set()
        self.lost: str | None = None
        self.pid: int | None = None
        self._listeners: dict[str, weakref.ref[Listener]] = {}
        """Those that follow a job, by its name."""
        self._sending = threading.Lock()
        self._queue: list[AnyRequest] | None = []
        """Requests kept back until the process can read them; None from then on."""
        self._jobs = 0
        self._socket, theirs = socket.socketpair()
        command = processes.python(module, str(theirs.fileno()), *words)
        # Started by the thread that lives as long as it does: see `processes.die_with_parent`.
        self._thread = threading.Thread(
            target=self._attend,
            args=(theirs, command, environment, [theirs.fileno(), *inherited]),
            name=f"distlab-{module}",
            daemon=True,
        )
        self._thread.start()

    def new_job(self) -> tuple[str, Path]:
        """A name for a job and a directory of its own, which nobody else may read.

        Jobs that nobody holds any more lose theirs.
        """
        with self._sending:
            self._jobs += 1
            name = f"{self.directory.name}-{self._jobs}"
            gone = [job for job, listener in self._listeners.items() if listener() is None]
        # Here, and not as soon as nobody holds a job: an interrupt within a finalizer is lost.
        for job in gone:
            self._listeners.pop(job, None)
            self.post(Forget(job=job))
            shutil.rmtree(self.directory / job, ignore_errors=True)
        directory = self.directory / name
        directory.mkdir(mode=0o700)
        return name, directory

    def send(self, listener: Listener, request: AnyRequest) -> None:
        """Ask for something. What comes of it reaches `listener` as events."""
        with self._sending:
            self._listeners[request.job] = weakref.ref(listener)
        self.post(request)
        if self.lost is not None:
            listener._on_lost(self.lost)

    def post(self, request: AnyRequest) -> None:
        """Ask for something of which nothing is to be heard."""
        with self._sending:
            if self._queue is None:
                self._write(request)
            else:
                self._queue.append(request)

    def _write(self, request: AnyRequest) -> None:
        with contextlib.suppress(OSError):  # _on_lost tells
            self._socket.sendall(encode(request))

    def withdraw(self, job: str) -> bool:
        """Take back all requests for a job, if nobody has seen any of them yet."""
        with self._sending:
            if self._queue is None:
                return False
            self._queue = [request for request in self._queue if request.job != job]
            return True

    def close(self, why: str = "It was closed.") -> None:
        """End the process and all ranks, and say why. Logs and results of its jobs stay."""
        self.hang_up(why)
        self._thread.join()

    def hang_up(self, why: str) -> None:
        """Have the process end."""
        self.lost = why
        with self._sending, contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def _attend(
        self,
        theirs: socket.socket,
        command: list[str],
        environment: Mapping[str, str],
        descriptors: list[int],
    ) -> None:
        """Start the process and pass its events on until it ends: the thread."""
        process = None
        log = self.directory / _LOG
        try:
            # The other end closes when the supervisor ends, this one when the client is closed.
            with self._socket:
                with theirs, log.open("wb") as output:
                    process = subprocess.Popen(
                        command,
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=output,
                        pass_fds=descriptors,
                        start_new_session=True,  # an interrupt of the kernel is not meant for it
                    )
                self.pid = process.pid
                with self._socket.makefile("rb") as lines, contextlib.suppress(ConnectionError):
                    for line in lines:
                        self._on_line(line)
            status = process.wait()
            how = processes.describe_exit(status)
            why = f"The process that started and watched the ranks {how}."
            if status > 0:  # it has ended by an error
                said = log.read_text("utf-8", "backslashreplace").strip().splitlines()
                why = "\n".join([why, *said[-_LAST_WORDS:]])
        except Exception as error:  # noqa: BLE001 - told as the end of every job
            what = "could not be started" if process is None else "cannot be listened to any more"
            why = f"The process that starts and watches the ranks {what}: {in_words(error)}"
            if process is not None:
                process.terminate()
                process.wait()
        self.lost = self.lost or why
        self.ready.set()
        with self._sending:
            listeners = [reference() for reference in self._listeners.values()]
        for listener in listeners:
            if listener is not None:
                listener._on_lost(self.lost)

    def _on_line(self, line: bytes) -> None:
        """Pass an event on to the job it is about."""
        match event := read_event(line):
            case Ready():
                with self._sending:
                    for request in self._queue or ():
                        self._write(request)
                    self._queue = None
                self.ready.set()
            case Broken(error=error):
                self.lost = error
            case _ if (listener := self._listeners.get(event.job, lambda: None)()) is not None:
                try:
                    listener._on_event(event)
                except Exception as error:  # noqa: BLE001 - this job's end, not that of all
                    listener._on_lost(f"The job cannot be followed any more: {in_words(error)}")


class LocalClient(Client):
    """One supervisor of this machine; `apart` and `inherited` are those of `Client`.

    Args:
        framework: What it imports.
        fork: Whether it forks ranks, or starts fresh interpreters.
        environment: The variables it starts with.
    """

    def __init__(
        self,
        framework: str | None,
        fork: bool,
        environment: Mapping[str, str],
        apart: bool = False,
        inherited: Sequence[int] = (),
    ) -> None:
        words = (framework or "", "fork" if fork else "", str(os.getpid()))
        what = f"{framework} is being imported for ranks" if framework else "Python is starting"
        super().__init__("supervisor.bootstrap", words, environment, what, apart, inherited)


def _discard(directory: Path, keeper: "subprocess.Popen[bytes]") -> None:
    shutil.rmtree(directory, ignore_errors=True)  # a limit on processes may refuse the keeper's rm
    keeper.communicate()


_clients: dict[tuple[Any, ...], LocalClient] = {}
_lock = threading.Lock()


def client_for(framework: str | None, fork: bool, environment: dict[str, str]) -> LocalClient:
    """The supervisor for ranks of this framework in this environment; started if need be."""
    read = read_at_import(environment, framework)
    key = (framework, fork, sys.executable, os.getpid(), tuple(sorted(read.items())))
    with _lock:
        client = _clients.pop(key, None)
        if client is None or client.lost is not None:
            client = LocalClient(framework, fork, supervisors_own(environment))
            idle = [k for k, c in _clients.items() if not c.live]
            if len(_clients) >= _MOST and idle:
                _clients.pop(idle[0]).close(_EVICTED)
        _clients[key] = client  # last, so that the first is the one idle longest
        return client
