"""The keeper's side of tensors: which rank owns which, where its numbers are, and when."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from distlab.puzzles.arithmetic import BYTES_PER_NUMBER, Array, WrongCallError
from distlab.puzzles.clock import Moment, Transfer
from distlab.puzzles.memory import RankMemory, Storage
from distlab.puzzles.messages import Described, SolverLine


@dataclass(eq=False)
class HeldTensor:
    """A tensor of one rank.

    Attributes:
        number: By which its rank names it.
        rank: Whose it is.
        storage: The memory that it takes.
        what: Where it comes from, in a word or two.
        place: Where the solver called for it; None for what the puzzle gives.
        values: Its numbers, with the axis of draws in front; None as long as they are on their way.
        ready: Since when they are there.
        shape: Without the axis of draws; None as long as it is not known.
        coming: What brings it, if it comes from other ranks.
    """

    number: int
    rank: int
    storage: Storage
    what: str
    place: SolverLine | None = None
    values: Array | None = None
    ready: Moment | None = None
    shape: tuple[int, ...] | None = None
    coming: Transfer | None = None

    @property
    def size(self) -> int:
        """Its bytes; 0 as long as its shape is not known."""
        return bytes_of(self.shape) if self.shape is not None else 0

    def there(self) -> tuple[Array, Moment]:
        """Its numbers, and since when they are there."""
        assert self.values is not None
        assert self.ready is not None
        return self.values, self.ready

    def described(self) -> Described:
        """What its rank is told of it."""
        return Described(self.number, None if self.shape is None else list(self.shape))

    def fill(self, values: Array, ready: Moment) -> None:
        """Its numbers have come."""
        self.values, self.ready = values, ready
        self.take_shape(tuple(values.shape[1:]))

    def take_shape(self, shape: tuple[int, ...]) -> None:
        """Its shape is known: so is the memory that it takes."""
        self.shape = shape
        self.storage.size = bytes_of(shape)


def bytes_of(shape: tuple[int, ...]) -> int:
    """What a tensor of a shape takes, four bytes a number."""
    return BYTES_PER_NUMBER * int(np.prod(shape))


class Tensors:
    """All tensors of the ranks of one run, each under the number that its rank knows.

    Args:
        size: How many ranks there are.
    """

    def __init__(self, size: int) -> None:
        self.memories = [RankMemory() for _ in range(size)]
        self._tensors: dict[int, HeldTensor] = {}
        self._gone: dict[int, str] = {}
        self._count = 0

    def new(
        self,
        rank: int,
        what: str,
        now: float,
        place: SolverLine | None = None,
        values: Array | None = None,
        ready: Moment | None = None,
    ) -> HeldTensor:
        """Make a tensor, and take memory for it from now on."""
        storage = Storage(rank, None, now, what, place)
        self.memories[rank].storages.append(storage)
        self._count += 1
        tensor = HeldTensor(self._count, rank, storage, what, place)
        self._tensors[tensor.number] = tensor
        if values is not None:
            tensor.fill(values, ready or Moment())
        return tensor

    def get(self, rank: int, number: int) -> HeldTensor:
        """The tensor that a rank means.

        Raises:
            WrongCallError: If it has none of that number.
        """
        tensor = self._tensors.get(number)
        if tensor is None:
            why = self._gone.get(number, "the puzzle never gave it, and no call returned it")
            raise WrongCallError(f"This tensor is not there any more: {why}.")
        if tensor.rank != rank:
            raise WrongCallError(
                f"This tensor is rank {tensor.rank}'s, not rank {rank}'s: "
                "only send and the collectives bring its numbers here."
            )
        return tensor

    def held_by(self, rank: int, leaving: Iterable[HeldTensor] = ()) -> int:
        """The bytes that the tensors of a rank take now.

        Args:
            rank: Whose.
            leaving: What it may have let go of, but is still needed for others.
        """
        own = {tensor for tensor in self._tensors.values() if tensor.rank == rank}
        return sum(tensor.size for tensor in own | set(leaving))

    def release(self, tensor: HeldTensor, now: float, why: str) -> None:
        """A rank lets go of a tensor, for a reason that is told if it uses it again."""
        self._tensors.pop(tensor.number, None)
        self._gone[tensor.number] = why
        tensor.storage.let_go(now)

    def drop(self, rank: int, numbers: list[int], now: float) -> None:
        """A rank has no handles any more of some tensors, which may be gone already."""
        for number in numbers:
            tensor = self._tensors.get(number)
            if tensor is not None and tensor.rank == rank:
                self.release(tensor, now, "no variable held it")
