"""A puzzle with its data drawn: what each rank is given, and what it has to keep."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from distlab.puzzles.arithmetic import Array
from distlab.puzzles.messages import SolverLine
from distlab.puzzles.tensors import HeldTensor

DRAWS = 3
"""How often data are drawn at random; one run computes with all of them."""
TOLERANCE = 1e-5
Given = Array | list[Array] | dict[int, Array]


@dataclass
class PuzzleTask:
    """A puzzle for some number of ranks. Every list has one entry per rank.

    Attributes:
        given: The tensors that each rank begins with, by name.
        facts: What else each rank is told, by name.
        expected: What each rank has to keep: an array, or a list of arrays, by name.
    """

    given: list[dict[str, Given]]
    expected: list[dict[str, Array | list[Array]]]
    facts: list[dict[str, Any]] = field(default_factory=list)

    def facts_of(self, rank: int) -> dict[str, Any]:
        """What else a rank is told."""
        return self.facts[rank] if self.facts else {}


class RandomData:
    """Draws data at random.

    Args:
        generator: Where the randomness comes from.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def normal(self, rows: int, columns: int, scale: float = 1.0) -> Array:
        """Normal numbers, in the shape (draws, rows, columns)."""
        return scale * self._generator.standard_normal((DRAWS, rows, columns))

    def weights(self, rows: int, columns: int) -> Array:
        """A weight that keeps the size of what goes through it."""
        return self.normal(rows, columns, 1.0 / np.sqrt(rows))

    def positive(self, rows: int, columns: int) -> Array:
        """Positive numbers."""
        return np.square(self.normal(rows, columns)) + 0.1


Kept = dict[str, tuple[SolverLine, list[HeldTensor]]]


def verdict(task: PuzzleTask, kept: Sequence[Kept]) -> str:
    """The first thing that is wrong in what the ranks have kept; empty if all is right."""
    for rank, results in enumerate(kept):
        for name, right in task.expected[rank].items():
            if name not in results:
                return f'Rank {rank} has returned without me.keep("{name}", ...).'
            place, tensors = results[name]
            if why := _compare(name, right, tensors, task.given[rank].get(name)):
                return f"Rank {rank}, {place}\n{why}"
    return ""


def _compare(
    name: str, right: Array | list[Array], tensors: list[HeldTensor], given: Given | None
) -> str:
    wanted = right if isinstance(right, list) else [right]
    before = given if isinstance(given, list) else [given] * len(wanted)
    if len(tensors) != len(wanted):
        plural = "a list of " if isinstance(right, list) else ""
        return (
            f"{name!r} must be {plural}{len(wanted)} tensor{'s' * (len(wanted) != 1)}, "
            f"not {len(tensors)}."
        )
    for index, (tensor, array) in enumerate(zip(tensors, wanted, strict=True)):
        what = f"{name}[{index}]" if isinstance(right, list) else name
        values, _ = tensor.there()
        if values.shape != array.shape:
            return f"{what} has the shape {values.shape[1:]}; it must be {array.shape[1:]}."
        if not _close(values, array):
            first = before[index]
            same = isinstance(first, np.ndarray) and first.shape == values.shape
            if same and _close(values, np.asarray(first)):
                return f"{what} is what it was at the start."
            return f"{what} has wrong numbers{_how(values, array)}."
    return ""


def _close(values: Array, right: Array) -> bool:
    scale = max(1.0, float(np.abs(right).max(initial=0.0)))
    return bool(np.all(np.abs(values - right) <= TOLERANCE * scale))


def _how(values: Array, right: Array) -> str:
    """What is wrong with numbers, where that can be told."""
    if not np.isfinite(values).all():
        return ": not all are finite"
    if not values.any():
        return ": all are zero"
    ratio = float((values * right).sum() / (right * right).sum())
    for factor in (2, 3, 4, 5, 6, 8):
        if np.isclose(ratio, factor, rtol=1e-3) and _close(values / factor, right):
            return f": all are {factor} times as large as they must be"
        if np.isclose(ratio, 1 / factor, rtol=1e-3) and _close(values * factor, right):
            return f": all are 1/{factor} of what they must be"
    return ""
