"""The process that imports a framework once, forks ranks from it, watches them and ends them.

It is single-threaded and initialises nothing, so that a fork of it is a clean start. Requests come
from the kernel as JSON lines on a socket; events go back the same way. When that socket closes,
all that the supervisor has started is ended: however a kernel ends, nothing of it stays.
"""

import functools
import os
import shutil
import signal
import socket
import sys
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NoReturn

import msgspec
import psutil  # noqa: F401 - loaded before it is needed in the middle of an import

from distlab.errors import shown
from distlab.launching import processes
from distlab.launching.protocol.files import rank_file
from distlab.launching.protocol.messages import (
    Addresses,
    AnyRequest,
    Close,
    Ending,
    Failing,
    Finish,
    Forget,
    How,
    Kill,
    Launch,
    Meet,
    Message,
    Over,
    Pause,
    RankChanged,
    Ready,
    Restart,
    Resume,
    Returned,
    StacksWritten,
    Start,
    Stop,
    WriteStacks,
    encode,
    requests,
    words,
)
from distlab.launching.supervisor import rank, store
from distlab.launching.supervisor.jobs import SupervisedJob
from distlab.launching.supervisor.loop import Loop
from distlab.launching.tracebacks import in_words

GRACE = 2.0
"""Seconds from SIGTERM to SIGKILL."""
_ENDING = 1.0
"""Seconds for a kernel that has let go of its supervisor to end."""
DUMP_TIME = 0.5
"""Seconds for ranks to write their Python stacks down, which takes them milliseconds."""

_HANDLED = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)

Child = Callable[[], NoReturn]
"""What a forked process has to do, once it has left the supervisor's loop."""


