"""What goes between ranks: messages and collectives, matched, counted and carried out."""

from collections import defaultdict, deque

import numpy as np

from distlab.puzzles.clock import Clocks, Joint, Message, duration
from distlab.puzzles.memory import Held, Place
from distlab.puzzles.operations import Array, WrongCallError

COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all")


def other_of(kind: str, rank: int, other: int, size: int) -> int:
    """The other rank of a message.

    Raises:
        WrongCallError: If there is none, or it is the same.
    """
    if not 0 <= other < size:
        raise WrongCallError(f"{kind}: there is no rank {other}, only 0 to {size - 1}.")
    if other == rank:
        raise WrongCallError(f"{kind}: a rank has no messages for itself.")
    return other


def group_of(kind: str, rank: int, group: list[int] | None, size: int) -> tuple[int, ...]:
    """The ranks of a collective, in order.

    Raises:
        WrongCallError: If they can't be a group of this rank.
    """
    members = tuple(range(size)) if group is None else tuple(sorted(group))
    if len(members) > size:
        raise WrongCallError(f"{kind}: group names more than the {size} ranks that there are.")
    if len(set(members)) < len(members) or rank not in members or members[0] < 0:
        raise WrongCallError(
            f"{kind}: group={list(members)} must name this rank, {rank}, and others once each."
        )
    if members[-1] >= size:
        raise WrongCallError(f"{kind}: there is no rank {members[-1]}, only 0 to {size - 1}.")
    return members


def check_parts(kind: str, shapes: list[tuple[int, ...]], members: int) -> None:
    """Refuse tensors that a collective can't take.

    Raises:
        WrongCallError: If it can't.
    """
    if kind == "all_to_all" and len(shapes) != members:
        raise WrongCallError(
            f"all_to_all takes one part for each of {members} ranks, not {len(shapes)}."
        )
    if kind in ("all_reduce", "reduce_scatter") and shapes[0][0] % members:
        raise WrongCallError(
            f"{kind}: {shapes[0][0]} rows do not divide into {members} parts, one for each rank."
        )


def carried_out(kind: str, given: list[list[Array]], index: int) -> list[Array]:
    """What a collective gives one of its members.

    Args:
        kind: Which collective.
        given: What each member gave.
        index: Which member.
    """
    if kind == "all_to_all":
        return [parts[index] for parts in given]
    first = [parts[0] for parts in given]
    if kind == "all_gather":
        return [np.concatenate(first)]
    total = np.sum(first, axis=0)
    return [total if kind == "all_reduce" else np.split(total, len(given))[index]]


class Exchange:
    """All that ranks send one another.

    Attributes:
        sent: The bytes that each rank has sent.
        messages: Those that have not arrived, in the order of their first calls.
        joints: Collectives that are not over, likewise.
        latest: The last collective that each rank has called.
    """

    def __init__(self, clocks: Clocks) -> None:
        self._clocks = clocks
        self._size = len(clocks.ranks)
        self.sent = [0] * self._size
        self._unmatched: dict[tuple[int, int], deque[Message]] = defaultdict(deque)
        self._joints: dict[tuple[int, ...], list[Joint]] = defaultdict(list)
        self._joined: dict[tuple[int, tuple[int, ...]], int] = defaultdict(int)
        self.messages: dict[Message, None] = {}  # a set that keeps its order
        self.joints: dict[Joint, None] = {}
        self.latest: dict[int, Joint] = {}

    def send(self, rank: int, place: Place, held: Held, to: int) -> None:
        """Begin to send a tensor that is there."""
        target = other_of("send", rank, to, self._size)
        message = self._match(rank, target, sends=True)
        message.given, message.sent_from = held, place
        message.handed = self._clocks.ranks[rank].now
        held.leaving += 1
        self.sent[rank] += held.size
        if message.made is not None:
            message.made.shape = held.shape
        self._clocks.ranks[rank].out.append(message)
        self._settle()

    def receive(self, rank: int, place: Place, source: int) -> Held:
        """Begin to receive from another rank."""
        message = self._match(other_of("receive", rank, source, self._size), rank, sends=False)
        message.posted = now = self._clocks.ranks[rank].now
        made = Held(rank, f"receive from rank {source}", now.time, place, coming=message)
        message.made = made
        if message.given is not None:
            made.shape = message.given.shape
        self._clocks.ranks[rank].incoming.append(message)
        self._settle()
        return made

    def _match(self, source: int, target: int, *, sends: bool) -> Message:
        """The message of a call: one that the other side has called for already, or a new one."""
        waiting = self._unmatched[source, target]
        if waiting and (waiting[0].given is None) == sends:
            return waiting.popleft()
        message = Message(source, target)
        waiting.append(message)
        self.messages[message] = None
        return message

    def collective(
        self, rank: int, place: Place, kind: str, given: list[Held], group: list[int] | None
    ) -> list[Held]:
        """Begin a collective."""
        members = group_of(kind, rank, group, self._size)
        check_parts(kind, [held.shape or () for held in given], len(members))
        index = self._joined[rank, members]
        self._joined[rank, members] += 1
        if index == len(self._joints[members]):
            self._joints[members].append(Joint(members))
        joint = self._joints[members][index]
        self.joints[joint] = None
        self.latest[rank] = joint
        clock = self._clocks.ranks[rank]
        joint.places[rank], joint.called[rank], joint.kinds[rank] = place, clock.now, kind
        joint.given[rank] = given
        for held in given:
            held.leaving += 1
            if kind in ("all_reduce", "all_to_all"):
                held.let_go(clock.now.time, f"{kind} ({place.short}) has taken its place")
        made = [
            Held(rank, kind, clock.now.time, place, coming=joint)
            for _ in (members if kind == "all_to_all" else (rank,))
        ]
        if kind != "all_to_all":
            made[0].shape = _shape(kind, given[0].shape or (), len(members))
        joint.made[rank] = made
        if len(joint.called) == len(members) and not differences(joint):
            self._all_there(joint)
        clock.out.append(joint)
        clock.incoming.append(joint)
        self._settle()
        return made

    def _all_there(self, joint: Joint) -> None:
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
            if isinstance(transfer, Joint):
                self._conclude(transfer)
                continue
            given, made, end = transfer.given, transfer.made, transfer.end
            assert given is not None
            assert made is not None
            assert end is not None
            del self.messages[transfer]
            made.fill(given.there(), end)
            given.leaving -= 1
            for held in (given, made):
                held.needed_until(end.time)

    def _conclude(self, joint: Joint) -> None:
        assert joint.end is not None
        del self.joints[joint]
        values = [[held.there() for held in joint.given[rank]] for rank in joint.members]
        for i, rank in enumerate(joint.members):
            results = carried_out(joint.kind, values, i)
            for held, array in zip(joint.made[rank], results, strict=True):
                held.fill(array, joint.end)
                held.needed_until(joint.end.time)
            for j, held in enumerate(joint.given[rank]):
                held.leaving -= 1
                reused = joint.kind == "all_reduce" or (joint.kind == "all_to_all" and i == j)
                if not reused:
                    held.needed_until(joint.end.time)


def differences(joint: Joint) -> str:
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


def _shape(kind: str, shape: tuple[int, ...], members: int) -> tuple[int, ...]:
    if kind == "all_gather":
        return (shape[0] * members, *shape[1:])
    if kind == "reduce_scatter":
        return (shape[0] // members, *shape[1:])
    return shape
