"""A job: ranks in the background, what they are doing, and the handles to steer them."""

import contextlib
import inspect
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TextIO

from distlab.errors import JobTimeoutError, RankError, interrupted, left_alone
from distlab.launching.kernel import following, showing, snapshot
from distlab.launching.kernel.arguments import check_rank, check_timeout
from distlab.launching.kernel.client import Client
from distlab.launching.kernel.failures import failure, too_long
from distlab.launching.kernel.logs import Head, Tail, read_head, read_log
from distlab.launching.kernel.record import JobRecord
from distlab.launching.kernel.status import ENDED, RankStatus, is_well, label
from distlab.launching.protocol.messages import (
    Kill,
    Launch,
    Pause,
    Restart,
    Resume,
    Start,
    Stop,
    WriteStacks,
)

_STOPPING = 60.0
"""Seconds for a job to end that is told to."""
_TURN = 0.1
"""The most seconds to wait without looking around."""


class Job:
    r"""Ranks that `launch` started, and the means to watch and steer them.

    In a notebook a job shows itself as a table that keeps itself up to date. As a context manager
    it stops its ranks on the way out. Jobs are made by `launch`.

    Example:
        >>> import distlab
        >>> with distlab.launch(print, 2, args=("hello",)) as job:
        ...     job.results()
        ...     job.log(1)
        [None, None]
        'hello\n'
    """

    __signature__ = inspect.Signature()  # for help: nobody else makes one

    def __init__(
        self,
        client: Client,
        request: Launch,
        restarts: int = 0,
    ) -> None:
        self._client = client
        self._record = JobRecord(client, request, restarts)
        self._pausing = threading.Lock()
        """Held by pause and resume: the system tells of the later of two changes only."""

    def __repr__(self) -> str:
        return str(snapshot.take(self))

    def _ipython_display_(self) -> None:
        showing.show(self)

    # What is going on.

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
        return [self._record.result(status) for status in self.status]

    @property
    def restart_reasons(self) -> list[str]:
        """Why the whole job was started again of itself, once per restart; see `launch`."""
        return list(self._record.recovery.reasons)

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
        self._check(rank)
        attempt = self._record.ranks[rank].attempt if attempt is None else attempt
        return read_log(self._record.directory, rank, attempt, include_framework_logs)

    def _log_head(self, rank: int) -> Head:
        """The beginning of what a rank has printed, for who shows no more of it."""
        record = self._record
        return read_head(record.directory, rank, record.ranks[rank].attempt)

    def follow(self, file: TextIO | None = None) -> None:
        """Print what the ranks print, a line at a time with the rank in front, until all is over.

        An interrupt ends the printing and leaves the job alone. A notebook shows the first and the
        last lines of ranks that print more than 200; `log` has all of them.

        Args:
            file: Where to print; if given, nothing is left out. Standard output by default.
        """
        with showing.waiting(self) as waiting, self._told_of_interrupts(stop=False):
            following.follow(self, file, "job", waiting.tick)

    def results(self, timeout: float | None = None) -> list[Any]:
        """Wait until every rank has come to its end. An interrupt meanwhile stops the job.

        Args:
            timeout: How many seconds to wait; for ever by default. The job itself goes on after
                that: the `timeout` of `launch` is the one that ends it.

        Returns:
            What each rank returned, in rank order; None for scripts.

        Raises:
            RankError: If a rank failed, or was killed or stopped.
            JobTimeoutError: If time ran out, with the Python stack of every rank.
        """
        check_timeout(timeout)
        with showing.waiting(self) as waiting, self._told_of_interrupts(stop=True):
            over = self._record.wait_until(lambda: self.done(), timeout, waiting.tick)
            if not over:
                raise self._timeout_error(f"The job was not over after {timeout:g} s of waiting.")
        if all(is_well(self._record.ranks, rank) for rank in range(self.nprocs)):
            return self.partial_results
        raise self._error()

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
        self._check(rank)
        check_timeout(timeout)
        deadline = time.monotonic() + timeout
        log = Tail(self._record.directory, rank, include_framework_logs=True)
        with showing.waiting(self) as waiting, self._told_of_interrupts(stop=False):
            while True:
                with self._record.changed:  # a rank that has just ended may be about to start again
                    ended = self._record.ranks[rank].state in ENDED
                for line in log.new_lines(self._record.ranks[rank].attempt, ended):
                    if text in line:
                        return line
                if ended:
                    raise self._error(f"{self._label(rank)} ended and had not printed {text!r}.")
                if time.monotonic() > deadline:
                    raise self._timeout_error(
                        f"{self._label(rank)} had not printed {text!r} after {timeout:g} s."
                    )
                with self._record.changed:
                    self._record.changed.wait(0.02)
                waiting.tick()

    # Steering.

    def kill(self, rank: int) -> None:
        """End a rank with SIGKILL, as a crash of its machine would.

        The others go on, unless the job may start again of itself: see `checkpoint` of `launch`.

        Raises:
            RuntimeError: If the rank is not running.
        """
        self._steer("kill", Kill, rank, ENDED)

    def pause(self, rank: int) -> None:
        """Stop a rank where it is, until `resume`: a straggler (SIGSTOP).

        Raises:
            RuntimeError: If the rank is not running.
        """
        with self._pausing:
            self._steer("pause", Pause, rank, ("paused", *ENDED))

    def resume(self, rank: int) -> None:
        """Let a paused rank go on (SIGCONT).

        Raises:
            RuntimeError: If the rank is neither paused nor running.
        """
        with self._pausing:
            self._steer("resume", Resume, rank, ("running", *ENDED))

    def start(self, rank: int) -> None:
        """Start a rank that `launch` was told to leave out.

        Raises:
            RuntimeError: If it has been started, or the job is over.
        """
        self._check(rank)
        state = self._record.ranks[rank].state
        if state != "waiting" or self.done():
            raise RuntimeError(f"{self._label(rank)} cannot be started: it is {state}.")
        self._client.send(self._record, Start(job=self._record.name, ranks=[rank]))
        self._await(lambda: self._record.ranks[rank].state != "waiting")

    def restart(self, rank: int | None = None) -> None:
        """Start a rank again, or without an argument the whole job.

        One rank comes back with the identity and the addresses it had. A whole job forms a new
        group. Results are those of the new attempt; `log(rank, attempt=0)` still has the old
        output.

        Raises:
            RuntimeError: If the job is over and its group cannot be joined again.
        """
        everything = rank is None
        chosen = [self._check(rank)] if rank is not None else list(range(self.nprocs))
        if self._client.lost is not None:  # seen before the results become those of the past
            raise RuntimeError(f"The job cannot be started again. {self._client.lost}")
        if not everything and self.done():
            self._check_joinable()
        with self._record.changed:
            before = [status.attempt for status in self._record.ranks]
            self._record.recovery.given_up = False
            self._record.begin_again(chosen, together=everything)
        self._client.send(
            self._record, Restart(job=self._record.name, ranks=chosen, together=everything)
        )
        self._await(lambda: all(self._record.ranks[r].attempt > before[r] for r in chosen))
        if self._record.how == "lost":
            raise RuntimeError(f"The job cannot be started again. {self._record.why_lost}")

    def _check_joinable(self) -> None:
        """Raise RuntimeError if one rank alone cannot be started again now that the job is over."""
        if not self._client.local:
            why = "the places of its ranks were given back"
        elif self._record.framework == "torch":
            why = "a torch group cannot be joined by one rank alone"
        else:
            return
        raise RuntimeError(
            f"The job is over, and {why}: restart() without a rank starts all of them in a new "
            "group."
        )

    def cancel(self) -> None:
        """End all ranks: SIGTERM, after two seconds SIGKILL. Returns when they are gone.

        Raises:
            RuntimeError: If they are not gone after a minute, because nobody answers.
        """
        with self._record.changed:
            self._record.recovery.given_up = True
        if self._client.withdraw(self._record.name):  # the framework is still being imported
            with self._record.changed:
                for status in self._record.ranks:
                    status.state = "stopped"
                self._record.end("stopped")
                self._record.changed.notify_all()
        self._client.send(self._record, Stop(job=self._record.name))
        if not self._await(lambda: self.done(), _STOPPING):
            raise RuntimeError(
                f"The ranks were told to end {_STOPPING:g} s ago and have not come to their end: "
                "what starts and watches them does not answer. python -m distlab doctor shows "
                "what is left once this process has ended."
            )

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    # The means to do all that.

    def _check(self, rank: int) -> int:
        return check_rank(rank, self.nprocs)

    def _await(self, condition: Callable[[], Any], timeout: float | None = None) -> bool:
        with showing.waiting(self) as waiting:
            return self._record.wait_until(
                lambda: condition() or self._record.how == "lost", timeout, waiting.tick
            )

    @contextlib.contextmanager
    def _told_of_interrupts(self, stop: bool) -> Iterator[None]:
        """Within it an interrupt says in one line what becomes of the job, which it may stop."""
        try:
            yield
        except (KeyboardInterrupt, RuntimeError) as error:
            # In the middle of Condition.wait an interrupt leaves its lock open, which fails then.
            if KeyboardInterrupt not in (type(error), type(error.__context__)):
                raise
            if not stop:
                raise left_alone(self.done()) from None
            live = sum(status.state not in (*ENDED, "waiting") for status in self.status)
            self.cancel()
            raise interrupted(live) from None

    def _steer(
        self, what: str, request: type[Kill | Pause | Resume], rank: int, until: Iterable[str]
    ) -> None:
        self._check(rank)
        self._await(lambda: self._record.ranks[rank].state != "starting")
        state = self._record.ranks[rank].state
        if state not in ("running", "paused"):
            raise RuntimeError(f"Cannot {what} {self._label(rank)}: it is {state}.")
        attempt = self._record.ranks[rank].attempt
        self._client.send(self._record, request(job=self._record.name, ranks=[rank]))
        self._await(
            lambda: (
                self._record.ranks[rank].state in until
                or self._record.ranks[rank].attempt > attempt
            )
        )

    def _label(self, rank: int) -> str:
        return label(self._record.ranks, rank)

    def _error(self, headline: str | None = None) -> RankError:
        """The error for a job, or a rank, that did not come to a good end."""
        if self._record.how == "timeout":
            seconds = f" of {self._record.timeout:g} s" if self._record.timeout is not None else ""
            return self._timeout_error(f"The job did not end within its timeout{seconds}.", False)
        if self._record.how == "lost":
            headline = self._record.why_lost
        return failure(self._record.directory, self.status, self.partial_results, headline)

    def _timeout_error(self, headline: str, ask: bool = True) -> JobTimeoutError:
        """The error for a job that takes too long, with the stack of each rank."""
        if ask and self._client.ready.is_set():
            seen = self._record.stacks
            self._client.send(self._record, WriteStacks(job=self._record.name))
            self._await(lambda: self._record.stacks > seen or self.done())
        preparing = "" if self._client.ready.is_set() else self._client.preparing
        return too_long(
            self._record.directory, self.status, self.partial_results, headline, preparing
        )
