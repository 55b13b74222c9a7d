"""What a job looks like at one moment: one row per rank, a headline, the first failure."""

import itertools
import time
from collections import Counter
from dataclasses import dataclass

from distlab.launching.kernel.accounts import account
from distlab.launching.kernel.logs import last_line
from distlab.launching.kernel.record import JobRecord
from distlab.launching.kernel.status import LOST, RankStatus
from distlab.tables import aligned

STATES = (
    "failed",
    "lost",
    "killed",
    "paused",
    "starting",
    "running",
    "waiting",
    "stopped",
    "done",
)
"""All states a rank can be in, those that a reader must not miss first."""
_ROWS = 32
"""The most rows shown. Other ranks are counted."""
_LINE = 80
_ACCOUNTS = 8
"""How many of the ranks that ended first are read for the first failure."""


COLUMNS = ("rank", "task", "node", "state", "restarts", "time", "memory", "last line")
"""What a row says of a rank: its task where there are several kinds, its node where that is another
machine, how long it has run, what it holds of the machine's memory."""
RIGHT = ("time", "memory")
"""Columns that are set to the right."""


@dataclass(frozen=True)
class Snapshot:
    """A job at one moment.

    Attributes:
        headline: The job in one line.
        rows: Its ranks, or the most interesting ones if there are many: for each of `COLUMNS` a
            few words, or none.
        more: How many are left out and in which states; empty if none are.
        problem: The first failure, if there is one.
    """

    headline: str
    rows: tuple[tuple[str, ...], ...]
    more: str
    problem: str

    def table(self) -> list[list[str]]:
        """The headings and the rows, of those columns that hold anything."""
        kept = [any(cells) for cells in zip(*self.rows, strict=True)]
        return [list(itertools.compress(row, kept)) for row in (COLUMNS, *self.rows)]

    def __str__(self) -> str:
        rows = self.table()
        right = [i for i, heading in enumerate(rows[0]) if heading in RIGHT]
        parts = (self.headline, aligned(rows, right), self.more, self.problem)
        return "\n".join(filter(None, parts))


def take(record: JobRecord) -> Snapshot:
    """Look at a job now."""
    with record.changed:
        words, statuses = headline(record), record.statuses()
    ordered = sorted(statuses, key=lambda status: (STATES.index(status.state), status.rank))
    shown, hidden = sorted(ordered[:_ROWS], key=lambda status: status.rank), ordered[_ROWS:]
    several = {status.task.role for status in statuses} != {"worker"}
    return Snapshot(
        headline=words,
        rows=tuple(_row(record, status, several) for status in shown),
        more=f"and {len(hidden)} more: {_count(hidden)}" if hidden else "",
        problem=_problem(record, statuses),
    )


def headline(record: JobRecord) -> str:
    """A job in one line, as it is now."""
    with record.changed:
        over, statuses = record.how is not None, record.statuses()
    words = f"Job of {len(statuses)} rank{'s' * (len(statuses) > 1)}"
    if record.framework is not None:
        words += f" ({record.framework})"
    starts = [status.started for status in statuses if status.started is not None]
    if starts:
        ends = [status.ended for status in statuses if status.ended is not None]
        end = max(ends) if over and ends else time.monotonic()
        words += f", {'over after' if over else 'for'} {duration(end - min(starts), over)}"
    return f"{words}: {_count(statuses)}"


def _count(statuses: list[RankStatus]) -> str:
    """How many ranks are in which state: `3 running, 1 failed`."""
    counts = Counter(status.state for status in statuses)
    return ", ".join(f"{counts[state]} {state}" for state in reversed(STATES) if counts[state])


def _row(record: JobRecord, status: RankStatus, several: bool) -> tuple[str, ...]:
    """One rank, with its task if there are several kinds."""
    elapsed, held = "", None
    if status.started is not None:
        end = time.monotonic() if status.ended is None else status.ended
        elapsed = duration(end - status.started, status.ended is not None)
    if status.pid is not None and status.ended is None and not status.node:
        held = memory(status.pid)
    return (
        str(status.rank),
        str(status.task) if several else "",
        status.node,
        status.state,
        str(status.attempt) if status.attempt > 0 else "",
        elapsed,
        "" if held is None else size(held),
        _shorten(last_line(record.directory, status.rank, status.attempt)),
    )


def _problem(record: JobRecord, statuses: list[RankStatus]) -> str:
    if record.how == "timeout":
        return "The job did not end within its timeout: results() shows where each rank was."
    if record.how == "lost":
        why, *details = record.why_lost.splitlines()
        return f"{why} {_shorten(details[-1])}" if details else why
    if record.how is None and record.restart_reasons:
        words = record.describe_restart(len(record.restart_reasons))
        return _shorten(words[0].upper() + words[1:])
    lost = [status for status in statuses if status.state in LOST]
    if not lost:
        return ""
    lost.sort(key=lambda status: status.ended or 0)
    accounts = [account(record.directory, statuses, status) for status in lost[:_ACCOUNTS]]
    first = min(accounts, key=lambda one: one.time)
    hint = " (results() shows its traceback)" if first.traceback else ""
    return f"First failure: {first.name}: {_shorten(first.what.partition(chr(10))[0])}{hint}"


def memory(pid: int) -> int | None:
    """Bytes of memory a process holds; what it shares is split among those that share it.

    Ranks share most of their memory with the process they were forked from. Where the system does
    not split it, shared memory counts in full.
    """
    import psutil

    try:
        held = psutil.Process(pid).memory_full_info()
    except psutil.Error:
        return None
    return int(getattr(held, "pss", held.rss))


def duration(seconds: float, exact: bool = True) -> str:
    """A time in words: `3.2 s`, `1 min 05 s`, `2 h 10 min`.

    Args:
        seconds: How long.
        exact: Show tenths of the first ten seconds. They would be stale at once in what is
            still going on.
    """
    if seconds < 9.95 and exact:
        return f"{seconds:.1f} s"
    whole = round(seconds) if exact else int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def size(count: int) -> str:
    """Bytes in words, to two digits, so that a table is quiet while little changes."""
    megabytes = count / 1e6
    if megabytes >= 995:
        return f"{megabytes / 1e3:.1f} GB"
    return f"{round(megabytes, -1 if megabytes >= 100 else 0):.0f} MB"


def _shorten(line: str) -> str:
    return line if len(line) <= _LINE else f"{line[: _LINE - 1]}…"
