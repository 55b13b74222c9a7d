"""The puzzles about moving data alone: 1, 9 and 10."""

from typing import Any

import numpy as np

from distlab.puzzles.arithmetic import Array, serially
from distlab.puzzles.tasks import Given, PuzzleTask, RandomData


def all_reduce(drawing: RandomData, size: int) -> PuzzleTask:
    """Draw puzzle 1: every rank has a gradient, and all want the sum."""
    gradients = [drawing.normal(48, 64) for _ in range(size)]
    total = np.sum(gradients, axis=0)
    return PuzzleTask([{"gradient": g} for g in gradients], [{"sum": total} for _ in gradients])


def ring_attention(drawing: RandomData, size: int) -> PuzzleTask:
    """Draw puzzle 9: every rank has 64 rows of a sequence."""
    rows, width = 64, 16
    q, k, v = ([drawing.normal(rows, width) for _ in range(size)] for _ in range(3))
    keys, values = np.concatenate(k, axis=1), np.concatenate(v, axis=1)
    expected: list[dict[str, Array | list[Array]]] = []
    for mine in q:
        (partial,) = serially("attend", mine, keys, values)
        expected.append({"out": serially("finish", partial)[0]})
    given: list[dict[str, Given]] = [
        {"q": q[rank], "k": k[rank], "v": v[rank]} for rank in range(size)
    ]
    return PuzzleTask(given, expected)


def routing(size: int) -> list[list[int]]:
    """How many tokens of each rank go to each expert, two experts to a rank.

    Half of all tokens want expert 0, and the others are spread unevenly: the same at each check.
    """
    experts = 2 * size
    counts = []
    for rank in range(size):
        rest = [4 + 4 * ((rank + expert) % 3) for expert in range(1, experts)]
        counts.append([sum(rest), *rest])
    return counts


def experts(drawing: RandomData, size: int) -> PuzzleTask:
    """Draw puzzle 10: every rank has tokens for all experts, and owns two experts."""
    width = 64
    counts = routing(size)
    weights = [drawing.weights(width, width) for _ in range(2 * size)]
    given: list[dict[str, Given]] = []
    expected: list[dict[str, Array | list[Array]]] = []
    facts: list[dict[str, Any]] = []
    for rank in range(size):
        tokens = [drawing.normal(count, width) for count in counts[rank]]
        own = {expert: weights[expert] for expert in (2 * rank, 2 * rank + 1)}
        given.append({"tokens": tokens, "experts": own})
        out = [serially("expert", w, x)[0] for w, x in zip(weights, tokens, strict=True)]
        expected.append({"out": out})
        facts.append({"counts": counts})
    return PuzzleTask(given, expected, facts)
