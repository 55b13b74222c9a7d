"""Why no rank can go on: a deadlock, a rank that has left, what nobody sends or receives."""

from collections.abc import Sequence

from distlab.puzzles.clock import Clocks, Joint, TimedMessage, Transfer
from distlab.puzzles.exchange import Exchange
from distlab.puzzles.mail import Mail, Meeting, differences
from distlab.puzzles.seats import Seat
from distlab.puzzles.tensors import HeldTensor, Tensors


def stuck(exchange: Exchange, clocks: Clocks, tensors: Tensors, seats: Sequence[Seat]) -> str:
    """What is left when no rank can go on; empty if all have returned and nothing is left.

    Args:
        exchange: What is still on its way.
        clocks: With the lanes on which it is.
        tensors: Of all ranks.
        seats: The ranks.
    """
    for meeting in _in_order(exchange):
        if words := differences(meeting):
            return words
    if words := _other_group(exchange, tensors, seats):
        return words
    waiting = [rank for rank, seat in enumerate(seats) if seat.state == "waiting"]
    if waiting:
        lines = [_waits(clocks, tensors, rank, seat) for rank, seat in enumerate(seats)]
        if len(waiting) == len(seats):
            head = "Deadlock: every rank waits for another."
        else:
            head = "No rank can go on."
        return "\n".join([head, *lines])
    # Of what nobody receives or sends the first of the lowest rank, whichever the keeper met first.
    for mail in sorted(exchange.open_mail.values(), key=_whose):
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
    joints = [meeting.joint for meeting in _in_order(exchange)]
    for joint in sorted(joints, key=lambda one: not _missing(one)):
        why = (
            _missing(joint)
            or f"{joint.what} cannot begin.{_behind(clocks, joint, joint.members[0])}"
        )
        return f"All ranks have returned, but a collective is not over.\n{why}"
    return ""


def _whose(mail: Mail) -> int:
    return mail.message.target if mail.given is None else mail.message.source


def _in_order(exchange: Exchange) -> list[Meeting]:
    """Collectives that are not over, in an order that real time has no part in."""
    return sorted(exchange.open_meetings.values(), key=lambda one: one.joint.members)


def _other_group(exchange: Exchange, tensors: Tensors, seats: Sequence[Seat]) -> str:
    """Two ranks that call collectives over different groups; empty if there are none.

    One has called a collective over a group with the other. The last collective of the other is
    over a different group, and it waits for it or has returned.
    """
    for meeting in _in_order(exchange):
        joint = meeting.joint
        for rank in joint.members:
            last = exchange.latest.get(rank)
            if rank in joint.called or last is None or last.joint.members == joint.members:
                continue
            at = _coming(tensors, rank, seats[rank])
            if seats[rank].state == "returned" or (at is not None and at.coming is last.joint):
                first = min(joint.called)
                lines = [
                    f"Rank {one}, {each.joint.places[one]}\n"
                    f"    {_over(each.joint, each.kinds[one], len(seats))}"
                    for one, each in ((first, meeting), (rank, last))
                ]
                if seats[rank].state == "returned":
                    lines[1] += ", and no collective after it"
                return "\n".join(["Collectives over different groups.", *lines])
    return ""


def _over(joint: Joint, kind: str, size: int) -> str:
    """A collective with its group."""
    if len(joint.members) == size:
        return f"{kind} over all ranks"
    few = len(joint.members) == 1
    return f"{kind} over rank{'s' * (not few)} {', '.join(map(str, joint.members))}"


def _coming(tensors: Tensors, rank: int, seat: Seat) -> HeldTensor | None:
    """The tensor that a rank waits for, in a call of its own."""
    if seat.state != "waiting" or seat.call is None:
        return None
    return next(
        (t for number in seat.call.tensors if (t := tensors.get(rank, number)).ready is None), None
    )


def _waits(clocks: Clocks, tensors: Tensors, rank: int, seat: Seat) -> str:
    if seat.state == "returned":
        return f"Rank {rank} has returned."
    call = seat.call
    assert call is not None
    coming = _coming(tensors, rank, seat)
    assert coming is not None
    origin = f" ({coming.place.short})" if coming.place else ""
    what = f"{call.name or call.kind} waits for {coming.what}{origin}"
    if isinstance(coming.coming, TimedMessage):
        message = coming.coming
        if message.sent_from is None:
            what += ", which has not sent it"
        else:
            what += f".{_behind(clocks, message, rank)}"
    else:
        joint = coming.coming
        assert isinstance(joint, Joint)
        words = _missing(joint)
        what += f". {words}" if words else f".{_behind(clocks, joint, rank)}"
    return f"Rank {rank}, {call.place}\n    {what}"


def _behind(clocks: Clocks, transfer: Transfer, rank: int) -> str:
    """What is first in the lanes of a transfer, what is first in the lanes of that, and so on."""
    told, seen = "", [transfer]
    while found := clocks.ahead(seen[-1], rank):
        rank, lane, first = found
        told += (
            f" Rank {rank} {lane} in the order of its calls: {_call(first, rank, lane)} is first"
        )
        if first in seen:
            return f"{told}."
        seen.append(first)
        if isinstance(first, TimedMessage) and first.sent_from is None:
            return f"{told}, and rank {first.source} has not sent it."
        told += "."
    last = seen[-1]
    return f"{told} {_missing(last)}".rstrip() if isinstance(last, Joint) else told


def _call(transfer: Transfer, rank: int, lane: str) -> str:
    """A transfer as the call of one of its ranks."""
    if isinstance(transfer, Joint):
        return f"{transfer.what} ({transfer.places[rank].short})"
    assert isinstance(transfer, TimedMessage)
    receives = lane == "receives"
    place = transfer.received_at if receives else transfer.sent_from
    to = f"receive from rank {transfer.source}" if receives else f"send to rank {transfer.target}"
    return f"{to} ({place.short})" if place else to


def _missing(joint: Joint) -> str:
    """Which members of a collective have not called it; empty if all have."""
    missing = [str(rank) for rank in joint.members if rank not in joint.called]
    if not missing:
        return ""
    called = ", ".join(f"rank {r} in {p.short}" for r, p in sorted(joint.places.items()))
    return f"{joint.what} was called by {called}, but not by rank {', '.join(missing)}."
