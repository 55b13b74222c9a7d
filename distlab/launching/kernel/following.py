"""Prints what the ranks of a job print, a line at a time with the rank in front."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from distlab.errors import notebook_shell
from distlab.launching.kernel.excerpt import Excerpt
from distlab.launching.kernel.logs import Tail
from distlab.launching.kernel.status import label

if TYPE_CHECKING:
    from distlab.launching.kernel.job import Job


def follow(job: "Job", file: TextIO | None, name: str, tick: Callable[[bool], None]) -> None:
    """Print what the ranks print until all is over; see `Job.follow`.

    Args:
        job: The job.
        file: Where to; standard output if None, and then a notebook gets an excerpt.
        name: How the reader gets at the job, for the note about what is left out.
        tick: What to do again and again meanwhile; told whether nothing was printed so far.
    """
    excerpt = Excerpt(job.nprocs) if file is None and notebook_shell() is not None else None
    logs = [Tail(job._record.directory, rank) for rank in range(job.nprocs)]
    told = 0
    over, silent = False, True
    while not over:
        over = job._record.wait_until(lambda: job.done(), 0.05)
        lines: list[str] = []
        for told in range(told + 1, len(job.restart_reasons) + 1):  # noqa: B020
            lines.append(f"[distlab] {job._record.recovery.describe(told)}")
        for log, status in zip(logs, job.status, strict=True):
            new = [_overwritten(line) for line in log.new_lines(status.attempt, over)]
            if excerpt is not None:
                new = excerpt.first(status.rank, new)
            lines += _labelled(job, status.rank, new)
        _print(lines, file)
        silent = silent and not lines
        tick(silent)
    if excerpt is None:
        return
    lines = []
    complete = True
    for rank in range(job.nprocs):
        left_out, last = excerpt.last(rank)
        if left_out:
            complete = False
            of = f"{left_out:,} line{'s' * (left_out > 1)} of {label(job._record.ranks, rank)}"
            lines.append(f"[distlab] {of} left out here")
        lines += _labelled(job, rank, last)
    if not complete:
        lines.append(f"[distlab] all lines of a rank are in {name}.log(rank)")
    _print(lines, file)


def _labelled(job: "Job", rank: int, lines: list[str]) -> list[str]:
    return [f"[{label(job._record.ranks, rank)}] {line}" for line in lines]


def _overwritten(line: str) -> str:
    """A line as a terminal shows it in the end: a progress bar goes back to its beginning."""
    return line.rstrip("\r").rpartition("\r")[2]


def _print(lines: list[str], file: TextIO | None) -> None:
    """Print all at once: Jupyter drops messages that come one by one too fast."""
    if lines:
        file = sys.stdout if file is None else file
        file.write("".join(f"{line}\n" for line in lines))
        file.flush()
