"""One job: begin an attempt, start its ranks, hear of them, bring them to their end."""

import abc
import contextlib
import functools
import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from sched import Event
from typing import Any

from msgspec.structs import replace

from distlab.launching import processes
from distlab.launching.protocol.files import rank_file
from distlab.launching.protocol.messages import (
    Addresses,
    Ending,
    Failing,
    How,
    Launch,
    Message,
    RankChanged,
    RankWord,
    Returned,
)
from distlab.launching.protocol.tasks import services, whole
from distlab.launching.protocol.variables import STALE
from distlab.launching.supervisor import rank, store
from distlab.launching.supervisor.forking import Child
from distlab.launching.supervisor.loop import Loop
from distlab.launching.supervisor.rendezvous import Rendezvous
from distlab.launching.supervisor.resources import share, unproxied
from distlab.launching.tracebacks import in_words

GRACE = 2.0
"""Seconds from SIGTERM to SIGKILL."""
LEAVING = 30.0
"""Seconds for a rank to end once its function has returned.

What runs at exit may still write to a slow disk; what takes longer waits for what never comes.
"""
DUMP_TIME = 0.5
"""Seconds for ranks to write their Python stacks down, which takes them milliseconds."""


class Overseer(abc.ABC):
    """What a job asks of the supervisor that it is one of the jobs of.

    Attributes:
        loop: Where to have something done later.
        notify: Where ranks say their words.
    """

    loop: Loop
    notify: int

    @abc.abstractmethod
    def tell(self, event: Message) -> None:
        """Send an event to the kernel."""

    @abc.abstractmethod
    def spawn(
        self, child: Child, command: list[str], keep: list[int], spec: rank.RankSpec | None = None
    ) -> int:
        """Start a process: a fork that does `child`, or a fresh interpreter that runs `command`."""

    @abc.abstractmethod
    def conclude(self, job: "SupervisedJob") -> None:
        """The last rank of a job is gone: leave nothing behind."""


