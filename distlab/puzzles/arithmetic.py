"""What ranks can compute: each operation's shapes, its cost, and the NumPy that carries it out.

Arrays have an axis more than the tensors that ranks know: several draws of the data go through one
run, for a rank's program can't depend on numbers. Results are in float64, but every elementary one
is rounded at random near float32's last bit: a tensor counts four bytes a number, and can't carry
more than fits into them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Round = Callable[[Array], Array]
BYTES_PER_NUMBER = 4
LEARNING_RATE = 0.01
_LAST_BIT = 2.0**-24
_STORE = 1 << 18
"""Random factors; larger tensors use them again."""


class WrongCallError(Exception):
    """A call that can't be carried out: its message is for the solver."""


@dataclass(frozen=True)
class Operation:
    """Something that `me.compute` does.

    Attributes:
        name: What it is called.
        operands: The names of its tensors.
        signature: The letters of their axes, as in einsum: the same letter is the same length.
        results: How many tensors it gives.
        flops: What it costs, from the lengths.
        price: The same in words.
        apply: Takes arrays and the source of rounding, and gives arrays.
        reused: How many of the first operands' places the results take.
    """

    name: str
    operands: tuple[str, ...]
    signature: str
    results: int
    flops: Callable[[Mapping[str, int]], float]
    price: str
    apply: Callable[[Sequence[Array], Round], list[Array]]
    reused: int = 0

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.operands)})"

    def lengths(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
        """The length of each axis, by its letter.

        Raises:
            WrongCallError: If the shapes do not go together.
        """
        if len(shapes) != len(self.operands):
            raise WrongCallError(f"{self} takes {_tensors(len(self.operands))}, not {len(shapes)}.")
        found: dict[str, int] = {}
        for letters, shape in zip(self.signature.split(","), shapes, strict=True):
            if len(letters) != len(shape) or any(
                found.setdefault(letter, length) != length
                for letter, length in zip(letters, shape, strict=True)
            ):
                given = [f"{n} {s}" for n, s in zip(self.operands, shapes, strict=True)]
                wanted = [
                    f"{name} ({', '.join(axes)})"
                    for name, axes in zip(self.operands, self.signature.split(","), strict=True)
                ]
                raise WrongCallError(
                    f"{self.name}: these shapes do not go together: {', '.join(given)}. "
                    f"It takes {', '.join(wanted)}, where the same letter is the same length."
                )
        return found


def _tensors(count: int) -> str:
    return f"{count} tensor{'s' * (count != 1)}"


class Rounding:
    """Rounds at random near float32's last bit, so that nothing hides below it.

    Args:
        generator: Where the randomness comes from.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator
        self._factors = 1.0 + generator.uniform(-_LAST_BIT, _LAST_BIT, _STORE)

    def __call__(self, exact: Array) -> Array:
        """Round an array."""
        # Drawing anew each time would take longer than all else.
        place = int(self._generator.integers(max(1, _STORE - exact.size)))
        factors = np.resize(self._factors[place:], exact.size)
        rounded: Array = exact * factors.reshape(exact.shape)
        return rounded


def exactly(values: Array) -> Array:
    """No rounding, for the serial results that others are compared with."""
    return values


def transposed(values: Array) -> Array:
    """Each draw's matrix, transposed."""
    return np.swapaxes(values, -1, -2)


def _forward(operands: Sequence[Array], about: Round) -> list[Array]:
    w, x = operands
    return [about(np.tanh(about(x @ w)))]


def _linear(operands: Sequence[Array], about: Round) -> list[Array]:
    w, x = operands
    return [about(x @ w)]


def _loss(operands: Sequence[Array], about: Round) -> list[Array]:
    y, target = operands
    return [about(y - target)]


def _slope(y: Array, dy: Array, about: Round) -> Array:
    return about(dy * about(1.0 - about(y * y)))


def _backward_input(operands: Sequence[Array], about: Round) -> list[Array]:
    w, y, dy = operands
    return [about(_slope(y, dy, about) @ transposed(w))]


def _backward_weight(operands: Sequence[Array], about: Round) -> list[Array]:
    x, y, dy = operands
    return [about(transposed(x) @ _slope(y, dy, about))]


def _backward(operands: Sequence[Array], about: Round) -> list[Array]:
    w, x, y, dy = operands
    return [*_backward_input([w, y, dy], about), *_backward_weight([x, y, dy], about)]


def _linear_backward(operands: Sequence[Array], about: Round) -> list[Array]:
    w, x, dy = operands
    return [about(dy @ transposed(w)), about(transposed(x) @ dy)]


def _update(operands: Sequence[Array], about: Round) -> list[Array]:
    w, dw = operands
    return [about(w - about(LEARNING_RATE * dw))]


def _adam(operands: Sequence[Array], about: Round) -> list[Array]:
    w, m, v, dw = operands
    m = about(about(0.9 * m) + about(0.1 * dw))
    v = about(about(0.99 * v) + about(0.01 * about(dw * dw)))
    return [about(w - about(LEARNING_RATE * about(m / about(np.sqrt(v) + 1e-6)))), m, v]


def _attend(operands: Sequence[Array], about: Round) -> list[Array]:
    q, k, v = operands
    if not k.shape[-2]:
        raise WrongCallError("attend: k and v have no rows, so there is nothing to attend to.")
    scores = about(about(q @ transposed(k)) / np.sqrt(q.shape[-1]))
    top = scores.max(axis=-1, keepdims=True)
    weights = about(np.exp(scores - top))
    total = about(weights.sum(axis=-1, keepdims=True))
    return [np.concatenate([about(weights @ v), total, top], axis=-1)]


def _merge(operands: Sequence[Array], about: Round) -> list[Array]:
    one, other = operands
    top = np.maximum(one[..., -1:], other[..., -1:])
    parts = [about(p[..., :-1] * about(np.exp(p[..., -1:] - top))) for p in (one, other)]
    return [np.concatenate([about(parts[0] + parts[1]), top], axis=-1)]


def _finish(operands: Sequence[Array], about: Round) -> list[Array]:
    (partial,) = operands
    return [about(partial[..., :-2] / partial[..., -2:-1])]


def _matmuls(count: int) -> Callable[[Mapping[str, int]], float]:
    return lambda n: 2.0 * count * n["r"] * n["i"] * n["o"]


def _each(count: int, *letters: str) -> Callable[[Mapping[str, int]], float]:
    return lambda n: float(count * np.prod([n[letter] for letter in letters]))


_ONE, _TWO = "2 * rows * in * out FLOPs", "4 * rows * in * out FLOPs"
OPERATIONS: dict[str, Operation] = {
    each.name: each
    for each in (
        Operation("forward", ("w", "x"), "io,ri", 1, _matmuls(1), _ONE, _forward),
        Operation("expert", ("w", "x"), "io,ri", 1, _matmuls(1), _ONE, _forward),
        Operation("linear", ("w", "x"), "io,ri", 1, _matmuls(1), _ONE, _linear),
        Operation(
            "loss", ("y", "target"), "ro,ro", 1, _each(1, "r", "o"), "1 FLOP per number", _loss
        ),
        Operation(
            "backward", ("w", "x", "y", "dy"), "io,ri,ro,ro", 2, _matmuls(2), _TWO, _backward
        ),
        Operation(
            "backward_input", ("w", "y", "dy"), "io,ro,ro", 1, _matmuls(1), _ONE, _backward_input
        ),
        Operation(
            "backward_weight", ("x", "y", "dy"), "ri,ro,ro", 1, _matmuls(1), _ONE, _backward_weight
        ),
        Operation(
            "linear_backward", ("w", "x", "dy"), "io,ri,ro", 2, _matmuls(2), _TWO, _linear_backward
        ),
        Operation(
            "update",
            ("w", "dw"),
            "io,io",
            1,
            _each(2, "i", "o"),
            "2 FLOPs per number",
            _update,
            reused=1,
        ),
        Operation(
            "adam",
            ("w", "m", "v", "dw"),
            "io,io,io,io",
            3,
            _each(10, "i", "o"),
            "10 FLOPs per number",
            _adam,
            reused=3,
        ),
        Operation(
            "attend",
            ("q", "k", "v"),
            "qd,kd,kd",
            1,
            _each(4, "q", "k", "d"),
            "4 * (rows of q) * (rows of k) * width FLOPs",
            _attend,
        ),
        Operation(
            "merge",
            ("partial", "other"),
            "qp,qp",
            1,
            _each(3, "q", "p"),
            "3 FLOPs per number",
            _merge,
            reused=1,
        ),
        Operation(
            "finish", ("partial",), "qp", 1, _each(1, "q", "p"), "1 FLOP per number", _finish
        ),
    )
}
"""Everything that `me.compute` can do in some puzzle."""


def serially(name: str, *operands: Array) -> list[Array]:
    """Carry out an operation without rounding.

    Args:
        name: Its name in `OPERATIONS`.
        operands: Arrays of the shape (draws, rows, columns).

    Returns:
        Its results.
    """
    return OPERATIONS[name].apply(operands, exactly)
