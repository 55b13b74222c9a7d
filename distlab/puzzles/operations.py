"""What ranks can compute: each operation's shapes, its cost, and the NumPy that carries it out."""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.floating[Any]]
Function = Callable[..., Any]
F = TypeVar("F", bound=Function)
BYTES_PER_NUMBER = 4
LEARNING_RATE = 0.01


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
        flops: What it costs, from the lengths.
        words: What it gives, and the cost in words.
        apply: Takes arrays, and gives an array or a tuple of them.
        reused: How many of the first operands' places the results take.
    """

    gives: str
    name: str
    operands: tuple[str, ...]
    signature: str
    flops: Callable[[Mapping[str, int]], float]
    words: str
    apply: Function
    reused: int = 0

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


OPERATIONS: dict[str, Operation] = {}
"""Everything that `me.compute` can do in some puzzle."""


def _operation(
    gives: str, axes: str, price: str, flops: Callable[[Mapping[str, int]], float], reused: int = 0
) -> Callable[[F], F]:
    """Make an operation of a function: its name, the names of its operands, its meaning."""

    def take(apply: F) -> F:
        name, operands = apply.__name__, tuple(inspect.signature(apply).parameters)
        meaning = (apply.__doc__ or "").strip("`.")
        words = f"{meaning[0].lower()}{meaning[1:]}; {price}"
        OPERATIONS[name] = Operation(gives, name, operands, axes, flops, words, apply, reused)
        return apply

    return take


def _products(count: int) -> Callable[[Mapping[str, int]], float]:
    return lambda n: 2.0 * count * n["r"] * n["i"] * n["o"]


def _each(flops: int, *letters: str) -> Callable[[Mapping[str, int]], float]:
    return lambda n: float(flops * math.prod(n[letter] for letter in letters))


_ONE, _TWO = "2 * rows * in * out FLOPs", "4 * rows * in * out FLOPs"


@_operation("y", "io,ri", _ONE, _products(1))
def forward(w: Array, x: Array) -> Array:
    """`tanh(x @ w)`."""
    return np.tanh(x @ w)


@_operation("y", "io,ri", _ONE, _products(1))
def expert(w: Array, x: Array) -> Array:
    """`tanh(x @ w)`."""
    return np.tanh(x @ w)


@_operation("y", "io,ri", _ONE, _products(1))
def linear(w: Array, x: Array) -> Array:
    """`x @ w`."""
    return x @ w


@_operation("dy", "ro,ro", "1 FLOP per number", _each(1, "r", "o"))
def loss(y: Array, target: Array) -> Array:
    """`y - target`."""
    return y - target


@_operation("dx, dw", "io,ri,ro", _TWO, _products(2))
def linear_backward(w: Array, x: Array, dy: Array) -> tuple[Array, Array]:
    """The gradients of linear."""
    return dy @ w.T, x.T @ dy


@_operation("dx", "io,ro,ro", _ONE, _products(1))
def backward_input(w: Array, y: Array, dy: Array) -> Array:
    """The dx of backward alone."""
    return (dy * (1 - y * y)) @ w.T


@_operation("dw", "ri,ro,ro", _ONE, _products(1))
def backward_weight(x: Array, y: Array, dy: Array) -> Array:
    """The dw of backward alone."""
    return x.T @ (dy * (1 - y * y))


@_operation("dx, dw", "io,ri,ro,ro", _TWO, _products(2))
def backward(w: Array, x: Array, y: Array, dy: Array) -> tuple[Array, Array]:
    """The gradients of forward."""
    return backward_input(w, y, dy), backward_weight(x, y, dy)


@_operation("w", "io,io", "2 FLOPs per number", _each(2, "i", "o"), reused=1)
def update(w: Array, dw: Array) -> Array:
    """A step of gradient descent."""
    return w - LEARNING_RATE * dw


@_operation("w, m, v", "io,io,io,io", "10 FLOPs per number", _each(10, "i", "o"), reused=3)
def adam(w: Array, m: Array, v: Array, dw: Array) -> tuple[Array, Array, Array]:
    """A step of Adam."""
    m, v = 0.9 * m + 0.1 * dw, 0.99 * v + 0.01 * dw * dw
    return w - LEARNING_RATE * m / (np.sqrt(v) + 1e-6), m, v


_ATTEND = "4 * (rows of q) * (rows of k) * width FLOPs"


@_operation("partial", "qd,kd,kd", _ATTEND, _each(4, "q", "k", "d"))
def attend(q: Array, k: Array, v: Array) -> Array:
    """The attention of q to these rows of k and v, as sums."""
    if not len(k):
        raise WrongCallError("attend: k and v have no rows, so there is nothing to attend to.")
    scores = q @ k.T / math.sqrt(q.shape[1])
    top = scores.max(axis=1, keepdims=True)
    weights = np.exp(scores - top)
    return np.concatenate([weights @ v, weights.sum(axis=1, keepdims=True), top], axis=1)


@_operation("partial", "qp,qp", "3 FLOPs per number", _each(3, "q", "p"), reused=1)
def merge(partial: Array, other: Array) -> Array:
    """Two partial results of the same q as one."""
    top = np.maximum(partial[:, -1:], other[:, -1:])
    one, two = (each[:, :-1] * np.exp(each[:, -1:] - top) for each in (partial, other))
    return np.concatenate([one + two, top], axis=1)


@_operation("out", "qp", "1 FLOP per number", _each(1, "q", "p"))
def finish(partial: Array) -> Array:
    """The sums of a partial result, divided."""
    return partial[:, :-2] / partial[:, -2:-1]


MOST_BYTES = 5_000_000
"""Bytes that a rank may hold at all: more than ten times the largest budget."""


class Local(NamedTuple):
    """What a call gives that needs no other rank.

    Attributes:
        arrays: The results.
        flops: The cost.
        reused: How many of the operands' places the results take.
    """

    arrays: list[Array]
    flops: float = 0.0
    reused: int = 1


def local(kind: str, name: str, given: Sequence[Array], parts: int, sizes: Sequence[int]) -> Local:
    """Carry out a call that needs no other rank.

    Args:
        kind: `compute`, `add`, `split` or `join`.
        name: Of the operation, for `compute`.
        given: The operands.
        parts: How many, for `split`.
        sizes: Their rows, for `split`; none for equal parts.

    Raises:
        WrongCallError: If that can't be.
    """
    if kind == "compute":
        return _compute(OPERATIONS[name], given)
    if kind == "split":
        return Local(_split(given[0], parts, sizes))
    shapes = " and ".join(str(array.shape) for array in given[:8])
    if kind == "add":
        one, other = given
        if one.shape != other.shape:
            raise WrongCallError(
                f"add: the tensors have the shapes {shapes}; give two of the same shape."
            )
        return Local([one + other], one.size)
    if len({array.shape[1:] for array in given}) != 1:
        raise WrongCallError(
            f"join: the tensors have the shapes {shapes}; give tensors that differ in the number "
            "of rows alone."
        )
    return Local([np.concatenate(given)], reused=len(given))


def _compute(operation: Operation, given: Sequence[Array]) -> Local:
    lengths = operation.lengths([array.shape for array in given])
    largest = BYTES_PER_NUMBER * math.prod(sorted(lengths.values())[-2:])
    if largest > MOST_BYTES:
        raise WrongCallError(
            f"{operation.name}: these tensors are too large: it would make {largest:,} bytes, and "
            f"a rank has room for {MOST_BYTES:,}."
        )
    with np.errstate(all="ignore"):
        made = operation.apply(*given)
    arrays = list(made) if isinstance(made, tuple) else [made]
    return Local(arrays, operation.flops(lengths), operation.reused)


def _split(array: Array, parts: int, sizes: Sequence[int]) -> list[Array]:
    rows = len(array)
    if not sizes:
        if not 1 <= parts <= max(rows, 1) or rows % parts:
            raise WrongCallError(f"split: {rows} rows do not divide into {parts} equal parts.")
        return np.split(array, parts)
    if sum(sizes) != rows or min(sizes) < 0:
        shown = ", ".join(map(str, sizes[:8])) + ", ..." * (len(sizes) > 8)
        raise WrongCallError(
            f"split: parts of [{shown}] rows are not the {rows} rows of the tensor."
        )
    return np.split(array, np.cumsum(sizes)[:-1])
