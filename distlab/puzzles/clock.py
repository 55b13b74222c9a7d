"""Logical time: what each rank computes, sends and receives when, and what it waited for.

A rank has three lanes that work at the same time: it computes, sends and receives, in each lane one
thing after the other in the order of its calls. All times follow from that order alone, so they
are the same on any machine and under any load.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from distlab.puzzles.memory import ClockEvent, HeldTensor, Moment, Place, latest

FLOPS = 4096
"""Floating-point operations in a tick."""
BYTES = 512
"""Bytes that a link carries in a tick."""
LATENCY = 1.0
"""Ticks that each message takes besides its bytes."""


class LaneSpan(NamedTuple):
    """What a lane of a rank did for a while, in ticks."""

    lane: str
    start: float
    end: float
    what: str
    line: int


@dataclass(eq=False)
class Transfer:
    """Bytes on their way: a message from one rank to another, or a collective of a group.

    Attributes:
        members: The ranks of the group; of a message who sends, and who receives.
        kinds: What each member that has come has called.
        places: Where.
        called: When.
        given: What it gave.
        made: What it gets.
        left: When the first byte of a message left.
        duration: Of a collective, once all have come and want the same.
        end: When it was over; None as long as that is not known.
    """

    members: tuple[int, ...]
    kinds: dict[int, str] = field(default_factory=dict)
    places: dict[int, Place] = field(default_factory=dict)
    called: dict[int, Moment] = field(default_factory=dict)
    given: dict[int, list[HeldTensor]] = field(default_factory=dict)
    made: dict[int, list[HeldTensor]] = field(default_factory=dict)
    left: Moment | None = None
    duration: float | None = None
    end: Moment | None = None

    @property
    def kind(self) -> str:
        """What was called, by the first that came: `send` or `receive` of a message."""
        return next(iter(self.kinds.values()))

    @property
    def is_message(self) -> bool:
        """Whether it is a message, no collective."""
        return self.kind in ("send", "receive")


class RankClock:
    """The lanes of one rank."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.now = self.sending = self.receiving = Moment()
        self.out: deque[Transfer] = deque()
        self.incoming: deque[Transfer] = deque()
        self.spans: list[LaneSpan] = []

    def compute(self, what: str, flops: float, place: Place) -> Moment:
        """Compute, from now on."""
        start = self.now.time
        end = start + flops / FLOPS
        if end > start:
            event = ClockEvent(self.rank, "compute", what, place.line, start, end, self.now.event)
            self.now = Moment(end, event)
            self.spans.append(LaneSpan("compute", start, end, what, place.line))
        return self.now

    def wait(self, ready: Moment, place: Place) -> None:
        """Do nothing until a moment."""
        if ready.time > self.now.time:
            what = ready.event.what if ready.event else ""
            self.spans.append(LaneSpan("wait", self.now.time, ready.time, what, place.line))
            self.now = ready


class Clocks:
    """The lanes of all ranks, and what is on its way between them."""

    def __init__(self, size: int) -> None:
        self.ranks = [RankClock(rank) for rank in range(size)]
        self.last = Moment()

    def settle(self) -> Iterator[Transfer]:
        """Give times to all whose turn has come; yields what has come to its end."""
        again = True
        while again:
            again = False
            for clock in self.ranks:
                while clock.out and clock.out[0].is_message:
                    self._leave(clock, clock.out.popleft())
                    again = True
                while clock.incoming:
                    transfer = clock.incoming[0]
                    if not (self._arrive if transfer.is_message else self._meet)(transfer):
                        break
                    again = True
                    assert transfer.end is not None
                    self.last = latest(self.last, transfer.end)
                    yield transfer

    def _leave(self, clock: RankClock, message: Transfer) -> None:
        message.left = latest(message.called[clock.rank], clock.sending)
        start, what = message.left.time, f"to rank {message.members[1]}"
        end = start + message.given[clock.rank][0].size / BYTES
        line = message.places[clock.rank].line
        event = ClockEvent(clock.rank, "send", what, line, start, end, message.left.event)
        clock.sending = Moment(end, event)
        clock.spans.append(LaneSpan("send", start, end, what, line))

    def _arrive(self, message: Transfer) -> bool:
        if message.left is None:
            return False
        source, target = message.members
        clock, line = self.ranks[target], message.places[target].line
        there = Moment(message.left.time + LATENCY, message.left.event)
        first = latest(there, message.called[target], clock.receiving)
        end = first.time + message.given[source][0].size / BYTES
        since = message.left.time if first is there else first.time
        what = f"message from rank {source} to rank {target}"
        event = ClockEvent(target, "message", what, line, since, end, first.event)
        message.end = clock.receiving = Moment(end, event)
        clock.spans.append(LaneSpan("receive", first.time, end, f"from rank {source}", line))
        clock.incoming.popleft()
        return True

    def _meet(self, joint: Transfer) -> bool:
        clocks = [self.ranks[rank] for rank in joint.members]
        queues = [queue for clock in clocks for queue in (clock.out, clock.incoming)]
        if joint.duration is None or not all(queue and queue[0] is joint for queue in queues):
            return False
        lanes = [lane for clock in clocks for lane in (clock.sending, clock.receiving)]
        start = latest(*joint.called.values(), *lanes)
        end = start.time + joint.duration
        slowest = start.event.rank if start.event else joint.members[0]
        rank = slowest if slowest in joint.places else joint.members[0]
        line = joint.places[rank].line
        event = ClockEvent(rank, "collective", joint.kind, line, start.time, end, start.event)
        joint.end = Moment(end, event)
        for clock in clocks:
            clock.out.popleft()
            clock.incoming.popleft()
            clock.sending = clock.receiving = joint.end
            line = joint.places[clock.rank].line
            for lane in ("send", "receive") if joint.duration else ():
                clock.spans.append(LaneSpan(lane, start.time, end, joint.kind, line))
        return True

    def ahead(self, transfer: Transfer, rank: int) -> tuple[int, str, Transfer] | None:
        """What a transfer waits for in a lane, since a lane does one thing after the other.

        Of several lanes those of a rank come first. Gives the rank whose lane it is, what it does,
        and what is first there; None if the transfer is the first in all its lanes.
        """
        for clock in sorted(self.ranks, key=lambda one: one.rank != rank):
            for lane, queue in (("receives", clock.incoming), ("sends", clock.out)):
                if transfer in queue and queue[0] is not transfer:
                    return clock.rank, lane, queue[0]
        return None

    def path(self) -> tuple[float, list[ClockEvent]]:
        """When the last rank comes to its end, and the chain of events that leads there."""
        end = latest(self.last, *(clock.now for clock in self.ranks))
        steps, event = [], end.event
        while event is not None:
            steps.append(event)
            event = event.before
        return end.time, steps[::-1]


def duration(kind: str, size: int, ranks: int, flows: Sequence[int] = ()) -> float:
    """What a collective takes, in ticks, as the ring that carries it out.

    Args:
        kind: Which collective.
        size: The bytes of the full tensor.
        ranks: How many take part.
        flows: For all-to-all what each member sends to others, and receives from them, in bytes.
    """
    if kind == "all_to_all":
        return (ranks - 1) * LATENCY + max(flows) / BYTES
    rounds = (2 if kind == "all_reduce" else 1) * (ranks - 1)
    return rounds * (LATENCY + size / ranks / BYTES)
