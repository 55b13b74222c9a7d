"""Puzzles 6, 7 and 11: a model that is spread over ranks."""

import functools
from collections.abc import Sequence

import numpy as np

from distlab.puzzles import operations
from distlab.puzzles.operations import Array
from distlab.puzzles.puzzle import COLLECTIVES, MOVES, Made, Puzzle, Score, Task
from distlab.puzzles.training import gradients, updated, weight

_BLOCK = (
    "forward",
    "linear",
    "loss",
    "linear_backward",
    "backward",
    "backward_input",
    "backward_weight",
    "update",
)
Block = tuple[Array, Array]
"""The two weights of a block: it gives `tanh(x @ a) @ b`."""


def block_gradients(blocks: Sequence[Block], x: Array, target: Array) -> tuple[list[Block], Array]:
    """The gradients of a stack of blocks, and that of its inputs, in one process."""
    saved = []
    for a, b in blocks:
        z = operations.forward(a, x)
        saved.append((x, z))
        x = operations.linear(b, z)
    dy = operations.loss(x, target)
    found = []
    for (a, b), (x, z) in zip(reversed(blocks), reversed(saved), strict=True):
        dz, db = operations.linear_backward(b, z, dy)
        dy, da = operations.backward(a, x, z, dz)
        found.append((da, db))
    return found[::-1], dy


def column_row(random: np.random.Generator, size: int) -> Task:
    """One block, its inner width divided among the ranks."""
    a, b = weight(random, 64, 256), weight(random, 256, 64)
    x, target = random.standard_normal((2, 32, 64))
    [(da, db)], _ = block_gradients([(a, b)], x, target)
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
        expected.append({"a": after[0], "b": after[1], "dx": inputs})
    return Task(given, expected)


def _part(index: int, count: int, whole: Array, axis: int) -> Array:
    return np.split(whole, count, axis=axis)[index]


TENSOR_PARALLEL = Puzzle(
    number=6,
    title="Column and row parallel",
    sentence=(
        "A block gives y = tanh(x @ a) @ b, where a is 64 x 256 and b is 256 x 64. Each rank has "
        "some columns of a and the same rows of b; x is the same on every rank. Make one step, "
        "and send as little as possible."
    ),
    draw=column_row,
    given={
        "a": "this rank's columns of a, 64 x (256 / me.size)",
        "b": "this rank's rows of b, (256 / me.size) x 64",
        "x": "32 examples, the same on every rank, 32 x 64",
        "target": "what should come out, 32 x 64",
    },
    results={
        "a": "this rank's columns after the step",
        "b": "this rank's rows after the step",
        "dx": "the gradient of x, complete, on every rank",
    },
    calls=(*MOVES, *COLLECTIVES),
    operations=_BLOCK,
    stub="""\
def solve(me):
    z = me.compute("forward", me.a, me.x)
    y = me.compute("linear", me.b, z)
    dy = me.compute("loss", y, me.target)
    dz, db = me.compute("linear_backward", me.b, z, dy)
    dx, da = me.compute("backward", me.a, me.x, z, dz)
    me.keep("dx", dx)
    me.keep("a", me.compute("update", me.a, da))
    me.keep("b", me.compute("update", me.b, db))
""",
    hints=(
        "Write down the shapes on one rank: z has this rank's columns of tanh(x @ a), complete. "
        "And y? It has the right shape already. What is missing in its numbers?",
        "y is a sum over the inner width, and each rank has the summands of its own rows. The "
        "loss needs the complete y. Nothing else is missing in the forward pass.",
        "In the backward pass dy is the same on every rank, so dz, da and db are complete. dx "
        "is a sum over the inner width again. That makes two all-reduces in all.",
    ),
    budgets={2: Score(850.0, 229_376, 16_384), 4: Score(480.0, 139_264, 24_576)},
    reference={2: Score(804.5, 204_800, 16_384), 4: Score(444.5, 122_880, 24_576)},
)


def pipeline(random: np.random.Generator, size: int) -> Task:
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
    return Task(given, [{"w": w} for w in after])


