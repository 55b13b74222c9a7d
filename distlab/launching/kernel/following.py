"""What the ranks of a job print, as it comes: a line at a time with the rank in front."""

import sys
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from typing import TextIO

from distlab.errors import notebook_shell
from distlab.launching.kernel.logs import Tail
from distlab.launching.kernel.record import JobRecord
from distlab.launching.kernel.status import ENDED, label

LOOK = 0.05
"""Seconds between two looks at the logs, which are plain files. Whatever the ranks have started
writes there, code in C and programs of their own too, and none of that could tell us of it."""
LINES = 800
"""How many lines of all ranks together a notebook shows at most, half of them the first. A page
with a hundred thousand is slow, and Jupyter drops messages that come too fast."""
MOST = 100
"""How many first and how many last lines of one rank."""
WIDTH = 4000
"""How many characters of a line."""


def printed(
    record: JobRecord, ranks: Sequence[int], include_framework_logs: bool = False
) -> Iterator[list[tuple[int, str]]]:
    """What some ranks print until all of them have ended, or the job is over.

    Args:
        record: The job.
        ranks: Which.
        include_framework_logs: Whether to include what frameworks always say.

    Yields:
        Ranks and their new lines, perhaps none: every `LOOK` seconds, and at once when all have
        ended.
    """
    tails = {rank: Tail(record.directory, rank, include_framework_logs) for rank in ranks}
    pause = 0.0

    def ended() -> bool:
        return record.how is not None or all(record.ranks[rank].state in ENDED for rank in ranks)

    while True:
        over = record.wait_until(ended, pause)
        statuses = record.statuses()
        yield [
            (rank, line)
            for rank, tail in tails.items()
            for line in tail.new_lines(statuses[rank].attempt, statuses[rank].state in ENDED)
        ]
        if over:
            return
        pause = LOOK


def follow(
    record: JobRecord,
    ranks: Sequence[int],
    file: TextIO | None,
    name: str,
    tick: Callable[[bool], None],
) -> None:
    """Print what ranks print until they have ended; see `Job.follow`.

    Args:
        record: The job.
        ranks: Which.
        file: Where to; standard output if None, and then a notebook gets an excerpt.
        name: How the reader gets at the job, for the note about what is left out.
        tick: What to do again and again meanwhile; told whether nothing was printed so far.
    """
    excerpt = Excerpt(len(ranks)) if file is None and notebook_shell() is not None else None
    names = {rank: label(record.ranks, rank) for rank in ranks}
    restarts = 0
    silent = True
    for new in printed(record, ranks):
        lines = []
        while restarts < len(record.restart_reasons):
            restarts += 1
            lines.append(f"[distlab] {record.describe_restart(restarts)}")
        for rank, line in new:
            # As a terminal shows it in the end: a progress bar goes back to its beginning.
            line = line.rstrip("\r").rpartition("\r")[2]
            if excerpt is not None:
                line = cut(line)
                if not excerpt.shows(rank, line):
                    continue
            lines.append(f"[{names[rank]}] {line}")
        _print(lines, file)
        silent = silent and not lines
        tick(silent)
    if excerpt is not None:
        _print(_rest(names, excerpt, name), file)


def _rest(names: dict[int, str], excerpt: "Excerpt", name: str) -> list[str]:
    """The last lines of ranks, after a note of how many are left out."""
    lines = []
    complete = True
    for rank, who in names.items():
        left_out, last = excerpt.rest(rank)
        if left_out:
            complete = False
            lines.append(
                f"[distlab] {left_out:,} line{'s' * (left_out > 1)} of {who} left out here"
            )
        lines += [f"[{who}] {line}" for line in last]
    if not complete:
        lines.append(f"[distlab] all lines of a rank are in {name}.log(rank)")
    return lines


def _print(lines: list[str], file: TextIO | None) -> None:
    """Print all at once: Jupyter drops messages that come one by one too fast."""
    if lines:
        file = sys.stdout if file is None else file
        file.write("".join(f"{line}\n" for line in lines))
        file.flush()


class Excerpt:
    """Chooses which lines of ranks that print a lot are shown: the first of each, and the last.

    Args:
        ranks: How many ranks print.

    Example:
        >>> excerpt = Excerpt(ranks=1)
        >>> sum(excerpt.shows(0, str(n)) for n in range(1000))
        100
        >>> left_out, last = excerpt.rest(0)
        >>> left_out, len(last), last[-1]
        (800, 100, '999')
    """

    def __init__(self, ranks: int) -> None:
        self._each = min(MOST, max(10, LINES // 2 // ranks))
        self._counts = Counter[int]()
        self._last = defaultdict[int, deque[str]](lambda: deque(maxlen=self._each))

    def shows(self, rank: int, line: str) -> bool:
        """Whether a rank's next line is to be shown now; if not it counts, and may be later."""
        self._counts[rank] += 1
        if self._counts[rank] <= self._each:
            return True
        self._last[rank].append(line)
        return False

    def rest(self, rank: int) -> tuple[int, list[str]]:
        """How many lines of a rank are left out, and those to be shown after them."""
        last = self._last[rank]
        return max(0, self._counts[rank] - self._each) - len(last), list(last)


def cut(line: str) -> str:
    """As much of a line as a page can show."""
    return line if len(line) <= WIDTH else f"{line[:WIDTH]}… ({len(line):,} characters)"
