"""Logical time: what each rank computes, sends and receives when, and what it waited for.

A rank has three lanes that work at the same time: it computes, sends and receives, in each lane one
thing after the other in the order of its calls. All times follow from that order alone, so they
are the same on any machine and under any load.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from distlab.puzzles.messages import LaneSpan, SolverLine, Step

FLOPS = 4096
"""Floating-point operations in a tick."""
BYTES = 512
"""Bytes that a link carries in a tick."""
LATENCY = 1.0
"""Ticks that each message takes besides its bytes."""


@dataclass(eq=False)
class ClockEvent:
    """Something that took time, and what it began after."""

    rank: int
    kind: str
    what: str
    line: int
    start: float
    end: float
    before: "ClockEvent | None"


@dataclass(frozen=True)
class Moment:
    """A time, and the event that ended then."""

    time: float = 0.0
    event: ClockEvent | None = None


def latest(*moments: Moment) -> Moment:
    """The last of some moments; of those at the same time the first given."""
    return max(moments, key=lambda moment: moment.time)


@dataclass(eq=False)
class Transfer:
    """Bytes on their way: a message of two ranks, or a collective of several.

    Attributes:
        what: The call in words.
        end: When the bytes were there; None as long as that is not known.
    """

    what: str
    end: Moment | None = None


@dataclass(eq=False)
class TimedMessage(Transfer):
    """Bytes from one rank to another."""

    source: int = 0
    target: int = 0
    size: int = 0
    sent_from: SolverLine | None = None
    received_at: SolverLine | None = None
    handed: Moment = field(default_factory=Moment)
    """When the sender called."""
    left: Moment | None = None
    """When the first byte left."""
    posted: Moment | None = None
    """When the receiver called."""


@dataclass(eq=False)
class Joint(Transfer):
    """A collective: when all members have come it takes a time in both lanes of each.

    Attributes:
        members: The ranks of the group.
        places: Where each member that has come called.
        called: When.
        duration: In ticks; None as long as not all have come, or if they want different things.
    """

    members: tuple[int, ...] = ()
    places: dict[int, SolverLine] = field(default_factory=dict)
    called: dict[int, Moment] = field(default_factory=dict)
    duration: float | None = None


class RankClock:
    """The lanes of one rank."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.now = Moment()
        self.sending = Moment()
        self.receiving = Moment()
        self.out: deque[Transfer] = deque()
        self.incoming: deque[Transfer] = deque()
        self.spans: list[LaneSpan] = []

    def compute(self, what: str, flops: float, ready: Moment, place: SolverLine) -> Moment:
        """Compute once the operands are there; wait until then."""
        self.wait(ready, place)
        start = self.now.time
        end = start + flops / FLOPS
        if end > start:
            self.now = Moment(
                end, ClockEvent(self.rank, "compute", what, place.line, start, end, self.now.event)
            )
            self.spans.append(LaneSpan("compute", start, end, what, place.line))
        return self.now

    def wait(self, ready: Moment, place: SolverLine) -> None:
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
        self._arrived: list[Transfer] = []

    def send(self, message: TimedMessage) -> None:
        """Take a message that its sender has called for."""
        self.ranks[message.source].out.append(message)
        self._settle()

    def receive(self, message: TimedMessage) -> None:
        """Take a message that its receiver has called for, sent already or not."""
        self.ranks[message.target].incoming.append(message)
        self._settle()

    def join(self, joint: Joint, rank: int) -> None:
        """Let one more member of a collective come."""
        self.ranks[rank].out.append(joint)
        self.ranks[rank].incoming.append(joint)
        self._settle()

    def arrived(self) -> list[Transfer]:
        """What has come to its end since this was last asked."""
        arrived, self._arrived = self._arrived, []
        return arrived

    def _settle(self) -> None:
        """Give times to all whose turn has come, until there is nothing left to give."""
        again = True
        while again:
            again = False
            for clock in self.ranks:
                while clock.out and self._leave(clock, clock.out[0]):
                    again = True
                while clock.incoming and self._arrive(clock, clock.incoming[0]):
                    again = True

    def _leave(self, clock: RankClock, transfer: Transfer) -> bool:
        if not isinstance(transfer, TimedMessage):
            return False  # a collective leaves both queues at once
        transfer.left = latest(transfer.handed, clock.sending)
        start = transfer.left.time
        end = start + transfer.size / BYTES
        line = transfer.sent_from.line if transfer.sent_from else 0
        what = f"to rank {transfer.target}"
        clock.sending = Moment(
            end, ClockEvent(clock.rank, "send", what, line, start, end, transfer.left.event)
        )
        clock.spans.append(LaneSpan("send", start, end, what, line))
        clock.out.popleft()
        return True

    def _arrive(self, clock: RankClock, transfer: Transfer) -> bool:
        if isinstance(transfer, Joint):
            return self._meet(transfer)
        assert isinstance(transfer, TimedMessage)
        if transfer.left is None or transfer.posted is None:
            return False
        there = Moment(transfer.left.time + LATENCY, transfer.left.event)
        first = latest(there, transfer.posted, clock.receiving)
        end = first.time + transfer.size / BYTES
        since = transfer.left.time if first is there else first.time
        line = transfer.received_at.line if transfer.received_at else 0
        event = ClockEvent(clock.rank, "message", transfer.what, line, since, end, first.event)
        transfer.end = clock.receiving = Moment(end, event)
        self._arrived.append(transfer)
        clock.spans.append(
            LaneSpan("receive", first.time, end, f"from rank {transfer.source}", line)
        )
        clock.incoming.popleft()
        self.last = latest(self.last, transfer.end)
        return True

    def _meet(self, joint: Joint) -> bool:
        if joint.duration is None:
            return False
        clocks = [self.ranks[rank] for rank in joint.members]
        for clock in clocks:
            for queue in (clock.out, clock.incoming):
                if not queue or queue[0] is not joint:
                    return False
        lanes = [lane for clock in clocks for lane in (clock.sending, clock.receiving)]
        start = latest(*joint.called.values(), *lanes)
        end = start.time + joint.duration
        slowest = start.event.rank if start.event else joint.members[0]
        rank = slowest if slowest in joint.places else joint.members[0]
        line = joint.places[rank].line
        joint.end = Moment(
            end, ClockEvent(rank, "collective", joint.what, line, start.time, end, start.event)
        )
        self._arrived.append(joint)
        for clock in clocks:
            clock.out.popleft()
            clock.incoming.popleft()
            clock.sending = clock.receiving = joint.end
            if joint.duration:
                line = joint.places[clock.rank].line
                for lane in ("send", "receive"):
                    clock.spans.append(LaneSpan(lane, start.time, end, joint.what, line))
        self.last = latest(self.last, joint.end)
        return True

    def ahead(self, transfer: Transfer, rank: int) -> tuple[int, str, Transfer] | None:
        """What a transfer waits for in a lane, since a lane does one thing after the other.

        Args:
            transfer: One that has no end yet.
            rank: Whose lanes come first, if several have something else first.

        Returns:
            The rank whose lane that is, which lane, and what is first there; None if the transfer
            is the first in all its lanes.
        """
        for clock in sorted(self.ranks, key=lambda one: one.rank != rank):
            for lane, queue in (("receives", clock.incoming), ("sends", clock.out)):
                if transfer in queue and queue[0] is not transfer:
                    return clock.rank, lane, queue[0]
        return None

    def path(self) -> tuple[float, list[Step]]:
        """When the last rank comes to its end, and the chain of events that leads there."""
        end = latest(self.last, *(clock.now for clock in self.ranks))
        steps = []
        event = end.event
        while event is not None:
            steps.append(
                Step(event.rank, event.kind, event.what, event.line, event.start, event.end)
            )
            event = event.before
        return end.time, steps[::-1]


def duration(kind: str, size: int, ranks: int, flows: Sequence[tuple[int, int]] = ()) -> float:
    """What a collective takes, as the ring that carries it out.

    Args:
        kind: Which collective.
        size: The bytes of the full tensor.
        ranks: How many take part.
        flows: For all-to-all what each member sends to others and receives from others, in bytes.

    Returns:
        Ticks.
    """
    if kind == "all_to_all":
        return (ranks - 1) * LATENCY + max(max(flow) for flow in flows) / BYTES
    rounds = (2 if kind == "all_reduce" else 1) * (ranks - 1)
    return rounds * (LATENCY + size / ranks / BYTES)
