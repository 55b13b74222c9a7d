"""What goes between ranks: messages and collectives, matched, counted and carried out."""

from collections import defaultdict, deque

import numpy as np

from distlab.puzzles.arithmetic import Rounding, WrongCallError
from distlab.puzzles.clock import Clocks, Joint, TimedMessage, Transfer, duration
from distlab.puzzles.mail import Mail, Meeting, differences
from distlab.puzzles.messages import Call
from distlab.puzzles.tensors import HeldTensor, Tensors

COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all")


class Exchange:
    """All that ranks send one another.

    Args:
        size: How many ranks there are.
        clocks: Their clocks.
        tensors: Their tensors.
        about: Rounds sums.

    Attributes:
        sent: The bytes that each rank has sent.
        open_mail: Messages that have not arrived, in the order of their first calls.
        open_meetings: Collectives that are not over, likewise.
        latest: The last collective that each rank has called.
    """

    def __init__(self, size: int, clocks: Clocks, tensors: Tensors, about: Rounding) -> None:
        self.sent = [0] * size
        self._size = size
        self._clocks = clocks
        self._tensors = tensors
        self._round = about
        self._sent: dict[tuple[int, int], deque[Mail]] = defaultdict(deque)
        self._awaited: dict[tuple[int, int], deque[Mail]] = defaultdict(deque)
        self._meetings: dict[tuple[int, ...], list[Meeting]] = defaultdict(list)
        self._joined: dict[tuple[int, tuple[int, ...]], int] = defaultdict(int)
        self.open_mail: dict[Transfer, Mail] = {}
        self.open_meetings: dict[Transfer, Meeting] = {}
        self.latest: dict[int, Meeting] = {}

    # Messages.

    def send(self, rank: int, call: Call, tensor: HeldTensor) -> None:
        """Begin to send a tensor that is there."""
        target = self._other(rank, call)
        waiting = self._awaited[rank, target]
        if waiting:
            mail = waiting.popleft()
        else:
            mail = Mail(TimedMessage(what="", source=rank, target=target))
            self._sent[rank, target].append(mail)
            self.open_mail[mail.message] = mail
        message = mail.message
        mail.given = tensor
        message.size, message.sent_from = tensor.size, call.place
        message.handed = self._clocks.ranks[rank].now
        message.what = f"message from rank {rank} to rank {target}"
        self.sent[rank] += tensor.size
        if mail.made is not None:
            mail.made.take_shape(tensor.shape or ())
        self._clocks.send(message)
        self._deliver()

    def receive(self, rank: int, call: Call) -> HeldTensor:
        """Begin to receive from another rank."""
        source = self._other(rank, call)
        sent = self._sent[source, rank]
        if sent:
            mail = sent.popleft()
        else:
            mail = Mail(TimedMessage(what="", source=source, target=rank))
            self._awaited[source, rank].append(mail)
            self.open_mail[mail.message] = mail
        now = self._clocks.ranks[rank].now
        made = self._tensors.new(rank, f"receive from rank {source}", now.time, call.place)
        made.coming = mail.message
        mail.made, mail.message.posted, mail.message.received_at = made, now, call.place
        if mail.given is not None:
            made.take_shape(mail.given.shape or ())
        self._clocks.receive(mail.message)
        self._deliver()
        return made

    def _other(self, rank: int, call: Call) -> int:
        other = call.number
        if not 0 <= other < self._size:
            raise WrongCallError(
                f"{call.kind}: there is no rank {other}, only 0 to {self._size - 1}."
            )
        if other == rank:
            raise WrongCallError(f"{call.kind}: a rank has no messages for itself.")
        return other

    # Collectives.

    def collective(self, rank: int, call: Call, operands: list[HeldTensor]) -> list[HeldTensor]:
        """Begin a collective.

        Raises:
            WrongCallError: If it is none, or that can't be.
        """
        if call.kind not in COLLECTIVES:
            raise WrongCallError(f"me.{call.kind} is no collective.")
        group = tuple(range(self._size)) if call.group is None else tuple(sorted(call.group))
        if len(group) > self._size:
            raise WrongCallError(
                f"{call.kind}: group names more than the {self._size} ranks that there are."
            )
        if len(set(group)) < len(group) or rank not in group or group[0] < 0:
            raise WrongCallError(
                f"{call.kind}: group={list(group)} must name this rank, {rank}, and others once "
                "each."
            )
        if group[-1] >= self._size:
            raise WrongCallError(
                f"{call.kind}: there is no rank {group[-1]}, only 0 to {self._size - 1}."
            )
        self._check(call.kind, operands, len(group))
        index = self._joined[rank, group]
        self._joined[rank, group] += 1
        meetings = self._meetings[group]
        if index == len(meetings):
            meetings.append(Meeting(Joint(what=call.kind, members=group)))
            self.open_meetings[meetings[index].joint] = meetings[index]
        meeting = meetings[index]
        joint = meeting.joint
        self.latest[rank] = meeting
        now = self._clocks.ranks[rank].now
        joint.places[rank], joint.called[rank] = call.place, now
        meeting.kinds[rank], meeting.given[rank] = call.kind, operands
        if call.kind in ("all_reduce", "all_to_all"):
            for tensor in operands:
                why = f"{call.kind} ({call.place.short}) has taken its place"
                self._tensors.release(tensor, now.time, why)
        made = [
            self._tensors.new(rank, call.kind, now.time, call.place)
            for _ in range(len(group) if call.kind == "all_to_all" else 1)
        ]
        for tensor in made:
            tensor.coming = joint
        if call.kind != "all_to_all":
            made[0].take_shape(_shape(call.kind, operands[0].shape or (), len(group)))
        meeting.made[rank] = made
        if len(joint.called) == len(group) and not differences(meeting):
            self._all_there(meeting)
        self._clocks.join(joint, rank)
        self._deliver()
        return made

    def _check(self, kind: str, operands: list[HeldTensor], members: int) -> None:
        if kind == "all_to_all" and len(operands) != members:
            raise WrongCallError(
                f"all_to_all takes one part for each of {members} ranks, not {len(operands)}."
            )
        rows = (operands[0].shape or (0,))[0]
        if kind in ("all_reduce", "reduce_scatter") and rows % members:
            raise WrongCallError(
                f"{kind}: {rows} rows do not divide into {members} parts, one for each rank."
            )

    def _all_there(self, meeting: Meeting) -> None:
        """All have come, and want the same: what it takes and what it sends is known."""
        joint, kind, members = (
            meeting.joint,
            meeting.kinds[meeting.joint.members[0]],
            len(meeting.kinds),
        )
        if kind == "all_to_all":
            flows = []
            for i, rank in enumerate(joint.members):
                out = sum(t.size for j, t in enumerate(meeting.given[rank]) if j != i)
                come = sum(meeting.given[r][i].size for r in joint.members if r != rank)
                self.sent[rank] += out
                flows.append((out, come))
                for j, other in enumerate(joint.members):
                    meeting.made[rank][j].take_shape(meeting.given[other][i].shape or ())
            joint.duration = duration(kind, 0, members, flows)
            return
        size = meeting.given[joint.members[0]][0].size * (members if kind == "all_gather" else 1)
        joint.duration = duration(kind, size, members)
        for rank in joint.members:
            times = 2 if kind == "all_reduce" else 1
            self.sent[rank] += times * (members - 1) * size // members

    # Both.

    def _deliver(self) -> None:
        """Hand out what has arrived."""
        for transfer in self._clocks.arrived():
            if isinstance(transfer, Joint):
                self._conclude(self.open_meetings.pop(transfer))
                continue
            mail = self.open_mail.pop(transfer)
            assert mail.given is not None
            assert mail.made is not None
            assert mail.message.end is not None
            mail.made.fill(mail.given.there()[0], mail.message.end)
            for tensor in (mail.given, mail.made):
                tensor.storage.needed_until(mail.message.end.time)

    def leaving(self, rank: int) -> list[HeldTensor]:
        """What a rank has given away that has not arrived, so that its numbers are still here."""
        mail = (one.given for one in self.open_mail.values() if one.message.source == rank)
        met = (one.given.get(rank, []) for one in self.open_meetings.values())
        return [tensor for tensor in mail if tensor is not None] + [t for g in met for t in g]

    def _conclude(self, meeting: Meeting) -> None:
        joint, end = meeting.joint, meeting.joint.end
        assert end is not None
        members = joint.members
        kind = meeting.kinds[members[0]]
        values = {rank: [t.there()[0] for t in meeting.given[rank]] for rank in members}
        if kind == "all_gather":
            whole = np.concatenate([values[rank][0] for rank in members], axis=1)
        elif kind != "all_to_all":
            whole = values[members[0]][0]
            for rank in members[1:]:
                whole = self._round(whole + values[rank][0])
        for i, rank in enumerate(members):
            if kind == "all_to_all":
                results = [values[other][i] for other in members]
            elif kind == "reduce_scatter":
                results = [np.split(whole, len(members), axis=1)[i]]
            else:
                results = [whole]
            for tensor, array in zip(meeting.made[rank], results, strict=True):
                tensor.fill(array, end)
                tensor.storage.needed_until(end.time)
            for j, tensor in enumerate(meeting.given[rank]):
                reused = kind == "all_reduce" or (kind == "all_to_all" and i == j)
                if not reused:
                    tensor.storage.needed_until(end.time)


def _shape(kind: str, shape: tuple[int, ...], members: int) -> tuple[int, ...]:
    if kind == "all_gather":
        return (shape[0] * members, *shape[1:])
    if kind == "reduce_scatter":
        return (shape[0] // members, *shape[1:])
    return shape