class SupervisedJob:
    """The ranks of one job that are started from here.

    Args:
        request: The kernel's request, as it came.
        overseer: The supervisor.

    Attributes:
        running: Process ids by rank.
        store: The process id of the ranks' store.
        over: How the attempt ended, or is about to; None while it may go on.
        forgotten: Whether the kernel is done with it.
        attempts: How often each rank was started before, less one.
        attempt: The number of the attempt of the whole group.
        waiting: Ranks that are not to be started before the kernel says so.
    """

    def __init__(self, request: Launch, overseer: Overseer) -> None:
        self.request = request
        self._overseer = overseer
        self.name = request.job
        self.running: dict[int, int] = {}
        self.store: int | None = None
        self.over: How | None = None
        self.forgotten = False
        world_size = len(request.tasks)
        self._part = request.part or whole(world_size)
        self._divided = request.part is not None
        """Whether other supervisors start the other ranks: then the kernel says when it is over."""
        self.attempts = list(request.attempts or [-1] * world_size)
        self.attempt = request.attempt - 1
        self.waiting = set(self._part.ranks)
        self._services = services(request.tasks)
        self._rendezvous: Rendezvous | None = None
        self._chosen: list[int] = []
        """The ranks to start as soon as all parts of the job know where the others listen."""
        self._ending: dict[int, str] = {}
        """Why a rank that is running has been asked to end: the state it will have then."""
        self._staying: set[int] = set()
        """Ranks that have returned, and stay for the others."""
        self._late = -1
        """The attempt that has taken too long."""
        self._timers: list[Event] = []
        """What is to happen to this attempt later."""
        self._hooks: list[tuple[set[int], Callable[[], None]]] = []
        """What to do once all of some ranks are gone."""
        self._gate: tuple[int, int] | None = None
        """A pipe: ranks that stay for the others read it, and go when our end is closed."""

    # Starting.

    def begin(self, ranks: Iterable[int]) -> None:
        """Open a new attempt, with a rendezvous that no earlier one has seen."""
        self.close()
        self._chosen = [number for number in ranks if number in self._part.ranks]
        self.attempt += 1
        self.over = None
        self.waiting = set(self._part.ranks)
        try:
            self._rendezvous = Rendezvous(self.request, self._part, self.attempt)
        except OSError as error:  # such as a limit on open files
            self._refuse(self._chosen, self.attempts, error)
            return
        if self._divided:
            told = self._rendezvous.addresses
            self._tell(Addresses(job=self.name, attempt=self.attempt, addresses=told))
        else:
            self._open(self._rendezvous)

    def meet(self, attempt: int, addresses: dict[int, str]) -> None:
        """All parts of the job have a rendezvous: go on."""
        if self._rendezvous is not None and self.attempt == attempt and self.over is None:
            self._rendezvous.addresses |= addresses
            self._open(self._rendezvous)

    def _open(self, rendezvous: Rendezvous) -> None:
        """Start what an attempt starts with."""
        if (timeout := self.request.timeout) is not None:
            self._later(timeout, functools.partial(self.time_out, self.attempt))
        if (listening := rendezvous.store_socket()) is not None:
            parent = os.getpid()
            command = processes.python("supervisor.store", str(listening), str(parent))
            try:
                serve = functools.partial(store.serve, listening, parent)
                self.store = self._overseer.spawn(serve, command, [listening])
            except OSError as error:
                os.close(listening)
                self._refuse(self._chosen, self.attempts, error)
                return
            os.close(listening)
        self.start(self._chosen)

    def start(self, ranks: Iterable[int]) -> None:
        """Start ranks, alone or with the others of a new attempt."""
        before = list(self.attempts)
        chosen = list(ranks)
        for index, number in enumerate(chosen):
            try:
                pid = self._start_rank(number)
            except OSError as error:  # such as a limit on processes
                self._refuse(chosen[index:], before, error)
                return
            self.running[number] = pid
            self._tell_rank(number, "running", pid=pid)

    def _start_rank(self, number: int) -> int:
        assert self._rendezvous is not None
        request = self.request
        self.over = None
        self.waiting.discard(number)
        self._staying.discard(number)
        self.attempts[number] += 1
        if request.framework == "tensorflow" and len(request.tasks) > 1 and self._gate is None:
            self._gate = os.pipe()
        spec = rank.RankSpec(
            launch=replace(request, environment=self._environment(number, self._rendezvous)),
            rank=number,
            attempt=self.attempts[number],
            host=self._part.host,
            parent=os.getpid(),
            notify=self._overseer.notify,
            gate=self._gate and self._gate[0],
        )
        self._rendezvous.about_to_start(number)
        keep = [spec.notify] + ([] if spec.gate is None else [spec.gate])
        command = processes.python("supervisor.rank")
        return self._overseer.spawn(functools.partial(rank.main, spec), command, keep, spec)

    def _environment(self, number: int, rendezvous: Rendezvous) -> dict[str, str]:
        """All variables of a rank."""
        framework, overrides = self.request.framework, self.request.overrides
        base = {k: v for k, v in self.request.environment.items() if not STALE.fullmatch(k)}
        base[processes.JOB_VARIABLE] = self.name
        base |= unproxied(base | overrides, rendezvous.hosts)
        base |= share(number, self._part, framework, base | overrides)
        return base | rendezvous.environment(number) | overrides

    def _refuse(self, ranks: list[int], before: list[int], error: OSError) -> None:
        """The system did not let the first of some ranks start: this job fails, no other does.

        Args:
            ranks: The ranks that were to be started, and were not.
            before: The attempts of all ranks until then.
            error: What the system said.
        """
        for number in ranks:
            self.attempts[number] = before[number] + 1
            self.waiting.discard(number)
            first = number == ranks[0]
            why = f"could not be started: {in_words(error)}" if first else ""
            self._tell_rank(number, "failed" if first else "stopped", why=why)
        self.finish("failed")

    def restart(self, ranks: list[int], together: bool) -> None:
        """End ranks and start them again, as they were or as a new group."""
        again = self.begin if together else self.start
        self.signal(ranks, signal.SIGKILL, "stopped")
        self._hooks.append((set(ranks), lambda: again(sorted(ranks))))
        self._run_hooks()

    def _run_hooks(self) -> None:
        """Do what has been waiting for ranks that are gone now."""
        ready = [hook for hook in self._hooks if not hook[0] & set(self.running)]
        self._hooks = [hook for hook in self._hooks if hook not in ready]
        for _, action in ready:
            action()

    # Hearing of ranks.

    def on_word(self, word: RankWord) -> None:
        """A rank says what has become of its target, before it has come to its end."""
        number = word.rank
        if number not in self.running or word.attempt != self.attempts[number]:
            return
        if word.word == "failed":
            self._ending.setdefault(number, "failed")
            attempt = word.attempt
            self._tell(Failing(job=self.name, rank=number, attempt=attempt, why=word.why))
            self.finish("failed")
        elif word.word == "returned":
            pid = self.running[number]
            self._later(LEAVING, lambda: self._end_lingering(number, pid))
        else:
            self._on_staying(number)

    def _on_staying(self, number: int) -> None:
        self._staying.add(number)
        if self.over is not None:
            self._let_go()
        elif self._divided:
            self._tell(Returned(job=self.name, rank=number, attempt=self.attempt))
        elif not self._left():
            self.finish("done")

    def _end_lingering(self, number: int, pid: int) -> None:
        """End a rank that has returned and does not end itself; its result counts."""
        if self.running.get(number) == pid and number not in self._staying:
            self.signal([number], signal.SIGKILL, "done")

    def on_change(self, number: int, change: int | str) -> None:
        """A rank has another state, or has come to its end; see `processes.changes`."""
        if isinstance(change, str):
            self._tell_rank(number, change)
        else:
            self._on_end(number, change)

    def _on_end(self, number: int, status: int) -> None:
        del self.running[number]
        directory = Path(self.request.directory)
        result = rank_file(directory, number, self.attempts[number], "result")
        asked = self._ending.pop(number, "failed")
        state, why = asked, ""
        if result.exists() and (status == 0 or asked == "done"):
            state = "done"
            if status != 0:
                why = f"had returned, did not end within {LEAVING:g} s of that and was killed"
        self._tell_rank(number, state, status=status, why=why)
        before = self.attempt, list(self.attempts)
        self._run_hooks()
        if (self.attempt, self.attempts) != before:
            return  # restarted: how the last attempt ended no longer matters
        if self.over is not None:
            if not self.running:
                self._overseer.conclude(self)
        elif state == "failed":
            self.finish("failed")
        elif not self._left() and not self._divided:
            self.finish("done")

    def _left(self) -> set[int]:
        """Ranks that must return or come to an end before the attempt is over."""
        return (set(self.running) | self.waiting) - self._services - self._staying

    # Ending.

    def time_out(self, attempt: int) -> None:
        """An attempt has taken too long: end it, once its ranks have said where they are."""
        if self.attempt == attempt and self.over is None and self._late != attempt:
            self._late = attempt
            self.write_stacks()
            self._overseer.loop.later(DUMP_TIME, lambda: self.finish("timeout"))

    def write_stacks(self) -> None:
        """Have the ranks write down where they are."""
        for pid in self.running.values():
            os.kill(pid, rank.DUMP_SIGNAL)

    def finish(self, how: How) -> None:
        """Bring an attempt to its end. A rank that has failed may see to its own, for a while."""
        if self.over is not None:
            return
        self.over = how
        if self._divided:
            self._tell(Ending(job=self.name, attempt=self.attempt, how=how))
        pids = dict(self.running)
        self.signal(set(pids) - set(self._ending) - self._staying, signal.SIGTERM, "stopped")
        self._let_go()
        self.signal(pids, signal.SIGCONT)  # a paused one would not hear of it
        if not pids:
            self._overseer.conclude(self)
            return

        def lose_patience() -> None:
            late = [r for r, pid in pids.items() if self.running.get(r) == pid]
            self.signal(late, signal.SIGKILL, "stopped")

        self._later(GRACE, lose_patience)

    def signal(self, ranks: Iterable[int], number: int, state: str | None = None) -> None:
        """Signal ranks; `state` says what they will be when they end of it."""
        for each in set(ranks) & set(self.running):
            if state is not None:
                self._ending.setdefault(each, state)
            processes.signal_group(self.running[each], number)

    def close(self) -> None:
        """Let go of timers, ports, the store, and of ranks that stay."""
        while self._timers:
            with contextlib.suppress(ValueError):  # it has come to pass
                self._overseer.loop.timers.cancel(self._timers.pop())
        self._let_go()
        if self._rendezvous is not None:
            self._rendezvous.close()
        if self.store is not None:
            os.kill(self.store, signal.SIGKILL)
            self.store = None

    def _let_go(self) -> None:
        """Let the ranks end that have stayed for others."""
        for end in self._gate or ():
            os.close(end)
        self._gate = None

    def leave(self) -> None:
        """In a forked process: close what is the supervisor's. A rank needs the gate."""
        if self._gate is not None:
            os.close(self._gate[1])
        if self._rendezvous is not None:
            self._rendezvous.close()

    # The means to do all that.

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something to this attempt later, if it has not been closed by then."""
        self._timers.append(self._overseer.loop.later(seconds, action))

    def _tell(self, event: Message) -> None:
        self._overseer.tell(event)

    def _tell_rank(self, number: int, state: str, **more: Any) -> None:
        attempt, group = self.attempts[number], self.attempt
        about = RankChanged(
            job=self.name, rank=number, attempt=attempt, group=group, state=state, **more
        )
        self._overseer.tell(about)