class Supervisor:
    """The loop, and what the kernel may ask of it.

    Args:
        control: The socket to the kernel.
        framework: What ranks use; it is imported already where `fork` is set.
        fork: Start ranks by forking this process; otherwise each is a fresh interpreter.
        directory: The kernel's directory of this supervisor's jobs, removed when the kernel ends.
        kernel: The kernel's process id.
    """

    def __init__(
        self,
        control: socket.socket,
        framework: str | None,
        fork: bool,
        directory: Path,
        kernel: int,
    ) -> None:
        self._control = control
        self._framework = framework
        self._fork = fork
        self._directory = directory
        self._kernel = kernel
        self._path = sys.path[1:]
        self._received = b""
        self._closed = False
        """Whether the kernel has said that it lives on."""
        self._jobs: dict[str, SupervisedJob] = {}
        self._ranks: dict[int, tuple[SupervisedJob, int]] = {}
        self._child: Child | None = None
        self._words, self._notify = os.pipe()
        self._loop = Loop(self._on_children)
        self._loop.watch(control.fileno(), self._on_request)
        self._loop.watch(self._words, self._on_words)

    def serve(self) -> Child:
        """Serve the kernel until it is gone, which ends this process.

        Returns:
            In a process forked on the way: what that process has to do.
        """
        self._tell(Ready())
        self._loop.run(until=lambda: self._child is not None)
        assert self._child is not None
        return self._child

    def _tell(self, event: Message) -> None:
        try:
            self._control.sendall(encode(event))
        except OSError:
            self.end()

    def end(self) -> NoReturn:
        """End all that was started here, then this process: the kernel has ended, or wants it."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it may come while this is under way
        processes.end_descendants()
        # A kernel that lives may still read logs and results.
        if not self._closed and processes.ends_within(self._kernel, _ENDING):
            shutil.rmtree(self._directory, ignore_errors=True)
        os._exit(0)

    # Requests of the kernel.

    def _on_request(self) -> None:
        data = self._control.recv(1 << 16)
        if not data:
            self.end()
        self._received += data
        while self._child is None and b"\n" in self._received:
            line, self._received = self._received.split(b"\n", 1)
            request = requests.decode(line)
            if isinstance(request, Close):
                self._closed = True
                self.end()
            if isinstance(request, Launch):
                self._jobs[request.job] = SupervisedJob(request)
            if job := self._jobs.get(request.job):
                self._obey(job, request)

    def _obey(self, job: SupervisedJob, request: AnyRequest) -> None:
        match request:
            case Launch(ranks=ranks):
                self._begin(job, ranks)
            case Start(ranks=ranks):
                self._start(job, [r for r in ranks if r in job.waiting])
            case Restart(ranks=ranks, together=together):
                again = self._begin if together else self._start
                self._signal(job, ranks, signal.SIGKILL, "stopped")
                job.when_gone(ranks, lambda: again(job, sorted(ranks)))
            case Kill(ranks=ranks):
                self._signal(job, ranks, signal.SIGKILL, "killed")
            case Pause(ranks=ranks):
                self._signal(job, ranks, signal.SIGSTOP)
                self._tell_where_unseen(job, ranks, "paused")
            case Resume(ranks=ranks):
                self._signal(job, ranks, signal.SIGCONT)
                self._tell_where_unseen(job, ranks, "running")
            case Stop():
                self._finish(job, "stopped")
            case Meet(attempt=attempt, addresses=addresses):
                self._meet(job, attempt, addresses)
            case Finish(attempt=attempt, how=how) if attempt == job.attempt:
                if how == "timeout":
                    self._on_timeout(job, attempt)
                else:
                    self._finish(job, how)
            case WriteStacks():
                self._dump(job)
                written = StacksWritten(job=job.name)
                self._loop.later(DUMP_TIME, lambda: self._tell(written))
            case Forget():
                self._forget(job)

    def _meet(self, job: SupervisedJob, attempt: int, addresses: dict[int, str]) -> None:
        """All parts of the job have a rendezvous: go on."""
        if job.rendezvous is not None and job.attempt == attempt and job.over is None:
            job.rendezvous.meet(addresses)
            self._open(job)

    def _forget(self, job: SupervisedJob) -> None:
        job.forgotten = True
        self._signal(job, job.running, signal.SIGKILL, "stopped")
        if job.over is None:
            self._finish(job, "stopped")
        elif not job.running:
            self._conclude(job)

    # Starting.

    def _begin(self, job: SupervisedJob, ranks: Iterable[int]) -> None:
        if self._child is not None:
            return
        self._close(job)
        job.chosen = [number for number in ranks if number in job.part.ranks]
        try:
            job.begin(self._framework)
        except OSError as error:  # such as a limit on open files
            self._refuse(job, job.chosen, job.attempts, error)
            return
        assert job.rendezvous is not None
        if job.divided:
            told = job.rendezvous.addresses
            self._tell(Addresses(job=job.name, attempt=job.attempt, addresses=told))
        else:
            self._open(job)

    def _open(self, job: SupervisedJob) -> None:
        """Start what an attempt starts with."""
        assert job.rendezvous is not None
        if (timeout := job.request.timeout) is not None:
            attempt = job.attempt
            limit = self._loop.later(timeout, lambda: self._on_timeout(job, attempt))
            job.timers.append(limit)
        if (listening := job.rendezvous.store_socket()) is not None:
            parent = os.getpid()
            command = processes.python("supervisor.store", str(listening), str(parent))
            try:
                job.store = self._spawn(
                    lambda: store.serve(listening, parent), command, [listening]
                )
            except OSError as error:
                if self._child is not None:
                    raise
                os.close(listening)
                self._refuse(job, job.chosen, job.attempts, error)
                return
            if self._child is not None:
                return
            os.close(listening)
        self._start(job, job.chosen)

    def _start(self, job: SupervisedJob, ranks: Iterable[int]) -> None:
        before = list(job.attempts)
        chosen = list(ranks)
        for index, number in enumerate(chosen):
            if self._child is not None:
                return
            try:
                pid = self._start_rank(job, number)
            except OSError as error:  # such as a limit on processes
                if self._child is not None:
                    raise
                self._refuse(job, chosen[index:], before, error)
                return
            if self._child is not None:
                return
            job.running[number] = pid
            self._ranks[pid] = (job, number)
            self._tell_rank(job, number, "running", pid=pid)

    def _start_rank(self, job: SupervisedJob, number: int) -> int:
        assert job.rendezvous is not None
        fields = job.specify(number, self._framework, self._path)
        spec = rank.RankSpec(parent=os.getpid(), notify=self._notify, **fields)
        job.rendezvous.about_to_start(number)
        command = processes.python("supervisor.rank")
        keep = [self._notify] + ([] if spec.gate is None else [spec.gate])
        return self._spawn(functools.partial(rank.main, spec), command, keep, spec)

    def _refuse(
        self, job: SupervisedJob, ranks: list[int], before: list[int], error: OSError
    ) -> None:
        """The system did not let the first of some ranks start: this job fails, no other does.

        Args:
            job: The job.
            ranks: The ranks that were to be started, and were not.
            before: The attempts of all ranks until then.
            error: What the system said.
        """
        for number in ranks:
            job.attempts[number] = before[number] + 1
            job.waiting.discard(number)
            first = number == ranks[0]
            why = f"could not be started: {in_words(error)}" if first else ""
            self._tell_rank(job, number, "failed" if first else "stopped", why=why)
        self._finish(job, "failed")

    def _spawn(
        self, child: Child, command: list[str], keep: list[int], spec: rank.RankSpec | None = None
    ) -> int:
        """Start a process: a fork that leaves the loop with `child`, or a fresh interpreter."""
        if not self._fork:
            environment = spec.environment if spec else None
            return processes.start(command, environment, keep, spec.dumps() if spec else "")
        # A forked process must not act on a signal as the supervisor would.
        signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of forks beside threads: there are none
                pid = os.fork()
            if pid == 0:
                self._child = child
                self._let_go()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
        return pid

    def _let_go(self) -> None:
        """In a forked process: close what is the supervisor's, take back what it handles."""
        for number in _HANDLED:
            signal.signal(number, signal.SIG_DFL)
        self._loop.close()
        self._control.close()
        os.close(self._words)
        for job in self._jobs.values():
            job.leave()

    # Watching.

    def _on_words(self) -> None:
        """A rank says that its target has failed or returned, before it has come to its end."""
        for line in os.read(self._words, 1 << 16).splitlines():
            try:
                word = words.decode(line)
            except msgspec.DecodeError as error:  # a target has written to what it did not open
                sys.stderr.write(f"Not a word of a rank's: {shown(line)} ({error}).\n")
                continue
            job, number = self._jobs.get(word.job), word.rank
            if not job or number not in job.running or word.attempt != job.attempts[number]:
                continue
            if word.word == "returned":
                self._on_returned(job, number)
            else:
                job.ending.setdefault(number, "failed")
                failing = Failing(job=job.name, rank=number, attempt=word.attempt, why=word.why)
                self._tell(failing)
                self._finish(job, "failed")

    def _on_returned(self, job: SupervisedJob, number: int) -> None:
        job.returned.add(number)
        if job.over is not None:
            job.let_go()
        elif job.divided:
            self._tell(Returned(job=job.name, rank=number, attempt=job.attempt))
        elif not job.left():
            self._finish(job, "done")

    def _on_children(self) -> None:
        for pid, status in processes.reap():
            if pid in self._ranks:
                job, number = self._ranks.pop(pid)
                self._on_rank_end(job, number, status)
        for pid, state in processes.paused_or_resumed():
            if pid in self._ranks:
                self._tell_rank(*self._ranks[pid], state)

    def _on_rank_end(self, job: SupervisedJob, number: int, status: int) -> None:
        del job.running[number]
        directory = Path(job.request.directory)
        result = rank_file(directory, number, job.attempts[number], "result")
        asked = job.ending.pop(number, "failed")
        state = "done" if status == 0 and result.exists() else asked
        self._tell_rank(job, number, state, status=status)
        before = job.attempt, list(job.attempts)
        job.run_hooks()
        if self._child is not None or (job.attempt, job.attempts) != before:
            return  # restarted: how the last attempt ended no longer matters
        if job.over is not None:
            if not job.running:
                self._conclude(job)
        elif state == "failed":
            self._finish(job, "failed")
        elif not job.left() and not job.divided:
            self._finish(job, "done")

    def _on_timeout(self, job: SupervisedJob, attempt: int) -> None:
        if job.attempt == attempt and job.over is None and job.late != attempt:
            job.late = attempt
            self._dump(job)
            self._loop.later(DUMP_TIME, lambda: self._finish(job, "timeout"))

    # Ending.

    def _finish(self, job: SupervisedJob, how: How) -> None:
        """Bring an attempt to its end. A rank that has failed may see to its own, for a while."""
        if job.over is not None:
            return
        job.over = how
        if job.divided:
            self._tell(Ending(job=job.name, attempt=job.attempt, how=how))
        pids = dict(job.running)
        self._signal(job, set(pids) - set(job.ending) - job.returned, signal.SIGTERM, "stopped")
        job.let_go()
        self._signal(job, pids, signal.SIGCONT)  # a paused one would not hear of it
        if not pids:
            self._conclude(job)
            return

        def lose_patience() -> None:
            late = [r for r, pid in pids.items() if job.running.get(r) == pid]
            self._signal(job, late, signal.SIGKILL, "stopped")

        job.timers.append(self._loop.later(GRACE, lose_patience))

    def _conclude(self, job: SupervisedJob) -> None:
        """The last rank is gone: leave nothing behind."""
        stores = [other.store for other in self._jobs.values() if other.store is not None]
        busy = any(other.running for other in self._jobs.values())
        processes.end_children(
            spare=[*self._ranks, *stores],
            which=lambda owner: owner == job.name or not busy,
        )
        self._close(job)
        assert job.over is not None
        self._tell(Over(job=job.name, attempt=job.attempt, how=job.over))
        if job.forgotten:
            self._jobs.pop(job.name, None)
            shutil.rmtree(job.request.directory, ignore_errors=True)

    def _close(self, job: SupervisedJob) -> None:
        while job.timers:
            self._loop.cancel(job.timers.pop())
        job.close()
        if job.store is not None:
            os.kill(job.store, signal.SIGKILL)
            job.store = None

    def _signal(
        self, job: SupervisedJob, ranks: Iterable[int], number: int, state: str | None = None
    ) -> None:
        """Signal ranks; `state` says what they will be when they end of it."""
        for each in set(ranks) & set(job.running):
            if state is not None:
                job.ending.setdefault(each, state)
            processes.signal_group(job.running[each], number)

    def _dump(self, job: SupervisedJob) -> None:
        for pid in job.running.values():
            os.kill(pid, rank.DUMP_SIGNAL)

    def _tell_where_unseen(self, job: SupervisedJob, ranks: Iterable[int], state: str) -> None:
        """Say what a signal does to ranks, on a system that does not say when it has done so."""
        if hasattr(os, "waitid"):
            return
        for number in set(ranks) & set(job.running):
            self._tell_rank(job, number, state)

    def _tell_rank(
        self,
        job: SupervisedJob,
        number: int,
        state: str,
        pid: int | None = None,
        status: int | None = None,
        why: str = "",
    ) -> None:
        self._tell(
            RankChanged(
                job=job.name,
                rank=number,
                attempt=job.attempts[number],
                group=job.attempt,
                state=state,
                pid=pid,
                status=status,
                why=why,
            )
        )
