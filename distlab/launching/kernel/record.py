"""What the kernel knows of a job: where each rank stands, what was returned, how it ended."""

import logging
import math
import signal
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from distlab.launching import processes
from distlab.launching.kernel.accounts import account
from distlab.launching.kernel.client import Client
from distlab.launching.kernel.logs import last_lines
from distlab.launching.kernel.status import ENDED, LOST, RankStatus, label
from distlab.launching.protocol.files import rank_file, read_result
from distlab.launching.protocol.messages import (
    GRACE,
    AnyEvent,
    Failing,
    Launch,
    Over,
    RankChanged,
    Restart,
    StacksWritten,
    Stop,
)

_logger = logging.getLogger("distlab")
_TURN = 0.1
"""The most seconds to wait without looking around."""


class JobRecord:
    """What is known of a job, kept up to date by the thread that reads its events.

    Args:
        client: What starts the ranks: this asks it to.
        request: The job.
        max_restarts: How many times its group may be started again of itself.

    Attributes:
        changed: Held by whoever changes anything here, and told of every change.
        ranks: Where each rank stands.
        attempt: How often the whole group was started before.
        began: When the job was launched.
        how: How the job has ended; None while it goes on.
        why_lost: Why nobody says anything of it any more.
        stacks: How often the ranks have written down where they are.
        places: Where they were when last asked, in words.
        holds_back: Whether ranks have printed more than a notebook shows before they end.
        restart_reasons: Why its group was started again of itself, once per restart.
        cancelled: Whether somebody has ended the job, so that nothing starts it again.
        ends_with_block: Whether a `with` statement will end it.
    """

    def __init__(self, client: Client, request: Launch, max_restarts: int) -> None:
        self.client = client
        self.name = request.job
        self.framework = request.framework
        self.timeout = request.timeout
        self.grace = request.grace
        self.directory = Path(request.directory)
        self.changed = threading.Condition()
        self.ranks = [RankStatus(rank, task) for rank, task in enumerate(request.tasks)]
        self.attempt = 0
        self.began = time.monotonic()
        self.how: str | None = None
        self.why_lost = ""
        self.stacks = 0
        self.places = ""
        self.max_restarts = max_restarts
        self.restart_reasons: list[str] = []
        self.cancelled = self.ends_with_block = self.holds_back = False
        self._read: dict[tuple[int, int], Any] = {}
        """Results that were read, by rank and attempt: they need no file any more."""
        for rank in request.ranks:
            self.ranks[rank].state = "starting"
        client.live.add(self)
        client.send(self, request)

    def statuses(self) -> list[RankStatus]:
        """Copies of where the ranks stand at one moment."""
        with self.changed:
            return [replace(status) for status in self.ranks]

    def results(self) -> list[Any]:
        """What each rank has returned, read once; None for those that have not."""
        return [self._result(status) for status in self.statuses()]

    def _result(self, status: RankStatus) -> Any:
        if status.state != "done":
            return None
        key = status.rank, status.attempt
        if key not in self._read:
            self._read[key] = read_result(rank_file(self.directory, *key, "result"))
        return self._read[key]

    def wait_until(
        self,
        condition: Callable[[], Any],
        timeout: float | None = None,
        tick: Callable[[], None] = lambda: None,
    ) -> bool:
        """Wait until a condition holds, or for some seconds; whether it holds in the end."""
        end = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            # In short turns: an interrupt that comes just before a thread begins to wait is seen
            # only when it wakes.
            with self.changed:
                turn = max(0.0, min(_TURN, end - time.monotonic()))
                if self.changed.wait_for(condition, turn):
                    return True
            if time.monotonic() >= end:
                return False
            tick()

    # What was asked for.

    def begin_again(self, ranks: Iterable[int], together: bool) -> None:
        """Take note that ranks are about to be started again, as a new group or alone."""
        self.attempt += together
        self.how, self.places = None, ""
        for rank in ranks:
            self.ranks[rank].state = "starting"
        self.client.live.add(self)

    # What the supervisor says.

    def _on_event(self, event: AnyEvent) -> None:
        """Take note of an event. Called by the thread that reads them."""
        again = False
        with self.changed:
            match event:
                case RankChanged() if event.group == self.attempt:
                    status = self.ranks[event.rank]
                    self._on_rank(status, event)
                    again = status.state in LOST and self._recovers(status)
                case Failing():
                    self.ranks[event.rank].failed = time.monotonic()
                    self.ranks[event.rank].why = event.why
                case StacksWritten():
                    self.stacks += 1
                case Over() if event.attempt == self.attempt:
                    self.end(event.how)
            self.changed.notify_all()
        if again:
            everyone = list(range(len(self.ranks)))
            self.client.send(self, Restart(job=self.name, ranks=everyone, together=True))
            if self.cancelled:  # meanwhile, and that may have been sent first
                self.client.send(self, Stop(job=self.name))

    def _on_rank(self, status: RankStatus, event: RankChanged) -> None:
        status.state = event.state
        if event.pid is not None:
            status.pid, status.attempt = event.pid, event.attempt
            status.started, status.ended, status.exitcode = time.monotonic(), None, None
            status.failed = None
            status.node, status.why = event.node, ""
            self.how = None
        elif event.state in ENDED:
            if event.attempt > status.attempt:  # an attempt that the system did not let begin
                status.attempt, status.pid, status.started = event.attempt, None, None
            status.why = event.why or status.why
            was_ended = event.state in ("done", "stopped") and event.why != ""  # not by itself
            if was_ended and not self._only_jax_caught_it(status):
                _logger.warning("%s %s", label(self.ranks, status.rank), event.why)
            status.ended, status.exitcode = time.monotonic(), event.status

    def _only_jax_caught_it(self, status: RankStatus) -> bool:
        """Whether a rank outlived SIGTERM, and the usual grace, because it is one of a JAX group.

        JAX catches it in every group, and says so; what it is for, a save, takes a longer grace.
        """
        usual = f" {GRACE:g} s of SIGTERM" in status.why
        last = last_lines(self.directory, status.rank, status.attempt)
        return usual and any("preemption_notifier.cc" in line for line in last)

    def _recovers(self, status: RankStatus) -> bool:
        """Whether the group is started again because of what has become of a rank."""
        if self.cancelled or len(self.restart_reasons) == self.max_restarts:
            return False
        what = account(self.directory, self.ranks, status)
        self.restart_reasons.append(f"{what.name}: {what.what.splitlines()[0]}")
        self.begin_again(range(len(self.ranks)), together=True)
        return True

    def _on_lost(self, why: str) -> None:
        """Take note that the supervisor is gone, and end what it can no longer end."""
        with self.changed:
            if self.how is not None:
                return
            for status in self.ranks:
                if status.state in ENDED:
                    continue
                if status.pid is not None and self.client.local:
                    processes.signal_group(status.pid, signal.SIGKILL)
                begun = self.client.local or status.pid is not None
                status.state = "lost" if begun else "stopped"
                status.ended = time.monotonic()
            if self.client.local:
                processes.end_job(self.name)
            self.why_lost = why
            self.end("lost")

    def end(self, how: str) -> None:
        """Take note that nothing of the job is running, nor will be started."""
        with self.changed:
            for status in self.ranks:
                if status.state == "starting":
                    status.state = "stopped"
            self.how = how
            self.client.live.discard(self)
            if not self.client.local:
                self.client.hang_up("Its places on the cluster were given back: launch it anew.")
            self.changed.notify_all()
