"""A rank as the keeper sees it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from distlab.puzzles.messages import Call, SolverLine
from distlab.puzzles.tensors import HeldTensor


@dataclass
class Seat:
    """One rank as the keeper sees it.

    Attributes:
        state: `running` in the solver's code, `waiting` in a call, `returned` or `failed`.
        call: The call that it waits in, or else its last.
        why: What was wrong, if it has failed, as it follows the name of the rank.
        when: The logical time of that.
        calls: How many it has made.
        made: How many tensors these have given.
        grown: The bytes of these, since it was last counted what the rank holds.
        kept: What it has kept: where, and which tensors, by name.
    """

    state: str = "running"
    call: Call | None = None
    why: str = ""
    when: float = 0.0
    calls: int = 0
    made: int = 0
    grown: int = 0
    kept: dict[str, tuple[SolverLine, list[HeldTensor]]] = field(default_factory=dict)


def first_failure(seats: Sequence[Seat]) -> str:
    """What was wrong first in logical time, and in which ranks."""
    failed = [(seat.when, rank) for rank, seat in enumerate(seats) if seat.state == "failed"]
    if not failed:
        return ""
    first = seats[min(failed)[1]].why
    alike = [rank for _, rank in sorted(failed, key=lambda one: one[1]) if seats[rank].why == first]
    if len(alike) == len(seats) > 1:
        who = "Every rank"
    else:
        who = f"Rank{'s' * (len(alike) > 1)} {', '.join(map(str, alike))}"
    return f"{who}{first}"
