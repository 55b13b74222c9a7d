"""The puzzles about models that are spread over ranks: 6, 7 and 11."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from distlab.puzzles.arithmetic import Array, serially
from distlab.puzzles.tasks import Given, PuzzleTask, RandomData
from distlab.puzzles.training import gradients, pieces, updated


def columns(values: Array, count: int) -> list[Array]:
    """Equal parts of an array along its columns."""
    return np.split(values, count, axis=2)


Block = tuple[Array, Array]
"""The two weights of a block: it gives `tanh(x @ a) @ b`."""


def blocks_gradients(blocks: Sequence[Block], x: Array, target: Array) -> tuple[list[Block], Array]:
    """Carry out a forward and a backward pass of blocks of two layers each, serially.

    Args:
        blocks: The weights, a (draws, in, inner) and b (draws, inner, in).
        x: The inputs, (draws, rows, in).
        target: What should come out, (draws, rows, in).

    Returns:
        The gradients of the blocks' weights, and that of the inputs.
    """
    saved = []
    for a, b in blocks:
        (z,) = serially("forward", a, x)
        saved.append((x, z))
        (x,) = serially("linear", b, z)
    (dy,) = serially("loss", x, target)
    found = []
    for (a, b), (x, z) in zip(reversed(blocks), reversed(saved), strict=True):
        dz, db = serially("linear_backward", b, z, dy)
        dy, da = serially("backward", a, x, z, dz)
        found.append((da, db))
    return found[::-1], dy


def column_row(drawing: RandomData, size: int) -> PuzzleTask:
    """Draw puzzle 6: one block, its inner width divided among the ranks."""
    width, inner, rows = 64, 256, 32
    a, b = drawing.weights(width, inner), drawing.weights(inner, width)
    x, target = drawing.normal(rows, width), drawing.normal(rows, width)
    [(da, db)], dx = blocks_gradients([(a, b)], x, target)
    new_a, new_b = updated([a, b], [da, db])
    given: list[dict[str, Given]] = []
    expected: list[dict[str, Array | list[Array]]] = []
    for rank in range(size):
        given.append(
            {
                "a": columns(a, size)[rank],
                "b": pieces(b, size)[rank],
                "x": x,
                "target": target,
            }
        )
        expected.append({"a": columns(new_a, size)[rank], "b": pieces(new_b, size)[rank], "dx": dx})
    return PuzzleTask(given, expected)


def pipeline(drawing: RandomData, size: int) -> PuzzleTask:
    """Draw puzzle 7: each rank is a stage of one layer, through which eight batches go."""
    width, rows, count = 64, 32, 8
    weights = [drawing.weights(width, width) for _ in range(size)]
    batches = [drawing.normal(rows, width) for _ in range(count)]
    targets = [drawing.normal(rows, width) for _ in range(count)]
    slopes, _ = gradients(weights, np.concatenate(batches, axis=1), np.concatenate(targets, axis=1))
    after = updated(weights, slopes)
    given: list[dict[str, Given]] = [
        {
            "w": weights[rank],
            "batches": batches if rank == 0 else [],
            "targets": targets if rank == size - 1 else [],
        }
        for rank in range(size)
    ]
    return PuzzleTask(given, [{"w": w} for w in after], [{"count": count} for _ in range(size)])


def two_two_two(drawing: RandomData, size: int) -> PuzzleTask:
    """Draw puzzle 11: replicas of two stages of a block each, which two ranks share."""
    replicas, width, inner, rows, count = size // 4, 32, 128, 32, 6
    blocks = [(drawing.weights(width, inner), drawing.weights(inner, width)) for _ in range(2)]
    batches = [[drawing.normal(rows, width) for _ in range(count)] for _ in range(replicas)]
    targets = [[drawing.normal(rows, width) for _ in range(count)] for _ in range(replicas)]
    slopes, _ = blocks_gradients(
        blocks,
        np.concatenate([x for each in batches for x in each], axis=1),
        np.concatenate([t for each in targets for t in each], axis=1),
    )
    given: list[dict[str, Given]] = []
    expected: list[dict[str, Array | list[Array]]] = []
    facts: list[dict[str, Any]] = []
    for rank in range(size):
        data, stage, tensor = rank // 4, rank // 2 % 2, rank % 2
        a, b = blocks[stage]
        new_a, new_b = updated(blocks[stage], slopes[stage])
        given.append(
            {
                "a": columns(a, 2)[tensor],
                "b": pieces(b, 2)[tensor],
                "batches": batches[data] if stage == 0 else [],
                "targets": targets[data] if stage == 1 else [],
            }
        )
        expected.append({"a": columns(new_a, 2)[tensor], "b": pieces(new_b, 2)[tensor]})
        facts.append(
            {
                "data": data,
                "stage": stage,
                "tensor": tensor,
                "count": count,
                "across": rank + 2 if stage == 0 else rank - 2,
                "groups": {
                    "data": list(range(rank % 4, size, 4)),
                    "tensor": [rank - tensor, rank - tensor + 1],
                },
            }
        )
    return PuzzleTask(given, expected, facts)
