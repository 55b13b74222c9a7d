"""What goes between ranks: messages and collectives, matched, counted and carried out."""

import reprlib
from collections import Counter, defaultdict
from typing import Any

import numpy as np

from distlab.puzzles.clock import Clocks, Transfer, duration
from distlab.puzzles.memory import HeldTensor, Place
from distlab.puzzles.operations import Array, WrongCallError

COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all")


def carried_out(kind: str, given: list[list[Array]], index: int) -> list[Array]:
    """What a collective gives the member with some index, from what each member gave."""
    if kind == "all_to_all":
        return [parts[index] for parts in given]
    first = [parts[0] for parts in given]
    if kind == "all_gather":
        return [np.concatenate(first)]
    total = np.sum(first, axis=0)
    return [total if kind == "all_reduce" else np.split(total, len(given))[index]]


class Exchange:
    """All that ranks send one another.

    Args:
        clocks: Of the ranks.

    Attributes:
        sent: The bytes that each rank has sent.
        open: Transfers that are not over, in the order of their first calls.
    """

    def __init__(self, clocks: Clocks) -> None:
        self._clocks = clocks
        self._size = len(clocks.ranks)
        self._transfers: dict[Any, list[Transfer]] = defaultdict(list)
        self._times: Counter[Any] = Counter()
        self.sent = [0] * self._size
        self.open: dict[Transfer, None] = {}

    def _join(
        self, rank: int, kind: str, place: Place, members: tuple[int, ...], key: Any
    ) -> Transfer:
        """Take part in a transfer: the first calls of all members belong together, and so on."""
        transfers, times = self._transfers[key], self._times[rank, key]
        self._times[rank, key] += 1
        if times == len(transfers):
            transfers.append(Transfer(members))
            self.open[transfers[times]] = None
        transfer = transfers[times]
        transfer.kinds[rank], transfer.places[rank] = kind, place
        transfer.called[rank] = self._clocks.ranks[rank].now
        return transfer

    def _message(self, rank: int, kind: str, place: Place, source: int, target: int) -> Transfer:
        other = target if kind == "send" else source
        if not 0 <= other < self._size:
            raise WrongCallError(f"{kind}: there is no rank {other}, only 0 to {self._size - 1}.")
        if other == rank:
            raise WrongCallError(f"{kind}: a rank has no messages for itself.")
        members = (source, target)
        return self._join(rank, kind, place, members, ("message", *members))

    def send(self, rank: int, place: Place, held: HeldTensor, target: int) -> None:
        """Begin to send a tensor that is there."""
        message = self._message(rank, "send", place, rank, target)
        message.given[rank] = [held]
        self.sent[rank] += held.size
        for made in message.made.get(target, []):
            made.shape = held.shape
        self._clocks.ranks[rank].out.append(message)
        self._settle()

    def receive(self, rank: int, place: Place, source: int) -> HeldTensor:
        """Begin to receive from another rank."""
        message = self._message(rank, "receive", place, source, rank)
        since = message.called[rank].time
        made = HeldTensor(rank, f"receive from rank {source}", since, place)
        message.made[rank] = [made]
        for given in message.given.get(source, []):
            made.shape = given.shape
        self._clocks.ranks[rank].incoming.append(message)
        self._settle()
        return made

    def collective(
        self, rank: int, place: Place, kind: str, given: list[HeldTensor], group: list[int] | None
    ) -> list[HeldTensor]:
        """Begin a collective."""
        members = self._group(rank, kind, group)
        count, shape = len(members), given[0].shape or (0,)
        if kind == "all_to_all" and len(given) != count:
            raise WrongCallError(
                f"all_to_all takes one part for each of {count} ranks, not {len(given)}."
            )
        if kind in ("all_reduce", "reduce_scatter") and shape[0] % count:
            raise WrongCallError(
                f"{kind}: {shape[0]} rows do not divide into {count} parts, one for each rank."
            )
        joint = self._join(rank, kind, place, members, members)
        now = joint.called[rank].time
        joint.given[rank] = given
        if kind in ("all_reduce", "all_to_all"):
            for held in given:
                held.let_go(now, f"{kind} ({place.short}) has taken its place")
        rows, *width = shape
        rows = {"all_gather": rows * count, "reduce_scatter": rows // count}.get(kind, rows)
        shapes = [None] * count if kind == "all_to_all" else [(rows, *width)]
        joint.made[rank] = [HeldTensor(rank, kind, now, place, shape=each) for each in shapes]
        if len(joint.called) == count and not differences(joint):
            self._all_there(joint)
        clock = self._clocks.ranks[rank]
        clock.out.append(joint)
        clock.incoming.append(joint)
        self._settle()
        return joint.made[rank]

    def _group(self, rank: int, kind: str, group: list[int] | None) -> tuple[int, ...]:
        """The ranks of a collective, in order."""
        members = tuple(range(self._size)) if group is None else tuple(sorted(group))
        if len(set(members)) < len(members) or not {rank} <= {*members} <= {*range(self._size)}:
            raise WrongCallError(
                f"{kind}: group={reprlib.repr(list(members))} must name this rank, {rank}, and "
                f"others once each, of 0 to {self._size - 1}."
            )
        return members

    def _all_there(self, joint: Transfer) -> None:
        """All have come, and want the same: what it takes and what it sends is known."""
        kind, members = joint.kind, joint.members
        if kind != "all_to_all":
            size = joint.given[members[0]][0].size
            size *= len(members) if kind == "all_gather" else 1
            joint.duration = duration(kind, size, len(members))
            for rank in members:
                times = 2 if kind == "all_reduce" else 1
                self.sent[rank] += times * (len(members) - 1) * size // len(members)
            return
        flows = []
        for i, rank in enumerate(members):
            out = sum(held.size for j, held in enumerate(joint.given[rank]) if j != i)
            flows += [out, sum(joint.given[r][i].size for r in members if r != rank)]
            self.sent[rank] += out
            for j, other in enumerate(members):
                joint.made[rank][j].shape = joint.given[other][i].shape
        joint.duration = duration(kind, 0, len(members), flows)

    def _settle(self) -> None:
        """Hand out what has arrived."""
        for transfer in self._clocks.settle():
            assert transfer.end is not None
            del self.open[transfer]
            kind, end = transfer.kind, transfer.end
            givers = [rank for rank in transfer.members if rank in transfer.given]
            values = [[held.there() for held in transfer.given[rank]] for rank in givers]
            for rank, made in transfer.made.items():
                results = values[0]
                if not transfer.is_message:
                    results = carried_out(kind, values, transfer.members.index(rank))
                for held, array in zip(made, results, strict=True):
                    held.fill(array, end)
                    held.needed = max(held.needed, end.time)
            for rank, given in transfer.given.items():
                for i, held in enumerate(given):
                    own = kind == "all_to_all" and transfer.members[i] == rank
                    if kind != "all_reduce" and not own:  # those are the places of results
                        held.needed = max(held.needed, end.time)


def differences(joint: Transfer) -> str:
    """How the members of a collective disagree; empty if they agree so far."""
    told = {}
    for rank, kind in sorted(joint.kinds.items()):
        shape = "" if kind == "all_to_all" else f" of {joint.given[rank][0].shape}"
        told[rank] = f"{kind}{shape}"
    first, *others = told
    other = next((rank for rank in others if told[rank] != told[first]), None)
    if other is None:
        return ""
    lines = [f"Rank {rank}, {joint.places[rank]}\n    {told[rank]}" for rank in (first, other)]
    return "\n".join(["Collectives that do not match.", *lines])
