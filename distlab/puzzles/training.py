"""The puzzles about training one stack of layers on several ranks: 2, 3, 4, 5 and 8."""

from collections.abc import Sequence

import numpy as np

from distlab.puzzles.arithmetic import Array, serially
from distlab.puzzles.tasks import Given, PuzzleTask, RandomData


def gradients(weights: Sequence[Array], x: Array, target: Array) -> tuple[list[Array], Array]:
    """Carry out a forward and a backward pass of a stack of layers, serially.

    Args:
        weights: Of each layer, (draws, in, out).
        x: The inputs, (draws, rows, in).
        target: What should come out, (draws, rows, out).

    Returns:
        The gradient of each weight, and that of the inputs.
    """
    activations = [x]
    for w in weights:
        activations += serially("forward", w, activations[-1])
    (dy,) = serially("loss", activations[-1], target)
    found = []
    for i in reversed(range(len(weights))):
        dy, dw = serially("backward", weights[i], activations[i], activations[i + 1], dy)
        found.append(dw)
    return found[::-1], dy


def updated(weights: Sequence[Array], slopes: Sequence[Array]) -> list[Array]:
    """Each weight after a step of gradient descent."""
    return [serially("update", w, dw)[0] for w, dw in zip(weights, slopes, strict=True)]


def pieces(values: Array, count: int) -> list[Array]:
    """Equal parts of an array along its rows."""
    return np.split(values, count, axis=1)


def data_parallel(
    drawing: RandomData, size: int, *, layers: int, width: int, rows: int
) -> PuzzleTask:
    """Every rank has all the weights, and examples of its own.

    Args:
        drawing: Draws the data.
        size: How many ranks there are.
        layers: How many layers.
        width: Of each.
        rows: Examples of a rank.
    """
    weights = [drawing.weights(width, width) for _ in range(layers)]
    xs = [drawing.normal(rows, width) for _ in range(size)]
    targets = [drawing.normal(rows, width) for _ in range(size)]
    slopes, _ = gradients(weights, np.concatenate(xs, axis=1), np.concatenate(targets, axis=1))
    after = updated(weights, slopes)
    given: list[dict[str, Given]] = [
        {"weights": list(weights), "x": x, "target": target}
        for x, target in zip(xs, targets, strict=True)
    ]
    return PuzzleTask(given, [{"weights": after} for _ in range(size)])


def accumulation(drawing: RandomData, size: int) -> PuzzleTask:
    """Draw puzzle 2."""
    return data_parallel(drawing, size, layers=4, width=32, rows=128)


def overlap(drawing: RandomData, size: int) -> PuzzleTask:
    """Draw puzzle 3."""
    return data_parallel(drawing, size, layers=4, width=64, rows=16)


def recompute(drawing: RandomData, size: int) -> PuzzleTask:
    """Draw puzzle 8."""
    return data_parallel(drawing, size, layers=25, width=8, rows=256)


def zero2(drawing: RandomData, size: int) -> PuzzleTask:
    """Draw puzzle 4: the state of Adam is sharded."""
    task = data_parallel(drawing, size, layers=6, width=64, rows=16)
    weights = task.given[0]["weights"]
    x = np.concatenate([np.asarray(given["x"]) for given in task.given], axis=1)
    target = np.concatenate([np.asarray(given["target"]) for given in task.given], axis=1)
    assert isinstance(weights, list)
    slopes, _ = gradients(weights, x, target)
    first = [drawing.normal(64, 64) for _ in weights]
    second = [drawing.positive(64, 64) for _ in weights]
    after = [
        serially("adam", w, m, v, dw)[0]
        for w, m, v, dw in zip(weights, first, second, slopes, strict=True)
    ]
    for rank, given in enumerate(task.given):
        given["m"] = [pieces(m, size)[rank] for m in first]
        given["v"] = [pieces(v, size)[rank] for v in second]
    return PuzzleTask(task.given, [{"weights": after} for _ in range(size)])


def zero3(drawing: RandomData, size: int) -> PuzzleTask:
    """Draw puzzle 5: the weights are sharded."""
    task = data_parallel(drawing, size, layers=6, width=64, rows=16)
    given: list[dict[str, Given]] = []
    for rank, whole in enumerate(task.given):
        weights = whole["weights"]
        assert isinstance(weights, list)
        shards = [pieces(w, size)[rank] for w in weights]
        given.append({"shards": shards, "x": whole["x"], "target": whole["target"]})
    return PuzzleTask(
        given,
        [
            {"shards": [pieces(w, size)[rank] for w in expected["weights"]]}
            for rank, expected in enumerate(task.expected)
        ],
    )
