"""What goes between ranks: messages and collectives, matched, timed, counted and carried out."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from distlab.errors import shown
from distlab.puzzles.account import BYTES, LATENCY, ClockEvent, HeldTensor, RankClock, latest
from distlab.puzzles.lines import Place
from distlab.puzzles.operations import Array, WrongCallError

MESSAGES = ("send", "receive")
COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all")
_LANES = {kind: (kind,) for kind in MESSAGES} | dict.fromkeys(COLLECTIVES, MESSAGES)
"""The lanes of a rank that each call occupies."""
_TRANSFERS = {"send": "sending others first", "receive": "messages"}
"""What these are called in the account of where the time went."""


def carried_out(kind: str, given: list[list[Array]], index: int) -> list[Array]:
    """What a transfer gives the member with some index, from what each member gave."""
    if kind in MESSAGES:
        return given[0]
    if kind == "all_to_all":
        return [parts[index] for parts in given]
    first = [parts[0] for parts in given]
    if kind == "all_gather":
        return [np.concatenate(first)]
    total = np.sum(first, axis=0)
    return [total if kind == "all_reduce" else np.split(total, len(given))[index]]


def cost(kind: str, given: Sequence[Sequence[HeldTensor]]) -> tuple[float, list[int]]:
    """The ticks that a transfer takes, a collective as a ring, and the bytes that each sends."""
    if kind in MESSAGES:
        size = given[0][0].size
        return size / BYTES, [size if kind == "send" else 0]
    others = len(given) - 1
    if kind == "all_to_all":
        sizes = np.array([[held.size for held in parts] for parts in given])
        np.fill_diagonal(sizes, 0)
        sent, received = sizes.sum(axis=1).tolist(), sizes.sum(axis=0).tolist()
        return others * LATENCY + max(sent + received) / BYTES, sent
    size = given[0][0].size * (len(given) if kind == "all_gather" else 1)
    rounds = (2 if kind == "all_reduce" else 1) * others
    return rounds * (LATENCY + size / len(given) / BYTES), [rounds * size // len(given)] * len(
        given
    )


@dataclass(frozen=True, eq=False)
class TransferPart:
    """What one rank does in a transfer: what it has called, in words, where and after what."""

    kind: str
    what: str
    place: Place
    called: ClockEvent
    given: list[HeldTensor]
    made: list[HeldTensor]


@dataclass(eq=False)
class Transfer:
    """Bytes on their way: a message from one rank to another, or a collective of a group.

    Attributes:
        members: The ranks of the group; of a message who sends, and who receives.
        kind: What was called, by the first that came.
        parts: Those of the members that have come, by rank.
        left: The event after which a message left.
    """

    members: tuple[int, ...]
    kind: str
    parts: dict[int, TransferPart] = field(default_factory=dict)
    left: ClockEvent | None = None

    @property
    def missing(self) -> list[int]:
        """The members that have not come."""
        return [rank for rank in self.members if rank not in self.parts]

    def differences(self) -> str:
        """How the members of a collective disagree; empty if they agree so far."""
        if self.kind in MESSAGES:
            return ""
        told = {}
        for rank, part in sorted(self.parts.items()):
            shape = "" if part.kind == "all_to_all" else f" of {part.given[0].shape}"
            told[rank] = f"{part.kind}{shape}"
        first, *others = told
        other = next((rank for rank in others if told[rank] != told[first]), None)
        if other is None:
            return ""
        lines = [f"Rank {r}, {self.parts[r].place}\n    {told[r]}" for r in (first, other)]
        return "\n".join(["Collectives that do not match.", *lines])


class Exchange:
    """All that ranks send one another.

    Args:
        clocks: Of the ranks.

    Attributes:
        open: Transfers that are not over, in the order of their calls.
        sent: The bytes that each rank has sent.
    """

    def __init__(self, clocks: Sequence[RankClock]) -> None:
        self._clocks = clocks
        self._queues: dict[tuple[int, str], deque[Transfer]] = {
            (rank, lane): deque() for rank in range(len(clocks)) for lane in ("receive", "send")
        }
        self.open: list[Transfer] = []
        self.sent = [0] * len(clocks)

    def begin(
        self, rank: int, place: Place, kind: str, given: list[HeldTensor], detail: Any
    ) -> list[HeldTensor]:
        """Take part in a transfer: the first calls of all members belong together, and so on.

        `detail` is the other rank of a message, or the group of a collective. Gives what will come.

        Raises:
            WrongCallError: If there can't be such a transfer.
        """
        if kind in MESSAGES:
            members, what = self._pair(rank, kind, detail)
            shapes: list[tuple[int, ...] | None] = [None] if kind == "receive" else []
        else:
            members, what = self._group(rank, kind, detail), kind
            shapes = _shapes(kind, given, len(members))
        alike = [each for each in self.open if each.members == members and rank not in each.parts]
        same = (each for each in alike if (each.kind in MESSAGES) == (kind in MESSAGES))
        transfer = next(same, Transfer(members, kind))
        if not transfer.parts:
            self.open.append(transfer)
        now = self._clocks[rank].now
        if kind in ("all_reduce", "all_to_all"):
            for held in given:
                held.let_go(now.end, f"{kind} ({place.short}) has taken its place")
        made = [HeldTensor(rank, what, now.end, place, shape=shape) for shape in shapes]
        transfer.parts[rank] = TransferPart(kind, what, place, now, given, made)
        for lane in _LANES[kind]:
            self._queues[rank, lane].append(transfer)
        while any(queue and self._go_on(queue[0]) for queue in self._queues.values()):
            pass
        return made

    def _pair(self, rank: int, kind: str, other: int) -> tuple[tuple[int, ...], str]:
        """Who sends a message and who receives it, and what it is in words."""
        if not 0 <= other < len(self._clocks):
            raise WrongCallError(
                f"{kind}: there is no rank {other}, only 0 to {len(self._clocks) - 1}."
            )
        if other == rank:
            raise WrongCallError(f"{kind}: a rank has no messages for itself.")
        if kind == "send":
            return (rank, other), f"send to rank {other}"
        return (other, rank), f"receive from rank {other}"

    def _group(self, rank: int, kind: str, group: list[int] | None) -> tuple[int, ...]:
        """The ranks of a collective, in order."""
        members = tuple(range(len(self._clocks))) if group is None else tuple(sorted(group))
        if len(set(members)) < len(members) or not {rank} <= {*members} <= {
            *range(len(self._clocks))
        }:
            raise WrongCallError(
                f"{kind}: group={shown([*members])} must name this rank, {rank}, and "
                f"others once each, of 0 to {len(self._clocks) - 1}."
            )
        return members

    # Lanes.

    def _go_on(self, transfer: Transfer) -> bool:
        """Carry out as much of a transfer as can be; whether there was something."""
        parts, members, left = transfer.parts, transfer.members, transfer.left
        if transfer.kind in MESSAGES:  # it leaves, and it arrives
            members = members[1:] if left else members[:1]
        if transfer.differences() or not parts.keys() >= {*members}:
            return False
        kind = parts[members[0]].kind
        lanes = [self._queues[rank, lane] for rank in members for lane in _LANES[kind]]
        if not all(lane[0] is transfer for lane in lanes):
            return False
        ready = {}
        for rank in members:
            free = (self._clocks[rank].last[lane] for lane in _LANES[kind])
            ready[rank] = latest(parts[rank].called, *free)
        slowest = max(members, key=lambda rank: ready[rank].end)
        what, line = _TRANSFERS.get(kind, kind), parts[slowest].place.line
        start = ready[slowest]
        if left:
            start = latest(left.then(LATENCY, what, line), start)
        given = [parts[rank].given for rank in transfer.members if rank in parts]
        ticks, sent = cost(kind, given)
        end = start.then(ticks, what, line)
        for rank, size in zip(members, sent, strict=True):
            self.sent[rank] += size
            self._clocks[rank].occupy(end, *_LANES[kind])
        for lane in lanes:
            lane.popleft()
        if kind == "send":
            transfer.left = start
        else:
            self._over(transfer, end)
        return True

    def _over(self, transfer: Transfer, end: ClockEvent) -> None:
        """Hand out what has arrived."""
        self.open.remove(transfer)
        kind, parts = transfer.kind, [transfer.parts[rank] for rank in transfer.members]
        values = [[held.values for held in part.given] for part in parts]
        for index, part in enumerate(parts):
            for held, array in zip(part.made, carried_out(kind, values, index), strict=False):
                held.fill(array, end)
            stay = part.given[index : index + 1] if kind == "all_to_all" else part.given
            places = stay if kind in ("all_reduce", "all_to_all") else []  # of results
            for held in part.made + [each for each in part.given if each not in places]:
                held.needed = max(held.needed, end.end)

    def ahead(self, transfer: Transfer, rank: int) -> tuple[int, str, Transfer] | None:
        """What a transfer waits for in a lane, since a lane does one thing after the other.

        Of several lanes those of a rank come first. Gives the rank whose lane it is, which lane,
        and what is first there; None if the transfer is the first in all its lanes.
        """
        for (other, lane), queue in sorted(
            self._queues.items(), key=lambda item: item[0][0] != rank
        ):
            if transfer in queue and queue[0] is not transfer:
                return other, lane, queue[0]
        return None


def _shapes(kind: str, given: list[HeldTensor], count: int) -> list[tuple[int, ...] | None]:
    """What a collective will bring a member: shapes, or None for those that others say.

    Raises:
        WrongCallError: If it can't be with so many members.
    """
    if kind == "all_to_all":
        if len(given) != count:
            raise WrongCallError(
                f"all_to_all takes one part for each of {count} ranks, not {len(given)}."
            )
        return [None] * count
    rows, *width = given[0].shape or (0,)
    if kind in ("all_reduce", "reduce_scatter") and rows % count:
        raise WrongCallError(
            f"{kind}: {rows} rows do not divide into {count} parts, one for each rank."
        )
    rows = {"all_gather": rows * count, "reduce_scatter": rows // count}.get(kind, rows)
    return [(rows, *width)]
