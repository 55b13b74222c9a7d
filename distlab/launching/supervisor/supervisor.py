"""The process that imports a framework once, forks ranks from it, watches them and ends them.

It is single-threaded and initialises nothing, so that a fork of it is a clean start. Requests come
from the kernel as JSON lines on a socket; events go back the same way. When that socket closes,
all that the supervisor has started is ended: however a kernel ends, nothing of it stays.
"""

import os
import shutil
import signal
import socket
import sys
from typing import NoReturn

import msgspec
import psutil  # noqa: F401 - loaded before it is needed in the middle of an import

from distlab.errors import shown
from distlab.launching import processes
from distlab.launching.protocol.messages import (
    AnyRequest,
    Ended,
    Forget,
    Hold,
    Launch,
    Message,
    Over,
    Ready,
    Restart,
    Signal,
    StacksWritten,
    Stop,
    WriteStacks,
    encode,
    requests,
    words,
)
from distlab.launching.supervisor.forking import Child, Forked
from distlab.launching.supervisor.job import DUMP_TIME, SupervisedJob
from distlab.launching.supervisor.loop import Loop
from distlab.launching.supervisor.means import Means
from distlab.launching.supervisor.pool import Pool


class Supervisor:
    """What the kernel may ask for, and who is told of what happens.

    Args:
        control: The socket to the kernel.
        fork: Start ranks by forking this process, which has imported what they use; otherwise each
            is a fresh interpreter.
    """

    def __init__(self, control: socket.socket, fork: bool) -> None:
        self._control = control
        self._received = b""
        self._jobs: dict[str, SupervisedJob] = {}
        self._ended: dict[int, Ended] = {}
        """The last words of ranks that are about to close their sockets."""
        self.loop = Loop(self._on_children)
        self._pool = Pool(self.loop, self._hear, not fork)
        self._means = Means(self.loop, self._pool, self.tell, self.conclude)
        self.loop.watch(control.fileno(), self._on_request)

    def serve(self) -> Child:
        """Serve the kernel until it is gone, which ends this process.

        Returns:
            In a process forked on the way: what that process has to do.
        """
        try:
            self.tell(Ready())
            self.loop.run()
        except Forked as forked:
            child = forked.child
        self._leave()
        return child

    def _leave(self) -> None:
        """In a forked process: close what is the supervisor's."""
        self.loop.close()
        self._control.close()
        self._pool.leave()
        for job in self._jobs.values():
            if job.rendezvous is not None:
                job.rendezvous.leave()

    def end(self) -> NoReturn:
        """End all that was started here, then this process: the kernel has ended, or wants it.

        Ranks have their jobs' grace: what ended the kernel may be a scheduler, and they may save.
        Those that were told to end before that have none any more.
        """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it may come while this is under way
        jobs = [job for job in self._jobs.values() if job.over is None]
        processes.end_children(
            [pid for job in jobs for pid in job.running.values()],
            max((job.request.grace for job in jobs), default=0),
        )
        processes.end_descendants()
        os._exit(0)

    # What jobs ask for.

    def tell(self, event: Message) -> None:
        """Send an event to the kernel."""
        try:
            self._control.sendall(encode(event))
        except OSError:
            self.end()

    def conclude(self, job: SupervisedJob) -> None:
        """The last rank of a job is gone: leave nothing behind."""
        if not job.tidy:
            jobs = self._jobs.values()
            running = {pid for other in jobs for pid in other.running.values()}
            stores = {other.rendezvous.store for other in jobs if other.rendezvous is not None}
            processes.end_descendants(
                spare=running | stores | self._pool.spare,
                # Where nobody runs, also those that have hidden whose they are.
                which=lambda owner: owner == job.name or not running,
            )
            job.tidy = True
        job.close()
        assert job.over is not None
        self.tell(Over(job=job.name, attempt=job.attempt, how=job.over))
        if job.forgotten:
            self._remove(job)
        self._pool.refill(self._is_idle)

    def _remove(self, job: SupervisedJob) -> None:
        self._jobs.pop(job.name, None)
        shutil.rmtree(job.request.directory, ignore_errors=True)

    def _is_idle(self) -> bool:
        """Whether no job has anything open that a process forked now would inherit."""
        return all(job.over is not None and not job.running for job in self._jobs.values())

    # What the kernel asks for.

    def _on_request(self) -> None:
        data = self._control.recv(1 << 16)
        if not data:
            self.end()
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            request = requests.decode(line)
            if isinstance(request, Launch):
                self._jobs[request.job] = SupervisedJob(request, self._means)
                self._pool.size = len(request.ranks)
            if isinstance(request, Hold):
                self._pool.size = request.nprocs
                self._pool.refill(self._is_idle)
            if job := self._jobs.get(request.job):
                self._obey(job, request)

    def _obey(self, job: SupervisedJob, request: AnyRequest) -> None:
        match request:
            case Launch(ranks=ranks):
                job.begin(ranks)
            case Restart(ranks=ranks, together=together):
                job.restart(ranks, together)
            case Signal(ranks=ranks, name=name):
                job.signal(ranks, signal.Signals[name], "killed" if name == "SIGKILL" else "")
            case Stop(grace=grace):
                job.finish("stopped", grace)
            case WriteStacks():
                job.write_stacks()
                written = StacksWritten(job=job.name)
                self.loop.later(DUMP_TIME, lambda: self.tell(written))
            case Forget():
                self._forget(job)

    def _forget(self, job: SupervisedJob) -> None:
        job.forgotten = True
        job.signal(job.running, signal.SIGKILL, "stopped")
        if job.over is None:
            job.finish("stopped")
        elif not job.running:
            self._remove(job)

    # What ranks say, and what becomes of them.

    def _hear(self, pid: int, line: bytes | None) -> None:
        if line is None:
            if (last := self._ended.pop(pid, None)) and (job := self._jobs.get(last.job)):
                self._pool.leaving.add(pid)
                job.on_change(last.rank, last.status)
            return
        try:
            word = words.decode(line)
        except msgspec.DecodeError as error:  # a target has written to what it did not open
            sys.stderr.write(f"Not a word of a rank's: {shown(line)} ({error}).\n")
            return
        if isinstance(word, Ended):
            self._ended[pid] = word
        elif job := self._jobs.get(word.job):
            job.on_word(word)

    def _on_children(self) -> None:
        for pid, change in processes.changes():
            while isinstance(change, int) and self._pool.listen(pid):
                pass  # what it has said counts
            if self._pool.on_change(pid, change):
                continue
            for job in list(self._jobs.values()):
                for rank in [each for each, running in job.running.items() if running == pid]:
                    job.tidy = job.tidy and isinstance(change, str)
                    job.on_change(rank, change)
