"""A job: ranks in the background, what they are doing, and the handles to steer them."""

import pickle
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

from distlab import processes
from distlab.client import Client
from distlab.errors import (
    JobTimeoutError,
    RankFailure,
    WorkerError,
    read_exception,
    read_report,
    read_stack,
)
from distlab.logs import Tail, read_log, read_tail
from distlab.rank import rank_file
from distlab.rendezvous import Task, services

ENDED = ("done", "failed", "killed", "stopped", "lost")
_TAIL = 20
"""How many of a rank's last lines an error shows."""


@dataclass
class RankStatus:
    """Where one rank stands.

    Attributes:
        rank: Its rank.
        task: Its task type and index.
        state: `waiting` for `Job.start`, `starting`, `running`, `paused`, `done`, `failed`,
            `killed` by `Job.kill`, `stopped` because the job was, or `lost` with its supervisor.
        pid: Its process id, None before it starts.
        attempt: How often it was started before.
        started: When it was started, in seconds of `time.monotonic`.
        ended: When it ended, likewise; None while it runs.
        status: Its exit status, negative for a signal; None while it runs.
    """

    rank: int
    task: Task
    state: str = "waiting"
    pid: int | None = None
    attempt: int = -1
    started: float | None = None
    ended: float | None = None
    status: int | None = None


