"""The data of the eleven puzzles, and what one process makes of them."""

import functools
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from distlab.puzzles import operations
from distlab.puzzles.operations import Array
from distlab.puzzles.puzzle import Instance, Made, Puzzle, Right, Score

# Puzzles 1, 9 and 10: moving data alone.


def all_reduce(random: np.random.Generator, size: int) -> Instance:
    """Every rank has a gradient, and all want the sum."""
    gradients = random.standard_normal((size, 48, 64))
    total = Made(lambda times: np.tensordot(times, gradients, axes=1), size)
    return Instance([{"gradient": g} for g in gradients], [{"sum": total}] * size)


def ring_attention(random: np.random.Generator, size: int) -> Instance:
    """Every rank has 64 rows of a sequence."""
    q, k, v = random.standard_normal((3, size, 64, 16))

    def attended(mine: Array) -> Made:
        def make(times: Sequence[float]) -> Array:
            blocks = [rank for rank, count in enumerate(times) for _ in range(int(count))]
            if not blocks:
                return np.zeros_like(mine)
            keys, values = (np.concatenate([each[rank] for rank in blocks]) for each in (k, v))
            return operations.finish(operations.attend(mine, keys, values))

        return Made(make, size, "keys and values")

    given = [{"q": q[rank], "k": k[rank], "v": v[rank]} for rank in range(size)]
    return Instance(given, [{"out": attended(mine)} for mine in q])


def routing(size: int) -> list[list[int]]:
    """How many tokens of each rank go to each expert, two experts to a rank.

    Half of all tokens want expert 0, and the others are spread unevenly.
    """
    counts = []
    for rank in range(size):
        rest = [4 + 4 * ((rank + expert) % 3) for expert in range(1, 2 * size)]
        counts.append([sum(rest), *rest])
    return counts


def counts_table(size: int) -> list[list[str]]:
    """The counts as they are shown."""
    rows = [[f"rank {r}", *map(str, counts)] for r, counts in enumerate(routing(size))]
    return [["counts for expert", *map(str, range(2 * size))], *rows]


def experts(random: np.random.Generator, size: int) -> Instance:
    """Every rank has tokens for all experts, and owns two experts."""
    counts = routing(size)
    weights = random.standard_normal((2 * size, 64, 64)) / 8
    given, expected = [], []
    for rank in range(size):
        tokens = [random.standard_normal((count, 64)) for count in counts[rank]]
        own = {expert: weights[expert] for expert in (2 * rank, 2 * rank + 1)}
        given.append({"tokens": tokens, "experts": own, "counts": counts})
        out = [operations.forward(w, x) for w, x in zip(weights, tokens, strict=True)]
        expected.append({"out": out})
    return Instance(given, expected)


# Puzzles 2, 3, 4, 5 and 8: the same layers on all ranks, each with its own examples.


def weight(random: np.random.Generator, rows: int, columns: int) -> Array:
    """A weight that keeps the size of what goes through it."""
    made: Array = random.standard_normal((rows, columns)) / np.sqrt(rows)
    return made


def gradients(
    weights: Sequence[Array], x: Array, target: Array, *, blocks: bool = False
) -> list[Array]:
    """The gradient of each weight of a stack of layers, in one process.

    With blocks, two layers are a block `tanh(x @ a) @ b`: every second one has no tanh.
    """
    activations = [x]
    for i, w in enumerate(weights):
        layer = operations.linear if blocks and i % 2 else operations.forward
        activations.append(layer(w, activations[-1]))
    dy = operations.loss(activations[-1], target)
    found = []
    for i in reversed(range(len(weights))):
        w, x, y = weights[i], activations[i], activations[i + 1]
        if blocks and i % 2:
            dy, dw = operations.linear_backward(w, x, dy)
        else:
            dy, dw = operations.backward(w, x, y, dy)
        found.append(dw)
    return found[::-1]


def updated(step: Callable[[Array], Array], slopes: Sequence[Array], of: str = "rank") -> Made:
    """A weight after a step with a sum of gradients: one for each rank, or for something else."""

    def make(times: Sequence[float]) -> Array:
        return step(np.tensordot(times, slopes, axes=1))

    return Made(make, len(slopes), "gradients", of)


def data_parallel(
    random: np.random.Generator, size: int, layers: int, width: int, rows: int, adam: bool = False
) -> Instance:
    """Every rank has all the weights, and examples of its own, and for Adam rows of its state."""
    weights = [weight(random, width, width) for _ in range(layers)]
    xs, targets = random.standard_normal((2, size, rows, width))
    m = random.standard_normal((layers, width, width))
    v = np.square(random.standard_normal((layers, width, width))) + 0.1
    slopes = [gradients(weights, x, target) for x, target in zip(xs, targets, strict=True)]
    after = []
    for i, w in enumerate(weights):

        def step(dw: Array, i: int = i, w: Array = w) -> Array:
            return operations.adam(w, m[i], v[i], dw)[0] if adam else operations.update(w, dw)

        after.append(updated(step, [each[i] for each in slopes]))
    given = [{"weights": weights, "x": xs[rank], "target": targets[rank]} for rank in range(size)]
    if adam:
        for rank, own in enumerate(given):
            own["m"], own["v"] = ([np.split(w, size)[rank] for w in state] for state in (m, v))
    return Instance(given, [{"weights": after}] * size)


