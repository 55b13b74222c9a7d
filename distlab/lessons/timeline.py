"""When a rank did what: spans of time that one process writes down, for `plots.timeline`.

Nothing here imports Matplotlib or a framework: it runs in ranks. The times are those of
`time.monotonic()`, which since Python 3.10 is one clock for all processes of a machine, on Linux
(`CLOCK_MONOTONIC`), macOS (`mach_absolute_time`) and Windows, so spans of different ranks can be
compared. Another machine's clock has another zero. See the note "Changed in version 3.10" at
https://docs.python.org/3/library/time.html#time.monotonic
"""

import contextlib
import time
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["Span", "Timeline"]


class Span(NamedTuple):
    """Something that took a while.

    Attributes:
        kind: What was done: `"compute"`, `"wait"`, ...
        start: When it began, in seconds of `time.monotonic()`.
        end: When it was over.
        label: What to write into its bar, such as the number of a micro-batch.
    """

    kind: str
    start: float
    end: float
    label: str = ""


class Timeline:
    """What one rank did, and when; return it from the rank and give it to `plots.timeline`.

    It saves a few lines: `begun = time.monotonic()` before and `spans.append(("compute", begun,
    time.monotonic()))` after each step do the same, and `plots.timeline` takes that list as well.

    Attributes:
        spans: What took a while, in the order in which it was over.

    Example:
        >>> line = Timeline()
        >>> with line.span("compute"):
        ...     total = sum(range(1000))
        >>> line.spans[0].kind, line.spans[0].start <= line.spans[0].end
        ('compute', True)
    """

    def __init__(self) -> None:
        self.spans: list[Span] = []

    @contextlib.contextmanager
    def span(self, kind: str) -> Iterator[None]:
        """Record how long the block of a `with` statement takes, also if it raises.

        Args:
            kind: What the block does. `plots.timeline` has colours for `compute`, `forward`,
                `backward`, `update`, `communicate`, `send`, `receive`, `wait`, `idle`, `save`,
                `restore` and `start`; any other word gets a colour that is free.

        Yields:
            Nothing.
        """
        start = time.monotonic()
        try:
            yield
        finally:
            self.spans.append(Span(kind, start, time.monotonic()))


def __dir__() -> list[str]:
    return list(__all__)
