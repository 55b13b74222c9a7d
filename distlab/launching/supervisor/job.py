"""One job: begin an attempt, start its ranks, hear of them, bring them to their end."""

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
    Failing,
    How,
    Launch,
    RankChanged,
    Returned,
)
from distlab.launching.protocol.tasks import Part, services
from distlab.launching.supervisor.identity import DUMP_SIGNAL, RankSpec
from distlab.launching.supervisor.means import Means
from distlab.launching.supervisor.rendezvous import Rendezvous
from distlab.launching.tracebacks import in_words
from distlab.ports import HOST

LEAVING = 30.0
"""Seconds at least for a rank to end whose function has returned: it may still write files."""
DUMP_TIME = 0.5
"""Seconds for ranks to write their Python stacks down, which takes them milliseconds."""
ALIKE_TIME, ALIKE_AT_MOST = 0.1, 1.0
"""Seconds for the other ranks to fail by themselves: what is wrong is often so on all of them. The
second while one of them computes; one that waits for the failed one will wait for ever."""


class SupervisedJob:
    """The ranks of one job that are started from here.

    Args:
        request: The kernel's request, as it came.
        means: The supervisor's.

    Attributes:
        rendezvous: That of the last attempt.
        running: Process ids by rank.
        attempts: How often each rank was started before, less one.
        attempt: The number of the attempt of the whole group.
        waiting: Ranks that are not started before the kernel says so.
        tidy: Whether no rank that has ended can have left a process behind.
        over: How the attempt ended, or is about to; None while it may go on.
        forgotten: Whether the kernel is done with it.
    """

    def __init__(self, request: Launch, means: Means) -> None:
        self.request = request
        self.name = request.job
        self.rendezvous: Rendezvous | None = None
        self.running: dict[int, int] = {}
        self.attempt = request.attempt - 1
        self.attempts = [self.attempt] * len(request.tasks)
        self.waiting: set[int] = set()
        self.tidy = True
        self.over: How | None = None
        self.forgotten = False
        self._means = means
        self._part = request.part or Part(list(range(len(request.tasks))), HOST, 0, 1)
        self._elsewhere = set(range(len(request.tasks))) - set(self._part.ranks)
        """Ranks that other supervisors start: only the kernel hears of them."""
        self._ending: dict[int, str] = {}
        """Why a rank that is running has been asked to end: the state it will have then."""
        self._shot: dict[int, str] = {}
        """Ranks that were sent SIGKILL from here, and why, where it is worth a word."""
        self._staying: set[int] = set()
        """Ranks that have returned, and stay for the others."""
        self._timers: list[Event] = []
        self._watching = False
        self._coming: How | None = None
        """How the attempt is going to end in a moment."""
        self._again: list[tuple[list[int], Callable[[list[int]], None]]] = []
        """Ranks to start once all of them are gone, and how."""

    # Starting.

    def begin(self, ranks: list[int]) -> None:
        """Open a new attempt."""
        self.close()
        self.attempt += 1
        self.over = None
        self.waiting = set(self._part.ranks)
        try:
            self.rendezvous = Rendezvous(self.request, self._part, self.attempt)
        except OSError as error:  # such as a limit on open files
            self._refuse(ranks, self.attempts, error)
            return
        if (timeout := self.request.timeout) is not None:
            self._later(timeout, lambda: self._end_soon("timeout", told=True))
        if (listening := self.rendezvous.listen()) is not None:
            start = functools.partial(self._start_store, self.rendezvous)
            self._means.loop.watch(listening, start)
        self.start(ranks)

    def _start_store(self, rendezvous: Rendezvous) -> None:
        """A rank looks for the store through which its group meets; many a job never does."""
        if rendezvous.listening is None:
            return
        self._means.loop.unwatch(rendezvous.listening)
        try:
            rendezvous.start_store(self._means.pool.start_store)
        except OSError as error:  # such as a limit on processes
            why = f"its group's store could not be started: {in_words(error)}"
            for number in list(self.running)[:1]:
                attempt = self.attempts[number]
                self.on_word(Failing(job=self.name, rank=number, attempt=attempt, why=why))

    def start(self, ranks: list[int]) -> None:
        """Start ranks, alone or with the others of a new attempt."""
        before = list(self.attempts)
        for index, number in enumerate(ranks):
            try:
                pid = self._start_rank(number)
            except OSError as error:  # such as a limit on processes
                self._refuse(ranks[index:], before, error)
                return
            self.running[number] = pid
            self._tell_rank(number, "running", pid=pid)
        # A script is not over before its threads are: they may be what does its work.
        if self.request.script is None and not self._watching:
            self._watching = True
            self._later(LEAVING, lambda: self._end_lingering(set()))

    def _start_rank(self, number: int) -> int:
        assert self.rendezvous is not None
        self.over = self._coming = None
        self.waiting.discard(number)
        self._staying.discard(number)
        self._shot.pop(number, None)
        self.attempts[number] += 1
        spec = RankSpec(
            launch=replace(self.request, environment=self.rendezvous.environment(number)),
            rank=number,
            attempt=self.attempts[number],
            host=self._part.host,
            parent=os.getpid(),
            since=self.rendezvous.since,
            stays=self.rendezvous.about_to_start(number),
        )
        return self._means.pool.start(spec)

    def _refuse(self, ranks: list[int], before: list[int], error: OSError) -> None:
        """The system refused the first of `ranks`; `before` are the attempts until then."""
        for number in ranks:
            self.attempts[number] = before[number] + 1
            self.waiting.discard(number)
            first = number == ranks[0]
            why = f"could not be started: {in_words(error)}" if first else ""
            self._tell_rank(number, "failed" if first else "stopped", why=why)
        self.finish("failed")

    def restart(self, ranks: list[int], together: bool) -> None:
        """End ranks and start them again, as they were or as a new group."""
        self.signal(ranks, signal.SIGKILL, "stopped")
        self._again.append((sorted(ranks), self.begin if together else self.start))
        self._start_again()

    def _start_again(self) -> None:
        """Start the ranks again of which the last is gone now."""
        ready = [each for each in self._again if not set(each[0]) & set(self.running)]
        self._again = [each for each in self._again if each not in ready]
        for ranks, start in ready:
            start(ranks)

    def on_word(self, word: Failing | Returned) -> None:
        """A rank says what has become of its target, before it has come to its end."""
        number = word.rank
        if number not in self.running or word.attempt != self.attempts[number]:
            return
        if isinstance(word, Failing):
            self._ending.setdefault(number, "failed")
            self._means.tell(word)
            self._end_soon("failed", told=word.timed_out)
            return
        self._staying.add(number)
        if self.over is not None:
            self._let_go()
        elif not self._left():
            self.finish("failed" if self._coming == "failed" else "done")
        elif self._elsewhere:
            self._means.tell(word)

    def _end_lingering(self, returned: set[int]) -> None:
        """End ranks that had returned when last looked at, and look again later; results count.

        A word of each rank when it returns, in the place of this, slowed a launch by a twentieth.
        """
        running = {n: pid for n, pid in self.running.items() if self._result(n).exists()}
        late = [n for n, pid in running.items() if pid in returned and n not in self._staying]
        why = f"had returned, did not end within {LEAVING:g} s of that and was killed"
        self.signal(late, signal.SIGKILL, "done", why)
        self._later(LEAVING, lambda: self._end_lingering(set(running.values())))

    def _result(self, number: int) -> Path:
        return rank_file(Path(self.request.directory), number, self.attempts[number], "result")

    def on_change(self, number: int, change: int | str) -> None:
        """A rank has another state, or has come to its end; see `processes.changes`."""
        if isinstance(change, str):
            self._tell_rank(number, change)
            return
        del self.running[number]
        state = asked = self._ending.pop(number, "failed")
        if self._result(number).exists() and (change == 0 or asked == "done"):
            state = "done"
        elif asked == "stopped" and change == -signal.SIGKILL and number not in self._shot:
            state = "failed"  # the signal was somebody else's
        why = self._shot.get(number, "") * (change == -signal.SIGKILL)
        self._tell_rank(number, state, status=change, why=why)
        before = self.attempt, list(self.attempts)
        self._start_again()
        if (self.attempt, self.attempts) != before:
            return  # how the last attempt ended no longer matters
        if self.over is not None:
            if not self.running:
                self._means.conclude(self)
        elif state == "failed":
            self._end_soon("failed")
        elif not self._left():
            self.finish("failed" if self._coming == "failed" else "done")

    def _left(self) -> set[int]:
        """Ranks that must return or come to an end before the attempt is over."""
        here = set(self.running) | self.waiting
        return (here | self._elsewhere) - services(self.request.tasks) - self._staying

    def _tell_rank(self, number: int, state: str, **more: Any) -> None:
        more |= {"attempt": self.attempts[number], "group": self.attempt, "state": state}
        self._means.tell(RankChanged(job=self.name, rank=number, **more))

    # Ending.

    def _end_soon(self, how: How, told: bool = False) -> None:
        """End the attempt, once its ranks have failed alike, or have said where they are."""
        if not told and not set(self.running) - set(self._ending) - self._staying:
            self.finish(how)
        elif self.over is None and self._coming is None:
            self._coming = how
            if told:
                self.write_stacks()
            end = functools.partial(self._end_idle, how, 0.0 if told else ALIKE_AT_MOST)
            self._later(DUMP_TIME if told else ALIKE_TIME, end)

    def _end_idle(self, how: How, patience: float) -> None:
        """End the attempt, once no rank computes any more: on a busy machine that takes longer."""
        others = set(self.running) - set(self._ending) - self._staying
        if patience > 0 and any(processes.computes(self.running[number]) for number in others):
            self._later(ALIKE_TIME, lambda: self._end_idle(how, patience - ALIKE_TIME))
        else:
            self.finish(how)

    def write_stacks(self) -> None:
        """Have the ranks write down where they are."""
        for pid in self.running.values():
            os.kill(pid, DUMP_SIGNAL)

    def finish(self, how: How, grace: float | None = None) -> None:
        """Bring an attempt to its end. A rank that has failed may see to its own, for a while."""
        if self.over is not None:
            return
        self.over = how
        pids, seconds = dict(self.running), self.request.grace if grace is None else grace
        told = set(pids) - set(self._ending) - self._staying
        for number in told:
            self._ending[number] = "stopped"  # not what it started: that may help it to save
            os.kill(pids[number], signal.SIGTERM)
        self._let_go()
        self.signal(pids, signal.SIGCONT)  # a paused one would not hear of it
        if pids:
            self._later(seconds, lambda: self._end_late(pids, told, seconds))
        else:
            self._means.conclude(self)

    def _end_late(self, pids: dict[int, int], told: set[int], seconds: float) -> None:
        why = f"did not end within {seconds:g} s of SIGTERM and was killed"
        for number, pid in pids.items():
            if self.running.get(number) == pid:
                self.signal([number], signal.SIGKILL, "stopped", why * (number in told))

    def _let_go(self) -> None:
        for pid in self.running.values():
            self._means.pool.let_go(pid)

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        """Do `action` to this attempt after some seconds, unless it is closed by then."""
        self._timers.append(self._means.loop.later(seconds, action))

    def close(self) -> None:
        """Let go of all that an attempt has open, and of what was to happen to it."""
        while self._timers:
            with contextlib.suppress(ValueError):  # it has come to pass
                self._means.loop.timers.cancel(self._timers.pop())
        self._watching, self._coming = False, None
        if self.rendezvous is not None:
            if self.rendezvous.listening is not None:
                self._means.loop.unwatch(self.rendezvous.listening)
            self.rendezvous.close()

    def signal(self, ranks: Iterable[int], number: int, state: str = "", why: str = "") -> None:
        """Signal ranks; `state` says what they will be when they end of it, and `why` why so."""
        for each in set(ranks) & set(self.running):
            if number == signal.SIGKILL:
                self._shot.setdefault(each, why)
            if state:
                self._ending.setdefault(each, state)
            processes.signal_group(self.running[each], number)
