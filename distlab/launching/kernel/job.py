"""A job: ranks in the background, what they are doing, and the handles to steer them."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

from distlab.errors import brief, check_rank
from distlab.launching.kernel import display, following, snapshot
from distlab.launching.kernel.arguments import check_timeout
from distlab.launching.kernel.display import waiting
from distlab.launching.kernel.failures import rank_error, timeout_error
from distlab.launching.kernel.logs import read_log
from distlab.launching.kernel.record import JobRecord
from distlab.launching.kernel.status import ENDED, RankStatus, is_well, label
from distlab.launching.protocol.messages import Restart, Signal, Stop
from distlab.launching.rank_errors import RankError

_CANCELLING = 60.0
"""Seconds for a job to end that is told to, and after its grace."""


class Job:
    r"""Ranks that `launch` started, and the means to watch and steer them.

    A job is a future, as those of `concurrent.futures`, with one result per rank. In a notebook it
    is a table that is kept up to date. As a context manager it ends its ranks on the way out.

    Example:
        >>> import distlab
        >>> with distlab.launch(print, 2, args=("hello",)) as job:
        ...     job.results()
        ...     job.log(1)
        [None, None]
        'hello\n'
    """

    def __init__(self, record: JobRecord) -> None:
        self._client = record.client
        self._record = record
        self._pausing = threading.Lock()
        """Held by pause and resume: the system tells of the later of two changes only."""

    def __repr__(self) -> str:
        return snapshot.table(self._record)["text/plain"]

    def _ipython_display_(self) -> None:
        display.show(self._record)

    @property
    def nprocs(self) -> int:
        """How many ranks the job has."""
        return len(self._record.ranks)

    @property
    def status(self) -> list[RankStatus]:
        """Where each rank stands, in rank order.

        Each has `rank`, `task`, `state`, `pid`, `attempt`, `started`, `ended`, `exitcode`, `node`
        and `why`. The states are waiting, starting, running, paused, done, failed, killed, stopped
        and lost.
        """
        return self._record.statuses()

    def done(self) -> bool:
        """Whether nothing of the job is running or still to be started."""
        return self._record.how is not None

    @property
    def partial_results(self) -> list[Any]:
        """What each rank has returned, in rank order; None for ranks that have not (yet).

        Each is read once: it is the same object every time.
        """
        return self._record.results()

    @property
    def restart_reasons(self) -> list[str]:
        """Why the whole job was started again of itself, once per restart; see `launch`."""
        return list(self._record.restart_reasons)

    def log(
        self, rank: int, attempt: int | None = None, include_framework_logs: bool = False
    ) -> str:
        r"""What a rank has printed so far, standard output and error together.

        Args:
            rank: Which rank.
            attempt: Which of its attempts, from 0; the last one by default.
            include_framework_logs: Whether to include the lines that every start of a framework
                brings.

        Returns:
            The text. Bytes that are not UTF-8 stand as `\x` escapes. Empty if the rank has not
            been started.
        """
        check_rank(rank, self.nprocs)
        attempt = self._record.ranks[rank].attempt if attempt is None else attempt
        return read_log(self._record.directory, rank, attempt, include_framework_logs)

    def follow(self, rank: int | None = None) -> None:
        """Print what ranks print, a line at a time with the rank in front, until they have ended.

        An interrupt ends the printing and leaves the job alone. Of ranks that print hundreds of
        lines a notebook shows the first and the last ones; `log` has all of them.

        Args:
            rank: Which rank; all by default.
        """
        ranks = range(self.nprocs) if rank is None else [check_rank(rank, self.nprocs)]
        with waiting(self._record) as tick:
            following.follow(self._record, ranks, tick)

    def results(self, timeout: float | None = None) -> list[Any]:
        """Wait until every rank has come to its end. An interrupt meanwhile ends the job.

        Args:
            timeout: How many seconds to wait; for ever by default. The job itself goes on after
                that: the `timeout` of `launch` is the one that ends it.

        Returns:
            What each rank returned, in rank order; None for scripts.

        Raises:
            RankError: If a rank failed, or was killed, or the job was cancelled.
            JobTimeoutError: If time ran out, with the Python stack of every rank.
        """
        if error := self.exception(timeout):
            display.drop_line(self._record)
            raise error
        return self.partial_results

    def exception(self, timeout: float | None = None) -> RankError | None:
        """Wait as `results` does, and return the error that it would raise, None if all is well.

        Args:
            timeout: As that of `results`.

        Raises:
            JobTimeoutError: If time to wait ran out. An error because of the `timeout` of `launch`
                is returned.
        """
        check_timeout(timeout)
        with waiting(self._record, self.cancel) as tick:
            if not self._record.wait_until(self.done, timeout, tick):
                words = f"The job was not over after {timeout:g} s of waiting: it goes on."
                raise timeout_error(self._record, words)
        if all(is_well(self._record.ranks, rank) for rank in range(self.nprocs)):
            return None
        return rank_error(self._record)

    def wait_for_output(self, rank: int, text: str, timeout: float = 60.0) -> str:
        """Wait until a rank has printed a line that contains `text`.

        An interrupt ends the waiting and leaves the job alone.

        Args:
            rank: Which rank.
            text: What the line must contain; what frameworks always say counts.
            timeout: How many seconds to wait at most.

        Returns:
            The line.

        Raises:
            JobTimeoutError: If time ran out, with the Python stack of every rank.
            RankError: If the rank ended without printing it.
        """
        check_timeout(timeout)
        deadline = time.monotonic() + timeout
        chosen, who = [check_rank(rank, self.nprocs)], self._label(rank)
        with waiting(self._record) as tick:
            for lines in following.printed(self._record, chosen, include_framework_logs=True):
                for _, line in lines:
                    if text in line:
                        return line
                if time.monotonic() > deadline:
                    words = f"{who} had not printed {text!r} after {timeout:g} s."
                    raise timeout_error(self._record, words)
                tick()
        raise rank_error(self._record, f"{who} ended and had not printed {text!r}.")

    def kill(self, rank: int) -> None:
        """End a rank with SIGKILL, as a crash of its machine would.

        The others go on, unless the job may start again of itself: see `checkpoint` of `launch`.

        Raises:
            RuntimeError: If the rank is not running.
        """
        self._steer("kill", "SIGKILL", rank, ENDED)

    def pause(self, rank: int) -> None:
        """Stop a rank where it is, until `resume`: a straggler (SIGSTOP).

        Raises:
            RuntimeError: If the rank is not running.
        """
        with self._pausing:
            self._steer("pause", "SIGSTOP", rank, ("paused", *ENDED))

    def resume(self, rank: int) -> None:
        """Let a paused rank go on (SIGCONT).

        Raises:
            RuntimeError: If the rank is neither paused nor running.
        """
        with self._pausing:
            self._steer("resume", "SIGCONT", rank, ("running", *ENDED))

    def start(self, rank: int) -> None:
        """Start a rank that `launch` was told to leave out.

        Raises:
            RuntimeError: If it has been started, or the job is over.
        """
        status = self._record.ranks[check_rank(rank, self.nprocs)]
        if status.state != "waiting" or self.done():
            raise RuntimeError(f"{self._label(rank)} cannot be started: it is {status.state}.")
        request = Restart(job=self._record.name, ranks=[rank], together=False)
        self._client.send(self._record, request)
        self._await(lambda: status.state != "waiting")

    def restart(self, rank: int | None = None) -> None:
        """Start a rank again, or without an argument the whole job.

        One rank comes back with the identity and the addresses it had. A whole job forms a new
        group. Results are those of the new attempt; `log(rank, attempt=0)` still has the old
        output.

        Raises:
            RuntimeError: If the job is over and its group cannot be joined again; on Ray, if the
                job is over at all, or for one rank.
        """
        record = self._record
        chosen = range(self.nprocs) if rank is None else [check_rank(rank, self.nprocs)]
        if self._client.lost is not None:  # seen before the results become those of the past
            raise RuntimeError(f"The job cannot be started again. {self._client.lost}")
        local, torch = self._client.local, record.framework == "torch"
        if rank is not None and (not local or (self.done() and torch)):
            group = "The job is over, and a torch group" if local else "On Ray a group"
            raise RuntimeError(
                f"{group} cannot be joined by one rank alone: restart() without a rank starts all "
                "of them in a new group."
            )
        with record.changed:
            before = [status.attempt for status in record.ranks]
            record.cancelled = False
            record.begin_again(chosen, together=rank is None)
        request = Restart(job=record.name, ranks=list(chosen), together=rank is None)
        self._client.send(record, request)
        display.follow(record)
        self._await(lambda: all(record.ranks[r].attempt > before[r] for r in chosen))
        if record.how == "lost":
            raise RuntimeError(f"The job cannot be started again. {record.why_lost}")

    def cancel(self, grace: float | None = None) -> None:
        """End all ranks and wait for that: SIGTERM, after `grace` seconds SIGKILL, which is logged.

        Args:
            grace: By default that of `launch`.

        Raises:
            RuntimeError: If they are not gone a minute after that: nobody answers.
        """
        check_timeout(grace, "grace")
        with self._record.changed:
            self._record.cancelled = True
            if self.done():
                return
            if self._client.withdraw(self._record.name):  # the framework is still being imported
                self._record.end("stopped")
                return
        self._client.send(self._record, Stop(job=self._record.name, grace=grace))
        patience = _CANCELLING + (grace or self._record.grace)
        if not self._await(self.done, patience):
            raise RuntimeError(
                f"The ranks were told to end {patience:g} s ago and have not: what starts and "
                "watches them does not answer. python -m distlab doctor shows what is left once "
                "this process has ended."
            )

    def __enter__(self) -> "Job":
        self._record.ends_with_block = True
        return self

    def __exit__(self, *_: object) -> None:
        self._record.ends_with_block = False
        self.cancel()

    def _label(self, rank: int) -> str:
        return label(self._record.ranks, rank)

    def _await(self, condition: Callable[[], Any], timeout: float | None = None) -> bool:
        """Wait until a condition holds, or the job is lost, or for some seconds."""
        record = self._record
        with waiting(record) as tick:
            return record.wait_until(lambda: condition() or record.how == "lost", timeout, tick)

    def _steer(
        self,
        what: str,
        name: Literal["SIGKILL", "SIGSTOP", "SIGCONT"],
        rank: int,
        until: Sequence[str],
    ) -> None:
        status = self._record.ranks[check_rank(rank, self.nprocs)]
        self._await(lambda: status.state != "starting")
        if status.state not in ("running", "paused"):
            raise RuntimeError(f"Cannot {what} {self._label(rank)}: it is {status.state}.")
        attempt = status.attempt
        self._client.send(self._record, Signal(job=self._record.name, ranks=[rank], name=name))
        self._await(lambda: status.state in until or status.attempt > attempt)


for _name in ("log", "follow", "wait_for_output", "kill", "pause", "resume", "start", "restart"):
    setattr(Job, _name, brief(getattr(Job, _name)))
