"""The account of each rank in logical time: what it did when, and what it held.

A rank has three lanes that work at the same time: it computes, sends and receives, in each lane one
thing after the other in the order of its calls. All times follow from that order alone, so they
are the same on any machine and under any load.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Optional

import numpy as np

from distlab.puzzles.lines import Place
from distlab.puzzles.operations import BYTES_PER_NUMBER, Array

FLOPS = 4096
"""Floating-point operations in a tick."""
BYTES = 512
"""Bytes that a link carries in a tick."""
LATENCY = 1.0
"""Ticks that each message takes besides its bytes."""


def amount(value: float) -> str:
    """A measure in words: whole, unless it is a time with a fraction."""
    return f"{value:,.2f}".rstrip("0").rstrip(".")


def shares(amounts: Mapping[str, float], word: str, most: int) -> str:
    """What makes up a measure, the largest first, after so many the rest."""
    largest = sorted(amounts.items(), key=lambda item: -item[1])
    words = [f"{amount(value)} {word} {what}" for what, value in largest[:most] if value]
    if rest := sum(value for _, value in largest[most:]):
        words.append(f"{amount(rest)} {word} others")
    return ", ".join(words)


@dataclass(frozen=True, eq=False)
class ClockEvent:
    """Something that took time, and what it began right after.

    Attributes:
        what: What took the time, in words.
        line: Where the solver called for it.
        end: When it was over, in ticks.
        before: What it began after: it started when that was over.
    """

    what: str = ""
    line: int = 0
    end: float = 0.0
    before: Optional["ClockEvent"] = None

    @property
    def start(self) -> float:
        """When it began, in ticks."""
        return self.before.end if self.before else 0.0

    def then(self, ticks: float, what: str, line: int) -> "ClockEvent":
        """What begins when this is over."""
        return ClockEvent(what, line, self.end + ticks, self)

    def chain(self) -> list["ClockEvent"]:
        """What led here, in order."""
        events = [self]
        while (before := events[-1].before) is not None:
            events.append(before)
        return events[::-1]


def latest(*events: ClockEvent) -> ClockEvent:
    """The last of some events to end; of those that end at the same time the first given."""
    return max(events, key=lambda event: event.end)


class RankClock:
    """The lanes of one rank.

    Attributes:
        last: By lane, the event after which it is free.
        spans: What the lanes did, in pairs of a lane and an event; `wait` for what could not
            compute.
    """

    def __init__(self) -> None:
        self.last = dict.fromkeys(("compute", "send", "receive"), ClockEvent())
        self.spans: list[tuple[str, ClockEvent]] = []

    @property
    def now(self) -> ClockEvent:
        """What the rank has computed last, or waited for: its next call begins after that."""
        return self.last["compute"]

    def occupy(self, event: ClockEvent, *lanes: str) -> ClockEvent:
        """Let some lanes be occupied by an event."""
        for lane in lanes:
            self.last[lane] = event
            if event.end > event.start:
                self.spans.append((lane, event))
        return event

    def wait(self, ready: ClockEvent) -> None:
        """Compute nothing until an event is over."""
        if ready.end > self.now.end:
            self.spans.append(("wait", ClockEvent(end=ready.end, before=self.now)))
            self.last["compute"] = ready


@dataclass(eq=False)
class HeldTensor:
    """A tensor of one rank, also when the rank has let go of it.

    Attributes:
        rank: Whose it is.
        what: Where it comes from, in a word or two.
        since: When its memory was taken.
        place: Where the solver called for it; None for what the puzzle gives.
        values: Its numbers; none as long as they are on their way.
        ready: The event that has brought them.
        shape: None as long as it is not known.
        until: When the rank let go of it; None if it never did.
        gone: Why it is not there any more, in words.
        needed: Bytes leave it, or come into it, until then: it can't be used anew before.
    """

    rank: int
    what: str
    since: float
    place: Place | None = None
    values: Array = field(default_factory=lambda: np.empty(0))
    ready: ClockEvent | None = None
    shape: tuple[int, ...] | None = None
    until: float | None = None
    gone: str = ""
    needed: float = 0.0

    @property
    def size(self) -> int:
        """Its bytes; 0 as long as its shape is not known."""
        return 0 if self.shape is None else BYTES_PER_NUMBER * math.prod(self.shape)

    @property
    def end(self) -> float:
        """When its bytes are free again; infinite for never."""
        return math.inf if self.until is None else max(self.until, self.needed)

    def fill(self, values: Array, ready: ClockEvent) -> None:
        """Its numbers have come."""
        self.values, self.ready, self.shape = values, ready, values.shape

    def let_go(self, now: float, why: str) -> None:
        """The rank lets go of it, for a reason that is told if it uses it again."""
        if self.until is None:
            self.until, self.gone = now, why


def curve(tensors: Sequence[HeldTensor]) -> list[tuple[float, int]]:
    """Moments, and the bytes that were held from each on."""
    changes: Counter[float] = Counter()
    for held in tensors:
        if held.end > held.since:
            changes[held.since] += held.size
            changes[held.end] -= held.size
    total, steps = 0, []
    for time in sorted(changes):
        if changes[time] and time < math.inf:
            total += changes[time]
            steps.append((time, total))
    return steps or [(0.0, 0)]


def held_at(tensors: Sequence[HeldTensor], time: float) -> str:
    """What was held at a time, the largest first: `16,384 of given weights, ...`."""
    sizes: Counter[str] = Counter()
    for held in tensors:
        if held.since <= time < held.end:
            where = f" ({held.place.short})" if held.place else ""
            sizes[f"{held.what}{where}"] += held.size
    return shares(sizes, "of", 4)