PIPELINE = Puzzle(
    number=7,
    title="Pipeline: from GPipe to 1F1B",
    sentence=(
        "Each rank is a stage of one layer. Eight micro-batches go through all stages and back. "
        "Keep every stage busy, but do not hold the activations of all micro-batches at the "
        "same time."
    ),
    draw=pipeline,
    given={
        "w": "the layer of this stage, 64 x 64",
        "count": "the number of micro-batches, 8",
        "batches": "on rank 0 the micro-batches, 32 x 64; elsewhere an empty list",
        "targets": "on the last rank what should come out; elsewhere an empty list",
    },
    results={"w": "the layer after the step"},
    calls=("send", "receive", "add"),
    operations=("forward", "loss", "backward", "backward_input", "backward_weight", "update"),
    stub="""\
def solve(me):
    for i in range(me.count):
        x = me.batches[i] if me.rank == 0 else me.receive(me.rank - 1)
        y = me.compute("forward", me.w, x)
        if me.rank < me.size - 1:
            me.send(me.rank + 1, y)
    # And back: the loss on the last rank, then backward through all stages.
    me.keep("w", me.w)
""",
    hints=(
        "First make it right: all forwards, then all backwards, which is GPipe. Keep x and y of "
        "each micro-batch in a list; the gradients of w add up over the micro-batches. It is "
        "just quick enough, but it holds too much.",
        "The last stage can carry out the backward of a micro-batch right after its forward. "
        "The stage before it has to be one forward ahead, and rank r has to be size - 1 - r "
        "ahead.",
        "So three loops: as many forwards as this rank has to be ahead; then one forward and "
        "one backward in turn; then the backwards that are left. A function each for the "
        "forward and the backward of the next micro-batch keeps it short. Pop what you have "
        "saved, so that nothing holds it.",
    ),
    budgets={2: Score(2000.0, 163_840, 65_536), 4: Score(2600.0, 180_224, 131_072)},
    reference={2: Score(1888.5, 147_456, 65_536), 4: Score(2436.0, 163_840, 131_072)},
)


def two_two_two(random: np.random.Generator, size: int) -> Task:
    """Replicas of two stages of a block each, which two ranks share."""
    replicas, width, inner, rows, count = size // 4, 32, 128, 32, 6
    blocks = [(weight(random, width, inner), weight(random, inner, width)) for _ in range(2)]
    batches, targets = random.standard_normal((2, replicas, count, rows, width))
    every = zip(batches.reshape(-1, rows, width), targets.reshape(-1, rows, width), strict=True)
    slopes = [block_gradients(blocks, x, target)[0] for x, target in every]
    given, expected = [], []
    for rank in range(size):
        data, stage, tensor = rank // 4, rank // 2 % 2, rank % 2
        own, after = {}, {}
        for i, name in enumerate("ab"):
            part = functools.partial(_part, tensor, 2, axis=1 - i)
            own[name] = part(blocks[stage][i])
            step = functools.partial(operations.update, own[name])
            after[name] = updated(step, [part(each[stage][i]) for each in slopes], "micro-batch")
        groups = {
            "data": list(range(rank % 4, size, 4)),
            "tensor": [rank - tensor, rank - tensor + 1],
        }
        given.append(
            {
                **own,
                "batches": list(batches[data]) if stage == 0 else [],
                "targets": list(targets[data]) if stage == 1 else [],
                "data": data,
                "stage": stage,
                "tensor": tensor,
                "count": count,
                "across": rank + 2 if stage == 0 else rank - 2,
                "groups": groups,
            }
        )
        expected.append(after)
    return Task(given, expected)


TWO_TWO_TWO = Puzzle(
    number=11,
    title="2 x 2 x 2",
    sentence=(
        "Data, tensor and pipeline parallel at once, within all three budgets. The pipeline has "
        "two stages of one block each, as in puzzle 6, and two ranks share each block. Six "
        "micro-batches go through each of two replicas; it is also checked with one replica, on "
        "four ranks."
    ),
    draw=two_two_two,
    given={
        "data, stage, tensor": "where this rank is: replica, stage, and which part of the block",
        "groups": 'groups["tensor"]: the ranks that share this block; groups["data"]: those with '
        "the same part in all replicas",
        "across": "the rank with the same part in the other stage of this replica",
        "a, b": "of its stage, this rank's columns of a, 32 x 64, and rows of b, 64 x 32",
        "count": "the number of micro-batches of a replica, 6",
        "batches": "in stage 0 the micro-batches of this replica, 32 x 32; else an empty list",
        "targets": "in stage 1 what should come out; else an empty list",
    },
    results={"a": "this rank's columns after the step", "b": "this rank's rows after the step"},
    calls=("send", "receive", *MOVES, *COLLECTIVES),
    operations=_BLOCK,
    stub="""\
def solve(me):
    for i in range(me.count):
        x = me.batches[i] if me.stage == 0 else me.receive(me.across)
        z = me.compute("forward", me.a, x)
        y = me.all_reduce(me.compute("linear", me.b, z), group=me.groups["tensor"])
        if me.stage == 0:
            me.send(me.across, y)
    me.keep("a", me.a)
    me.keep("b", me.b)
""",
    hints=(
        'Begin with what you have: the block of puzzle 6 with group=me.groups["tensor"], the '
        "schedule of puzzle 7 for two stages, and the gradients added over the micro-batches.",
        "Stage 0 is one forward ahead of stage 1. Only the sum over all micro-batches is "
        'reduced over me.groups["data"], as in puzzle 2.',
        "Start the all-reduces over the replicas in the backward of the last micro-batch, and "
        "update after that. Save x and z, and y only in stage 1. The gradient of x is needed in "
        "stage 1 alone: stage 0 has nobody to send it to, so it need not reduce it.",
    ),
    budgets={4: Score(1650.0, 118_784, 73_728), 8: Score(1700.0, 118_784, 90_112)},
    reference={4: Score(1540.5, 106_496, 73_728), 8: Score(1575.5, 106_496, 90_112)},
)
