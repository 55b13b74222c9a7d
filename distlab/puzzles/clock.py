"""Logical time: what each rank computes, sends and receives when, and what it waited for.

A rank has three lanes that work at the same time: it computes, sends and receives, in each lane one
thing after the other in the order of its calls. All times follow from that order alone, so they
are the same on any machine and under any load.
"""

from dataclasses import dataclass
from typing import NamedTuple, Optional

FLOPS = 4096
"""Floating-point operations in a tick."""
BYTES = 512
"""Bytes that a link carries in a tick."""
LATENCY = 1.0
"""Ticks that each message takes besides its bytes."""


@dataclass(frozen=True, eq=False)
class Event:
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
    before: Optional["Event"] = None

    @property
    def start(self) -> float:
        """When it began, in ticks."""
        return self.before.end if self.before else 0.0

    def then(self, ticks: float, what: str, line: int) -> "Event":
        """What begins when this is over."""
        return Event(what, line, self.end + ticks, self)

    def chain(self) -> list["Event"]:
        """What led here, in order."""
        events = [self]
        while (before := events[-1].before) is not None:
            events.append(before)
        return events[::-1]


def latest(*events: Event) -> Event:
    """The last of some events to end; of those that end at the same time the first given."""
    return max(events, key=lambda event: event.end)


class Span(NamedTuple):
    """What a lane of a rank did for a while, in ticks; `wait` when it could not compute."""

    lane: str
    start: float
    end: float
    what: str = ""


class RankClock:
    """The lanes of one rank.

    Attributes:
        last: By lane, the event after which it is free.
        spans: What the lanes did.
    """

    def __init__(self) -> None:
        self.last = dict.fromkeys(("compute", "send", "receive"), Event())
        self.spans: list[Span] = []

    @property
    def now(self) -> Event:
        """What the rank has computed last, or waited for: its next call begins after that."""
        return self.last["compute"]

    def occupy(self, event: Event, *lanes: str) -> Event:
        """Let some lanes be occupied by an event."""
        for lane in lanes:
            self.last[lane] = event
            if event.end > event.start:
                self.spans.append(Span(lane, event.start, event.end, event.what))
        return event

    def wait(self, ready: Event) -> None:
        """Compute nothing until an event is over."""
        if ready.end > self.now.end:
            self.spans.append(Span("wait", self.now.end, ready.end))
            self.last["compute"] = ready