def zero3(random: np.random.Generator, size: int) -> Instance:
    """The weights are sharded."""
    task = data_parallel(random, size, layers=6, width=64, rows=16)
    after: Any = task.expected[0]["weights"]
    given, expected = [], []
    for rank, own in enumerate(task.given):
        shards = [np.split(w, size)[rank] for w in own["weights"]]
        given.append({"shards": shards, "x": own["x"], "target": own["target"]})

        def part(whole: Made, rank: int = rank) -> Made:
            return replace(whole, make=lambda times: np.split(whole.make(times), size)[rank])

        expected.append({"shards": [part(w) for w in after]})
    return Instance(given, expected)


# Puzzles 6, 7 and 11: a model that is spread over ranks.


def column_row(random: np.random.Generator, size: int) -> Instance:
    """One block, its inner width divided among the ranks."""
    a, b = weight(random, 64, 256), weight(random, 256, 64)
    x, target = random.standard_normal((2, 32, 64))
    da, db = gradients([a, b], x, target, blocks=True)
    z = operations.forward(a, x)
    dz, _ = operations.linear_backward(b, z, operations.loss(operations.linear(b, z), target))
    dx = [
        operations.backward_input(*(np.split(each, size, axis=1)[rank] for each in (a, z, dz)))
        for rank in range(size)
    ]
    inputs = Made(lambda times: np.tensordot(times, dx, axes=1), size)
    given, expected = [], []
    for rank in range(size):
        columns = functools.partial(_part, rank, size, axis=1)
        rows = functools.partial(_part, rank, size, axis=0)
        given.append({"a": columns(a), "b": rows(b), "x": x, "target": target})
        after = operations.update(columns(a), columns(da)), operations.update(rows(b), rows(db))
        results: dict[str, Right] = {"a": after[0], "b": after[1], "dx": inputs}
        expected.append(results)
    return Instance(given, expected)


def _part(index: int, count: int, whole: Array, axis: int) -> Array:
    return np.split(whole, count, axis=axis)[index]


def pipeline(random: np.random.Generator, size: int) -> Instance:
    """Each rank is a stage of one layer, through which eight micro-batches go."""
    count = 8
    weights = [weight(random, 64, 64) for _ in range(size)]
    batches, targets = random.standard_normal((2, count, 32, 64))
    slopes = [gradients(weights, x, target) for x, target in zip(batches, targets, strict=True)]
    given = [
        {
            "w": weights[rank],
            "count": count,
            "batches": list(batches) if rank == 0 else [],
            "targets": list(targets) if rank == size - 1 else [],
        }
        for rank in range(size)
    ]
    after = [
        updated(functools.partial(operations.update, w), [s[i] for s in slopes], "micro-batch")
        for i, w in enumerate(weights)
    ]
    return Instance(given, [{"w": w} for w in after])


def two_two_two(random: np.random.Generator, size: int) -> Instance:
    """Replicas of two stages of a block each, which two ranks share."""
    replicas, width, inner, rows, count = size // 4, 32, 128, 32, 6
    weights = [weight(random, *shape) for shape in ((width, inner), (inner, width)) * 2]
    batches, targets = random.standard_normal((2, replicas, count, rows, width))
    every = zip(batches.reshape(-1, rows, width), targets.reshape(-1, rows, width), strict=True)
    slopes = [gradients(weights, x, target, blocks=True) for x, target in every]
    given, expected = [], []
    for rank in range(size):
        data, stage, tensor = rank // 4, rank // 2 % 2, rank % 2
        own, after = {}, {}
        for i, name in enumerate("ab"):
            part = functools.partial(_part, tensor, 2, axis=1 - i)
            own[name] = part(weights[2 * stage + i])
            step = functools.partial(operations.update, own[name])
            parts = [part(each[2 * stage + i]) for each in slopes]
            after[name] = updated(step, parts, "micro-batch")
        told = {
            "data": data,
            "stage": stage,
            "tensor": tensor,
            "groups": {
                "data": list(range(rank % 4, size, 4)),
                "tensor": [rank - tensor, rank - tensor + 1],
            },
            "across": rank + 2 if stage == 0 else rank - 2,
            "count": count,
            "batches": list(batches[data]) if stage == 0 else [],
            "targets": list(targets[data]) if stage == 1 else [],
        }
        given.append(own | told)
        expected.append(after)
    return Instance(given, expected)


_DRAW: Sequence[Callable[[np.random.Generator, int], Instance]] = (
    all_reduce,
    functools.partial(data_parallel, layers=4, width=32, rows=128),
    functools.partial(data_parallel, layers=4, width=64, rows=16),
    functools.partial(data_parallel, layers=6, width=64, rows=16, adam=True),
    zero3,
    column_row,
    pipeline,
    functools.partial(data_parallel, layers=25, width=8, rows=256),
    ring_attention,
    experts,
    two_two_two,
)


def _read() -> dict[int, Puzzle]:
    """Put the words of each puzzle and its data together."""
    words = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))
    puzzles = {}
    for number, draw in enumerate(_DRAW, 1):
        told = words[str(number)]
        for name in ("budgets", "reference"):
            told[name] = {int(size): Score(*score) for size, score in told[name].items()}
        table = counts_table if draw is experts else None
        puzzles[number] = Puzzle(number=number, draw=draw, table=table, **told)
    return puzzles


PUZZLES = _read()
"""All puzzles, by number."""