class Job:
    """Ranks that `launch` started, and the means to watch and steer them.

    In a notebook a job shows itself as a table that keeps itself up to date. As a context manager
    it stops its ranks on the way out.
    """

    def __init__(self, client: Client, request: dict[str, Any], tasks: list[Task]) -> None:
        self._client = client
        self._name: str = request["job"]
        self._framework: str | None = request["framework"]
        self._directory = Path(request["directory"])
        self._changed = threading.Condition()
        self._ranks = [RankStatus(rank, task) for rank, task in enumerate(tasks)]
        self._attempt = 0
        self._over: str | None = None
        self._why_lost = ""
        self._stacks = 0
        for rank in request["ranks"]:
            self._ranks[rank].state = "starting"
        client.live.add(self)
        client.send(self, do="launch", **request)
        # The directory goes with the last reference to the job: until then its logs can be read.
        weakref.finalize(self, client.forget, self._name)

    def __repr__(self) -> str:
        from distlab import snapshot

        return str(snapshot.take(self))

    def _ipython_display_(self) -> None:
        from distlab import display

        display.show(self)

    # What is going on.

    @property
    def nprocs(self) -> int:
        """How many ranks the job has."""
        return len(self._ranks)

    @property
    def status(self) -> list[RankStatus]:
        """Where each rank stands, in rank order."""
        with self._changed:
            return [replace(status) for status in self._ranks]

    @property
    def over(self) -> bool:
        """Whether nothing of the job is running or still to be started."""
        return self._over is not None

    @property
    def results(self) -> list[Any]:
        """What each rank has returned, in rank order; None for ranks that have not (yet)."""
        return [self._result(status) for status in self.status]

    def log(self, rank: int, attempt: int | None = None, chatter: bool = False) -> str:
        r"""What a rank has printed so far, standard output and error together.

        Args:
            rank: Which rank.
            attempt: Which of its attempts, from 0; the last one by default.
            chatter: Whether to include the lines that every start of a framework brings.

        Returns:
            The text. Bytes that are not UTF-8 stand as `\x` escapes. Empty if the rank has not
            been started.
        """
        self._check(rank)
        attempt = self._ranks[rank].attempt if attempt is None else attempt
        return read_log(self._directory, rank, attempt, chatter)

    def follow(self, file: TextIO | None = None) -> None:
        """Print what the ranks print, a line at a time with the rank in front, until all is over.

        Args:
            file: Where to; standard output by default.
        """
        logs = [Tail(self._directory, rank) for rank in range(self.nprocs)]
        over = False
        while not over:
            with self._changed:
                over = self._changed.wait_for(lambda: self.over, timeout=0.05)
            for log, status in zip(logs, self.status, strict=True):
                for line in log.new_lines(status.attempt, over):
                    print(f"[{self._label(status.rank)}] {line}", file=file, flush=True)

    def wait(self, timeout: float | None = None) -> list[Any]:
        """Wait until every rank has come to its end. An interrupt meanwhile stops the job.

        Args:
            timeout: How many seconds to wait; for ever by default. The job itself goes on after
                that: the `timeout` of `launch` is the one that ends it.

        Returns:
            What each rank returned, in rank order; None for scripts.

        Raises:
            WorkerError: If a rank failed, or was killed or stopped.
            JobTimeoutError: If time ran out, with the Python stack of every rank.
        """
        check_timeout(timeout)
        try:
            with self._changed:
                over = self._changed.wait_for(lambda: self.over, timeout)
            if not over:
                raise self._timeout_error(f"The job was not over after {timeout:g} s of waiting.")
        except KeyboardInterrupt:
            self.stop()
            raise
        if all(self._is_well(status) for status in self._ranks):
            return self.results
        raise self._error()

    def wait_for_output(self, rank: int, text: str, timeout: float = 60.0) -> str:
        """Wait until a rank has printed a line that contains `text`.

        Args:
            rank: Which rank.
            text: What the line must contain; frameworks' chatter counts.
            timeout: How many seconds to wait at most.

        Returns:
            The line.

        Raises:
            JobTimeoutError: If time ran out, with the Python stack of every rank.
            WorkerError: If the rank ended without printing it.
        """
        self._check(rank)
        check_timeout(timeout)
        deadline = time.monotonic() + timeout
        log = Tail(self._directory, rank, chatter=True)
        while True:
            ended = self._ranks[rank].state in ENDED
            for line in log.new_lines(self._ranks[rank].attempt, ended):
                if text in line:
                    return line
            if ended:
                raise self._error(f"{self._label(rank)} ended and had not printed {text!r}.")
            if time.monotonic() > deadline:
                raise self._timeout_error(
                    f"{self._label(rank)} had not printed {text!r} after {timeout:g} s."
                )
            with self._changed:
                self._changed.wait(0.02)

    # Steering.

    def kill(self, rank: int) -> None:
        """End a rank with SIGKILL, as a crash of its machine would; the others go on."""
        self._steer("kill", rank, ENDED)

    def pause(self, rank: int) -> None:
        """Stop a rank where it is, until `resume`: a straggler (SIGSTOP)."""
        self._steer("pause", rank, ("paused", *ENDED))

    def resume(self, rank: int) -> None:
        """Let a paused rank go on (SIGCONT)."""
        self._steer("resume", rank, ("running", *ENDED))

    def start(self, rank: int) -> None:
        """Start a rank that `launch` was told to leave out.

        Raises:
            RuntimeError: If it has been started, or the job is over.
        """
        self._check(rank)
        state = self._ranks[rank].state
        if state != "waiting" or self.over:
            raise RuntimeError(f"{self._label(rank)} cannot be started: it is {state}.")
        self._request("start", [rank])
        self._await(lambda: self._ranks[rank].state != "waiting")

    def restart(self, rank: int | None = None) -> None:
        """Start a rank again, or without an argument the whole job.

        One rank comes back with the identity and the addresses it had. A whole job forms a new
        group; results and logs of the earlier attempt are those of the past.

        Raises:
            RuntimeError: If the job is over and its group cannot be joined again.
        """
        everything = rank is None
        chosen = [self._check(rank)] if rank is not None else list(range(self.nprocs))
        if not everything and self.over and self._framework == "torch":
            raise RuntimeError(
                "The job is over, and a torch group cannot be joined by one rank alone: "
                "restart() without a rank starts all of them in a new group."
            )
        with self._changed:
            before = [status.attempt for status in self._ranks]
            self._attempt += everything
            self._over = None
            self._client.live.add(self)
        self._request("restart", chosen, all=everything)
        self._await(lambda: all(self._ranks[r].attempt > before[r] for r in chosen))

    def stop(self) -> None:
        """End all ranks: SIGTERM, after two seconds SIGKILL. Returns when they are gone."""
        if self._client.withdraw(self._name):  # the framework is still being imported
            with self._changed:
                for status in self._ranks:
                    status.state = "stopped"
                self._end("stopped")
                self._changed.notify_all()
        self._client.send(self, do="stop", job=self._name)
        self._await(lambda: self.over)

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # What the supervisor says.

    def on_event(self, event: dict[str, Any]) -> None:
        """Take note of an event. Called by the thread that reads them."""
        now = time.monotonic()
        with self._changed:
            if event["event"] == "rank":
                self._on_rank(self._ranks[event["rank"]], event, now)
            elif event["event"] == "stacks":
                self._stacks += 1
            elif event["event"] == "over" and event["attempt"] == self._attempt:
                self._end(event["how"])
            self._changed.notify_all()

    def _on_rank(self, status: RankStatus, event: dict[str, Any], now: float) -> None:
        status.state = event["state"]
        if "pid" in event:
            status.pid, status.attempt = event["pid"], event["attempt"]
            status.started, status.ended, status.status = now, None, None
            self._over = None
        if "status" in event:
            status.ended, status.status = now, event["status"]

    def on_lost(self, why: str) -> None:
        """Take note that the supervisor is gone, and end what it can no longer end."""
        with self._changed:
            for status in self._ranks:
                if status.state in ENDED:
                    continue
                if status.pid is not None:
                    processes.signal_group(status.pid, signal.SIGKILL)
                status.state, status.ended = "lost", time.monotonic()
            processes.end_job(self._name)
            if self._over is None:
                self._why_lost = why
                self._end("lost")
            self._changed.notify_all()

    def _end(self, how: str) -> None:
        self._over = how
        self._client.live.discard(self)

    # The means to do all that.

    def _check(self, rank: int) -> int:
        if isinstance(rank, bool) or not isinstance(rank, int):
            raise TypeError(f"A rank is an int, not {rank!r} of type {type(rank).__name__}.")
        if not 0 <= rank < self.nprocs:
            raise ValueError(f"There is no rank {rank}: the ranks are 0 to {self.nprocs - 1}.")
        return rank

    def _request(self, what: str, ranks: list[int], **more: Any) -> None:
        self._client.send(self, do=what, job=self._name, ranks=ranks, **more)

    def _await(self, condition: Callable[[], Any]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: condition() or self._over == "lost")

    def _steer(self, what: str, rank: int, until: Iterable[str]) -> None:
        self._check(rank)
        self._await(lambda: self._ranks[rank].state != "starting")
        state = self._ranks[rank].state
        if state not in ("running", "paused"):
            raise RuntimeError(f"Cannot {what} {self._label(rank)}: it is {state}.")
        self._request(what, [rank])
        self._await(lambda: self._ranks[rank].state in until)

    def _label(self, rank: int) -> str:
        task = self._ranks[rank].task
        kinds = {status.task.role for status in self._ranks}
        return f"rank {rank}" if kinds == {"worker"} else f"rank {rank} ({task})"

    def _result(self, status: RankStatus) -> Any:
        if status.state != "done":
            return None
        path = rank_file(self._directory, status.rank, status.attempt, "result")
        with path.open("rb") as file:
            return pickle.load(file)

    def _is_well(self, status: RankStatus) -> bool:
        served = status.rank in services([s.task for s in self._ranks])
        return status.state == "done" or (served and status.state == "stopped")

    def _account(self, status: RankStatus, what: str | None = None) -> RankFailure:
        """What is known of a rank that did not come to a good end."""
        place = (self._directory, status.rank, status.attempt)
        report = read_report(*place) if status.state != "killed" else None
        trace = report["traceback"] if report else ""
        if report is not None:
            what = what or ": ".join(filter(None, (report["kind"], report["message"])))
        elif what is None and status.state == "killed":
            what = "was killed by Job.kill"
        elif what is None and status.status == 0:
            what = "exited with status 0 before its function returned"
        elif what is None and status.status is not None:
            what = processes.describe_exit(status.status)
        return RankFailure(
            rank=status.rank,
            name=self._label(status.rank),
            what=what or status.state,
            traceback=trace,
            output=read_tail(*place, _TAIL),
            time=report["time"] if report else status.ended or time.monotonic(),
        )

    def _error(self, headline: str | None = None) -> WorkerError:
        """The error for a job, or a rank, that did not come to a good end."""
        if self._over == "timeout":
            return self._timeout_error("The job did not end within its timeout.", ask=False)
        ranks = self.status
        failed = [self._account(s) for s in ranks if s.state in ("failed", "killed", "lost")]
        failed.sort(key=lambda failure: failure.time)
        others = [self._account(s) for s in ranks if s.state == "stopped"]
        if headline is None and self._over == "lost":
            headline = self._why_lost
        elif headline is None and failed:
            headline = f"{failed[0].name} of {self.nprocs} failed: {failed[0].what}"
        error = WorkerError(
            headline or "The job was stopped.", failed, others, [self._result(s) for s in ranks]
        )
        if failed:
            first = ranks[failed[0].rank]
            error.__cause__ = read_exception(self._directory, first.rank, first.attempt)
        return error

    def _timeout_error(self, headline: str, ask: bool = True) -> JobTimeoutError:
        """The error for a job that takes too long, with the stack of each rank."""
        if ask and self._client.ready.is_set():
            seen = self._stacks
            self._client.send(self, do="stacks", job=self._name)
            self._await(lambda: self._stacks > seen or self.over)
        accounts = []
        for status in self.status:
            if status.state in ("running", "paused", "stopped"):
                stack = read_stack(self._directory, status.rank, status.attempt)
                idle = "is paused" if status.state == "paused" else "was still running"
                accounts.append(replace(self._account(status, idle), traceback=stack))
        waiting = [s for s in self.status if s.state in ("waiting", "starting")]
        if waiting:
            headline += f" Not started: {', '.join(self._label(s.rank) for s in waiting)}"
            importing = f" ({self._framework} is still being imported)"
            headline += "." if self._client.ready.is_set() else f"{importing}."
        return JobTimeoutError(headline, accounts, [], self.results)


def check_timeout(timeout: object) -> None:
    """Raise a clear error unless `timeout` is None or a number of seconds above 0."""
    if timeout is None:
        return
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise TypeError(f"A timeout is a number of seconds or None, not {timeout!r}.")
    if not timeout > 0:
        raise ValueError(f"A timeout must be above 0 seconds, not {timeout:g}.")
