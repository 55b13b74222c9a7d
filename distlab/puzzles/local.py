"""What a rank does for itself: compute, add, split and join."""

import math
from collections.abc import Collection

import numpy as np

from distlab.puzzles.arithmetic import BYTES_PER_NUMBER, OPERATIONS, Rounding, WrongCallError
from distlab.puzzles.clock import Clocks
from distlab.puzzles.messages import Call
from distlab.puzzles.tensors import HeldTensor, Tensors

MOST_HELD = 5_000_000
"""Bytes that a rank may hold at all: more than ten times the largest budget."""
MOST_PARTS = 1_024
"""Into how many parts a split may divide, if some are empty."""


class Local:
    """Carries out what needs no other rank.

    Args:
        clocks: Of all ranks.
        tensors: Of all ranks.
        allowed: The operations that the puzzle has.
        about: Rounds results.
    """

    def __init__(
        self, clocks: Clocks, tensors: Tensors, allowed: Collection[str], about: Rounding
    ) -> None:
        self._clocks = clocks
        self._tensors = tensors
        self._allowed = allowed
        self._round = about

    def _results(
        self,
        rank: int,
        call: Call,
        what: str,
        arrays: list[np.ndarray],
        reused: list[HeldTensor],
    ) -> list[HeldTensor]:
        """Make tensors, some of which take the places of others, at the time that it is now."""
        now = self._clocks.ranks[rank].now
        for tensor in reused:
            self._tensors.release(
                tensor, now.time, f"{what} ({call.place.short}) has taken its place"
            )
        return [
            self._tensors.new(rank, what, now.time, call.place, values, now) for values in arrays
        ]

    def compute(self, rank: int, call: Call, operands: list[HeldTensor]) -> list[HeldTensor]:
        """Carry out an operation of the puzzle.

        Raises:
            WrongCallError: If that can't be.
        """
        if call.name not in self._allowed:
            offered = ", ".join(name for name in OPERATIONS if name in self._allowed)
            raise WrongCallError(
                f"This puzzle has no operation {call.name!r}. It has: {offered or 'none'}."
            )
        operation = OPERATIONS[call.name]
        lengths = operation.lengths([tensor.shape or () for tensor in operands])
        largest = BYTES_PER_NUMBER * math.prod(sorted(lengths.values())[-2:])
        if largest > MOST_HELD:
            raise WrongCallError(
                f"{call.name}: these tensors are too large: it would make {largest:,} bytes, and a "
                f"check has room for {MOST_HELD:,}."
            )
        reused = operands[: operation.reused]
        if len(set(reused)) < len(reused) or set(reused) & set(operands[operation.reused :]):
            raise WrongCallError(f"{operation}: the same tensor is given twice.")
        before = self._clocks.ranks[rank].now
        with np.errstate(all="ignore"):
            arrays = operation.apply([tensor.there()[0] for tensor in operands], self._round)
        made = self._results(rank, call, call.name, arrays, reused)
        done = self._clocks.ranks[rank].compute(
            call.name, operation.flops(lengths), before, call.place
        )
        for tensor in made:
            tensor.ready = done
        return made

    def add(self, rank: int, call: Call, operands: list[HeldTensor]) -> HeldTensor:
        """Add two tensors of the same shape.

        Raises:
            WrongCallError: If that can't be.
        """
        one, other = operands
        if one.shape != other.shape:
            raise WrongCallError(
                f"add: the tensors have the shapes {one.shape} and {other.shape}; "
                "give two of the same shape."
            )
        if one is other:
            raise WrongCallError("add: the same tensor is given twice.")
        clock = self._clocks.ranks[rank]
        with np.errstate(all="ignore"):
            total = self._round(one.there()[0] + other.there()[0])
        made = self._results(rank, call, "add", [total], [one])
        made[0].ready = clock.compute("add", total[0].size, clock.now, call.place)
        return made[0]

    def split(self, rank: int, call: Call, tensor: HeldTensor) -> list[HeldTensor]:
        """Divide a tensor along its rows.

        Raises:
            WrongCallError: If that can't be.
        """
        rows = (tensor.shape or (0,))[0]
        sizes = call.sizes
        if len(sizes) == 1:
            if not 1 <= sizes[0] <= max(rows, 1) or rows % sizes[0]:
                raise WrongCallError(
                    f"split: {rows} rows do not divide into {sizes[0]} equal parts."
                )
            sizes = [rows // sizes[0]] * sizes[0]
        elif len(sizes) > MOST_PARTS:
            raise WrongCallError(f"split: {len(sizes):,} parts; {MOST_PARTS:,} are allowed.")
        elif sum(sizes) != rows or min(sizes, default=-1) < 0:
            shown = ", ".join(map(str, sizes[:8])) + ", ..." * (len(sizes) > 8)
            raise WrongCallError(
                f"split: parts of [{shown}] rows are not the {rows} rows of the tensor."
            )
        arrays = np.split(tensor.there()[0], np.cumsum(sizes)[:-1], axis=1)
        return self._results(
            rank, call, f"{tensor.what.removesuffix(' in parts')} in parts", arrays, [tensor]
        )

    def join(self, rank: int, call: Call, operands: list[HeldTensor]) -> HeldTensor:
        """Put tensors together, one below the other.

        Raises:
            WrongCallError: If that can't be.
        """
        shapes = [tensor.shape or () for tensor in operands]
        if len({shape[1:] for shape in shapes}) != 1:
            raise WrongCallError(
                f"join: the tensors have the shapes {', '.join(map(str, shapes))}; "
                "give tensors that differ in the number of rows alone."
            )
        whole = np.concatenate([tensor.there()[0] for tensor in operands], axis=1)
        return self._results(rank, call, "join", [whole], operands)[0]
