"""Why no rank can go on: a deadlock, a rank that has left, what nobody sends or receives."""

from collections.abc import Sequence

from distlab.puzzles.clock import TimedMessage
from distlab.puzzles.exchange import Exchange
from distlab.puzzles.mail import Meeting, differences
from distlab.puzzles.seats import Seat
from distlab.puzzles.tensors import Tensors


def stuck(exchange: Exchange, tensors: Tensors, seats: Sequence[Seat]) -> str:
    """What is left when no rank can go on; empty if all have returned and nothing is left.

    Args:
        exchange: What is still on its way.
        tensors: Of all ranks.
        seats: The ranks.
    """
    for meeting in exchange.open_meetings:
        if words := differences(meeting):
            return words
    waiting = [rank for rank, seat in enumerate(seats) if seat.state == "waiting"]
    if waiting:
        lines = [_waits(exchange, tensors, rank, seat) for rank, seat in enumerate(seats)]
        if len(waiting) == len(seats):
            head = "Deadlock: every rank waits for another."
        else:
            head = "No rank can go on."
        return "\n".join([head, *lines])
    for mail in exchange.open_mail:
        message = mail.message
        if mail.given is None:
            return (
                f"Rank {message.target}, {message.received_at}\nIt receives from rank "
                f"{message.source}, which sends it nothing more: all ranks have returned."
            )
        if mail.made is None:
            return (
                f"Rank {message.source}, {message.sent_from}\nIt sends to rank "
                f"{message.target}, which never receives it: all ranks have returned."
            )
    for meeting in exchange.open_meetings:
        return f"No rank can go on.\n{_missing(meeting)}"
    return ""


def _waits(exchange: Exchange, tensors: Tensors, rank: int, seat: Seat) -> str:
    if seat.state == "returned":
        return f"Rank {rank} has returned."
    call = seat.call
    assert call is not None
    coming = next(
        (tensor for number in call.tensors if (tensor := tensors.get(rank, number)).ready is None),
        None,
    )
    assert coming is not None
    origin = f" ({coming.place.short})" if coming.place else ""
    what = f"{call.name or call.kind} waits for {coming.what}{origin}"
    if isinstance(coming.coming, TimedMessage):
        message = coming.coming
        if message.sent_from is None:
            what += ", which has not sent it"
        else:
            what += ", which is behind what is not there yet"
    else:
        meeting = next(m for m in exchange.open_meetings if m.joint is coming.coming)
        what += f". {_missing(meeting)}"
    return f"Rank {rank}, {call.place}\n    {what}"


def _missing(meeting: Meeting) -> str:
    joint = meeting.joint
    missing = [str(rank) for rank in joint.members if rank not in joint.called]
    if not missing:
        return f"Its {joint.what} is behind what is not there yet"
    called = ", ".join(f"rank {r} in {p.short}" for r, p in sorted(joint.places.items()))
    return f"{joint.what} was called by {called}, but not by rank {', '.join(missing)}."
