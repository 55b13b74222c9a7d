"""What ranks can compute: each operation's shapes, its cost, and the NumPy that carries it out."""

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from distlab.errors import shown

Array = npt.NDArray[np.floating[Any]]
F = TypeVar("F", bound=Callable[..., Any])
BYTES_PER_NUMBER = 4
LEARNING_RATE = 0.01
MOST_SCORES = 1_000_000
"""What `attend` may make for a while: more than ten times what a solution needs."""


class WrongCallError(Exception):
    """A call that can't be carried out: its message is for the solver."""


@dataclass(frozen=True)
class Operation:
    """Something that `me.compute` does.

    Attributes:
        gives: The names of its results.
        name: What it is called.
        operands: The names of its tensors.
        signature: The letters of their axes, as in einsum: the same letter is the same length.
        cost: FLOPs for each combination of places along all axes.
        meaning: What it gives, in words.
        apply: Takes arrays, and gives an array or a tuple of them.
        reused: How many of the first operands' places the results take.
    """

    gives: str
    name: str
    operands: tuple[str, ...]
    signature: str
    cost: int
    meaning: str
    apply: Callable[..., Any]
    reused: int = 0

    @property
    def words(self) -> str:
        """What it gives, and what that costs."""
        letters = "".join(sorted({*self.signature} - {","}))
        if letters in _PRODUCTS:
            return f"{self.meaning}; {self.cost} * {_PRODUCTS[letters]} FLOPs"
        return f"{self.meaning}; {self.cost} FLOP{'s' * (self.cost > 1)} per number"

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.operands)})"

    def lengths(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
        """The length of each axis, by its letter.

        Raises:
            WrongCallError: If the shapes do not go together.
        """
        count, axes = len(self.operands), self.signature.split(",")
        if len(shapes) != count:
            raise WrongCallError(
                f"{self} takes {count} tensor{'s' * (count > 1)}, not {len(shapes)}."
            )
        found: dict[str, int] = {}
        for letters, shape in zip(axes, shapes, strict=True):
            if len(letters) != len(shape) or any(
                found.setdefault(letter, length) != length
                for letter, length in zip(letters, shape, strict=True)
            ):
                given = [f"{n} {s}" for n, s in zip(self.operands, shapes, strict=True)]
                wanted = [f"{n} ({', '.join(a)})" for n, a in zip(self.operands, axes, strict=True)]
                raise WrongCallError(
                    f"{self.name}: these shapes do not go together: {', '.join(given)}. "
                    f"It takes {', '.join(wanted)}, where the same letter is the same length."
                )
        return found


_PRODUCTS = {"ior": "rows * in * out", "dkq": "(rows of q) * (rows of k) * width"}
"""The lengths of three axes, by their letters."""
OPERATIONS: dict[str, Operation] = {}
"""Everything that `me.compute` can do in some puzzle."""


def _operation(gives: str, axes: str, cost: int, reused: int = 0) -> Callable[[F], F]:
    """Make an operation of a function: its name, the names of its operands, its meaning."""

    def take(apply: F) -> F:
        name, operands = apply.__name__, tuple(inspect.signature(apply).parameters)
        meaning = (apply.__doc__ or "").strip("`.")
        words = f"{meaning[0].lower()}{meaning[1:]}"
        OPERATIONS[name] = Operation(gives, name, operands, axes, cost, words, apply, reused)
        return apply

    return take


@_operation("sum", "rc,rc", 1, reused=1)
def add(a: Array, b: Array) -> Array:
    """`a + b`."""
    return a + b


@_operation("y", "io,ri", 2)
def forward(w: Array, x: Array) -> Array:
    """`tanh(x @ w)`."""
    return np.tanh(x @ w)


OPERATIONS["expert"] = replace(OPERATIONS["forward"], name="expert")


@_operation("y", "io,ri", 2)
def linear(w: Array, x: Array) -> Array:
    """`x @ w`."""
    return x @ w


@_operation("dy", "ro,ro", 1)
def loss(y: Array, target: Array) -> Array:
    """`y - target`."""
    return y - target


@_operation("dx, dw", "io,ri,ro", 4)
def linear_backward(w: Array, x: Array, dy: Array) -> tuple[Array, Array]:
    """The gradients of linear."""
    return dy @ w.T, x.T @ dy


@_operation("dx", "io,ro,ro", 2)
def backward_input(w: Array, y: Array, dy: Array) -> Array:
    """The dx of backward alone."""
    return (dy * (1 - y * y)) @ w.T


@_operation("dw", "ri,ro,ro", 2)
def backward_weight(x: Array, y: Array, dy: Array) -> Array:
    """The dw of backward alone."""
    return x.T @ (dy * (1 - y * y))


@_operation("dx, dw", "io,ri,ro,ro", 4)
def backward(w: Array, x: Array, y: Array, dy: Array) -> tuple[Array, Array]:
    """The gradients of forward."""
    return backward_input(w, y, dy), backward_weight(x, y, dy)


@_operation("w", "io,io", 2, reused=1)
def update(w: Array, dw: Array) -> Array:
    """A step of gradient descent."""
    return w - LEARNING_RATE * dw


@_operation("w, m, v", "io,io,io,io", 10, reused=3)
def adam(w: Array, m: Array, v: Array, dw: Array) -> tuple[Array, Array, Array]:
    """A step of Adam."""
    m, v = 0.9 * m + 0.1 * dw, 0.99 * v + 0.01 * dw * dw
    return w - LEARNING_RATE * m / (np.sqrt(v) + 1e-6), m, v


@_operation("partial", "qd,kd,kd", 4)
def attend(q: Array, k: Array, v: Array) -> Array:
    """The attention of q to these rows of k and v, as sums."""
    if not len(k):
        raise WrongCallError("attend: k and v have no rows, so there is nothing to attend to.")
    if len(q) * len(k) > MOST_SCORES:
        raise WrongCallError(
            f"attend: {len(q):,} rows of q and {len(k):,} of k are more than a rank has room for."
        )
    scores = q @ k.T / math.sqrt(q.shape[1])
    top = scores.max(axis=1, keepdims=True)
    weights = np.exp(scores - top)
    return np.concatenate([weights @ v, weights.sum(axis=1, keepdims=True), top], axis=1)


@_operation("partial", "qp,qp", 3, reused=1)
def merge(partial: Array, other: Array) -> Array:
    """Two partial results of the same q as one."""
    top = np.maximum(partial[:, -1:], other[:, -1:])
    one, two = (each[:, :-1] * np.exp(each[:, -1:] - top) for each in (partial, other))
    return np.concatenate([one + two, top], axis=1)


@_operation("out", "qp", 1)
def finish(partial: Array) -> Array:
    """The sums of a partial result, divided."""
    return partial[:, :-2] / partial[:, -2:-1]


def local(kind: str, given: Sequence[Array], detail: Any) -> tuple[list[Array], float, int]:
    """Carry out a call that needs no other rank.

    Args:
        kind: `compute`, `add`, `split` or `join`.
        given: The operands.
        detail: The name of the operation; for `split` how many parts, or the rows of each.

    Returns:
        The results, their cost in FLOPs, and how many of the first operands' places they take.

    Raises:
        WrongCallError: If that can't be.
    """
    if kind == "split":
        return _split(given[0], detail), 0, 1
    if kind == "join":
        if len({array.shape[1:] for array in given}) != 1:
            shapes = " and ".join(str(array.shape) for array in given[:8])
            raise WrongCallError(f"join: only the number of rows may differ, not {shapes}.")
        return [np.concatenate(given)], 0, len(given)
    operation = OPERATIONS[detail if kind == "compute" else kind]
    lengths = operation.lengths([array.shape for array in given])
    with np.errstate(all="ignore"):
        made = operation.apply(*given)
    arrays = list(made) if isinstance(made, tuple) else [made]
    return arrays, operation.cost * math.prod(lengths.values()), operation.reused


def _split(array: Array, parts: int | Sequence[int]) -> list[Array]:
    rows = len(array)
    if isinstance(parts, int):
        if not 1 <= parts <= max(rows, 1) or rows % parts:
            raise WrongCallError(f"split: {rows} rows do not divide into {parts} equal parts.")
        return np.split(array, parts)
    if not parts or sum(parts) != rows or min(parts) < 0:
        raise WrongCallError(f"split: parts of {shown(parts)} rows are not the {rows} rows of x.")
    return np.split(array, np.cumsum(parts)[:-1])
