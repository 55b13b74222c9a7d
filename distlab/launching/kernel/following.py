"""What the ranks of a job print, as it comes: a line at a time with the rank in front."""

import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence

from distlab.errors import notebook_shell
from distlab.launching.kernel.logs import Tail
from distlab.launching.kernel.record import JobRecord
from distlab.launching.kernel.status import ENDED, label

LOOK = 0.05
"""Seconds between two looks at the logs, which are plain files. Whatever the ranks have started
writes there, code in C and programs of their own too, and none of that could tell us of it."""
MOST, LEAST = 100, 10
"""How many first and how many last lines of all ranks together, and of each, a notebook shows: a
page with a hundred thousand is slow, and Jupyter drops messages that come too fast. A rank that
prints a line a second after its first ones is still shown as it comes."""
WIDTH = 4000
"""How many characters of a line."""


def printed(
    record: JobRecord, ranks: Sequence[int], include_framework_logs: bool = False
) -> Iterator[list[tuple[int, str]]]:
    """Each rank's new lines, perhaps none, every `LOOK` seconds until all have ended."""
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


def follow(record: JobRecord, ranks: Sequence[int], tick: Callable[..., None]) -> None:
    """Print what ranks print until they have ended; see `Job.follow`.

    `tick` is called with whether something has been printed since the last call.
    """
    most = width = sys.maxsize
    if notebook_shell() is not None:
        most, width = max(MOST // len(ranks), LEAST), WIDTH
    names = {rank: label(record.ranks, rank) for rank in ranks}
    shown, left_out = Counter[int](), Counter[int]()
    last: dict[int, deque[str]] = {rank: deque(maxlen=most) for rank in ranks}
    begun: dict[int, float] = {}
    record.holds_back = False
    restarts = 0
    try:
        for new in printed(record, ranks):
            lines = []
            for reason in record.restart_reasons[restarts:]:
                restarts += 1
                of = f"{restarts} of at most {record.max_restarts}"
                lines.append(f"[distlab] restart {of}: {reason}")
            for rank, line in new:
                # As a terminal shows it in the end: a progress bar goes back to its beginning.
                text = line.rstrip("\r").rpartition("\r")[2]
                if len(text) > width:
                    text = f"{text[:width]}… ({len(text):,} characters)"
                text = f"[{names[rank]}] {text}"
                seconds = time.monotonic() - begun.setdefault(rank, time.monotonic())
                if not last[rank] and shown[rank] < most + int(seconds):
                    shown[rank] += 1
                    lines.append(text)
                else:
                    record.holds_back = True
                    left_out[rank] += len(last[rank]) == most
                    last[rank].append(text)
            if lines:
                print(*lines, sep="\n", flush=True)
            tick(printed=bool(lines))
    finally:  # an interrupt, too, wants to know what came last
        lines = []
        for rank in ranks:
            if count := left_out[rank]:
                what = f"{count:,} line{'s' * (count > 1)} left out here"
                lines.append(f"[distlab] {what}: with job = launch(...), job.log({rank}) has all")
            lines += last[rank]
        if lines:  # at once: Jupyter drops messages that come one by one too fast
            print(*lines, sep="\n", flush=True)
