"""Messages and collectives with the tensors that they carry."""

from dataclasses import dataclass, field

from distlab.puzzles.clock import Joint, TimedMessage
from distlab.puzzles.tensors import HeldTensor


@dataclass(eq=False)
class Mail:
    """A message with its tensors: what was sent, and what is received into."""

    message: TimedMessage
    given: HeldTensor | None = None
    made: HeldTensor | None = None


@dataclass(eq=False)
class Meeting:
    """A collective with the tensors of its members."""

    joint: Joint
    kinds: dict[int, str] = field(default_factory=dict)
    given: dict[int, list[HeldTensor]] = field(default_factory=dict)
    made: dict[int, list[HeldTensor]] = field(default_factory=dict)


def differences(meeting: Meeting) -> str:
    """How the members of a collective disagree; empty if they agree so far."""
    ranks = sorted(meeting.kinds)
    told = {}
    for rank in ranks:
        kind = meeting.kinds[rank]
        shape = "" if kind == "all_to_all" else f" of {meeting.given[rank][0].shape}"
        told[rank] = f"{kind}{shape}"
    if len(set(told.values())) == 1:
        return ""
    first = ranks[0]
    other = next(rank for rank in ranks if told[rank] != told[first])
    lines = [
        f"Rank {rank}, {meeting.joint.places[rank]}\n    {told[rank]}" for rank in (first, other)
    ]
    return "\n".join(["Collectives that do not match.", *lines])
