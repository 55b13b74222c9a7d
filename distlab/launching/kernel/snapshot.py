"""What a job looks like at one moment: one row per rank, a headline, the first failure."""

import itertools
import time
from collections import Counter

from distlab.errors import listed
from distlab.launching.kernel.failures import in_turn
from distlab.launching.kernel.logs import last_line, unfinished
from distlab.launching.kernel.record import JobRecord
from distlab.launching.kernel.status import RankStatus
from distlab.launching.rank_errors import causes
from distlab.tables import aligned, html_table

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
COLUMNS = ("rank", "task", "node", "state", "restarts", "time", "last line")
"""What a row says of a rank: its task where there are several kinds, its node where that is another
machine, how long it has run."""


def table(record: JobRecord) -> dict[str, str]:
    """A job with a row for each rank, or for the most interesting ones, by MIME type."""
    from html import escape  # which is slow to import

    with record.changed:
        words, statuses = headline(record), _seen(record)
    ordered = sorted(statuses, key=lambda status: STATES.index(status.state))
    shown, hidden = sorted(ordered[:_ROWS], key=lambda status: status.rank), ordered[_ROWS:]
    several = {status.task.role for status in statuses} != {"worker"}
    every = [COLUMNS, *(_row(record, status, several) for status in shown)]
    kept = [any(cells) for cells in zip(*every[1:], strict=True)]
    heads, *rows = [list(itertools.compress(row, kept)) for row in every]
    right = [heads.index("time")] if "time" in heads else []
    more = f"and {len(hidden)} more: {_count(hidden)}" if hidden else ""
    places = record.places if record.how in (None, "stopped") else ""
    notes = list(filter(None, (more, places, _problem(record, statuses))))
    text = "\n".join([words, aligned([heads, *rows], right), *notes])
    below = "".join(f"<div>{escape(note)}</div>" for note in notes)
    page = f"<div>{escape(words)}{_stale(record)}</div>{html_table(heads, rows, right)}{below}"
    return {"text/plain": text, "text/html": page}


def line(record: JobRecord) -> dict[str, str]:
    """A job in one line, by MIME type."""
    from html import escape  # which is slow to import

    over_well = record.how == "done"  # then the cell's own output says enough
    words = "" if over_well else f"{headline(record)}{_late(record)}"
    style = "font-size:13px;opacity:.75;padding-left:5px"  # of the page's own colour
    page = f'<div style="{style}">{escape(words)}{_stale(record)}</div>'
    return {"text/plain": words, "text/html": page}


def _stale(record: JobRecord) -> str:
    """What a page adds by itself when nothing has renewed it for a while, as after a restart."""
    begun = any(status.started is not None for status in record.statuses())
    if record.how is not None or (record.client.ready.is_set() and not begun):
        return ""  # nothing is to change in it
    hours = time.monotonic() - record.began > 3600  # then the words change once a minute only
    style = f"visibility:hidden;animation:distlab-stale 0s {70 if hours else 4}s forwards"
    keyframes = "<style>@keyframes distlab-stale{to{visibility:visible}}</style>"
    return f'{keyframes}<span style="{style}"> (not up to date: the kernel is gone, or busy)</span>'


def _late(record: JobRecord) -> str:
    """Which ranks the others have left behind, where all are, a progress bar or a last line."""
    if record.how is not None or not record.client.ready.is_set():
        return ""
    ranks = record.statuses()
    late = [str(status.rank) for status in ranks if status.state == "running"]
    few = 0 < len(late) < min(4, len(ranks))
    words = f" (rank{'s' * (len(late) > 1)} {listed(late)})" if few else ""
    newest = last_line if record.holds_back else unfinished
    bar = ""
    for status in sorted(ranks, key=lambda status: status.state != "running"):
        if text := newest(record.directory, status.rank, status.attempt):
            bar = f"; rank {status.rank}: {_shorten(text)}"
            break
    return words + (f"; {record.places}" if record.places else "") + bar


def headline(record: JobRecord) -> str:
    """A job in one line, as it is now."""
    with record.changed:
        over, statuses = record.how is not None, _seen(record)
    if not over and not record.client.ready.is_set():
        return f"{record.client.preparing}: {_duration(time.monotonic() - record.began, over)}"
    words = f"Job of {len(statuses)} rank{'s' * (len(statuses) > 1)}"
    if record.framework is not None:
        words += f" ({record.framework})"
    starts = [status.started for status in statuses if status.started is not None]
    if starts:
        ends = [status.ended for status in statuses if status.ended is not None]
        end = max(ends) if over and ends else time.monotonic()
        words += f", {'over after' if over else 'for'} {_duration(end - min(starts), over)}"
    return f"{words}: {_count(statuses)}"


def _seen(record: JobRecord) -> list[RankStatus]:
    """Where the ranks stand: those have failed of which an error tells, the others were stopped."""
    statuses = record.statuses()
    found = in_turn(record.directory, statuses)
    told = causes([failure for _, failure in found])
    failed = [status for status, failure in found if failure in told]
    for status in statuses:
        if status.state == "stopped" and status in failed:
            status.state = "failed"
        elif status.state == "failed" and status not in failed:
            status.state = "stopped"
    return statuses


def _count(statuses: list[RankStatus]) -> str:
    """How many ranks are in which state: `3 running, 1 failed`."""
    counts = Counter(status.state for status in statuses)
    return ", ".join(f"{counts[state]} {state}" for state in reversed(STATES) if counts[state])


def _row(record: JobRecord, status: RankStatus, several: bool) -> tuple[str, ...]:
    """One rank, with its task if there are several kinds."""
    elapsed = ""
    if status.started is not None:
        end = time.monotonic() if status.ended is None else status.ended
        elapsed = _duration(end - status.started, status.ended is not None)
    return (
        str(status.rank),
        str(status.task) if several else "",
        status.node,
        status.state,
        str(status.attempt) if status.attempt > 0 else "",
        elapsed,
        _shorten(last_line(record.directory, status.rank, status.attempt)),
    )


def _problem(record: JobRecord, statuses: list[RankStatus]) -> str:
    if record.how == "timeout":
        return "The job did not end within its timeout: results() shows where each rank was."
    if record.how == "lost":
        why, *details = record.why_lost.splitlines()
        return f"{why} {_shorten(details[-1])}" if details else why
    found = in_turn(record.directory, statuses)
    if not found:
        return ""
    told = found[0][1]
    hint = " (results() shows its traceback)" if told.traceback else ""
    return f"First failure: {told.name}: {_shorten(told.what.partition(chr(10))[0])}{hint}"


def _duration(seconds: float, exact: bool) -> str:
    """A time in words, exact only where it is over: tenths would be stale at once."""
    if seconds < 60:
        return f"{seconds:.1f} s" if exact else f"{int(seconds)} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _shorten(line: str) -> str:
    return line if len(line) <= _LINE else f"{line[: _LINE - 1]}…"
