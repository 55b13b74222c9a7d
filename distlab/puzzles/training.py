"""Puzzles 2, 3, 4, 5 and 8: the same stack of layers on all ranks, each with its own examples."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from distlab.puzzles import operations
from distlab.puzzles.operations import Array
from distlab.puzzles.puzzle import COLLECTIVES, MOVES, Made, Puzzle, Score, Task

_LAYERS = ("forward", "loss", "backward", "update")
_WHOLE_BATCH = """\
def solve(me):
    saved = [me.x]
    for w in me.weights:
        saved.append(me.compute("forward", w, saved[-1]))
    dy = me.compute("loss", saved[-1], me.target)
    for i in reversed(range(len(me.weights))):
        y = saved.pop()
        dy, dw = me.compute("backward", me.weights[i], saved[-1], y, dy)
        me.weights[i] = me.compute("update", me.weights[i], me.all_reduce(dw))
    me.keep("weights", me.weights)
"""


def weight(random: np.random.Generator, rows: int, columns: int) -> Array:
    """A weight that keeps the size of what goes through it."""
    return random.standard_normal((rows, columns)) / np.sqrt(rows)


def gradients(weights: Sequence[Array], x: Array, target: Array) -> list[Array]:
    """The gradient of each weight of a stack of layers, in one process."""
    activations = [x]
    for w in weights:
        activations.append(operations.forward(w, activations[-1]))
    dy = operations.loss(activations[-1], target)
    found = []
    for i in reversed(range(len(weights))):
        dy, dw = operations.backward(weights[i], activations[i], activations[i + 1], dy)
        found.append(dw)
    return found[::-1]


def updated(step: Callable[[Array], Array], slopes: Sequence[Array], of: str = "rank") -> Made:
    """A weight after a step with a sum of gradients: one for each rank, or for something else."""

    def make(times: Sequence[float]) -> Array:
        return step(np.tensordot(times, slopes, axes=1))

    return Made(make, len(slopes), "gradients", of)


def data_parallel(
    random: np.random.Generator, size: int, layers: int, width: int, rows: int, adam: bool = False
) -> Task:
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
    return Task(given, [{"weights": after}] * size)


def accumulation(random: np.random.Generator, size: int) -> Task:
    """Few layers, many examples."""
    return data_parallel(random, size, layers=4, width=32, rows=128)


ACCUMULATION = Puzzle(
    number=2,
    title="Gradient accumulation",
    sentence=(
        "Data parallel: every rank has the same four layers and 128 examples of its own. The "
        "activations of all 128 do not fit. Make one step of gradient descent on all examples."
    ),
    draw=accumulation,
    given={
        "weights": "four layers, 32 x 32, the same on every rank",
        "x": "128 examples of this rank, 128 x 32",
        "target": "what should come out, 128 x 32",
    },
    results={"weights": "the weights after the step, on every rank"},
    calls=(*MOVES, "all_reduce"),
    operations=_LAYERS,
    stub=_WHOLE_BATCH,
    hints=(
        "The gradient of the summed loss is the sum of the gradients of its parts. So you can "
        "go through the batch in parts: me.split(me.x, 4).",
        "Add up the gradients of the parts, layer by layer, with me.add. What a variable still "
        "holds of the part before counts as memory: del it.",
        "Reduce only the total: one me.all_reduce for each layer, after the last part. With "
        "one for each part you would send four times as much.",
    ),
    budgets={2: Score(900.0, 98_304, 16_384), 4: Score(925.0, 98_304, 24_576)},
    reference={2: Score(812.5, 86_016, 16_384), 4: Score(844.5, 86_016, 24_576)},
)


def overlap(random: np.random.Generator, size: int) -> Task:
    """Large layers, few examples."""
    return data_parallel(random, size, layers=4, width=64, rows=16)


OVERLAP = Puzzle(
    number=3,
    title="Data parallel with overlap",
    sentence=(
        "Data parallel again, now with larger weights and few examples. The backward of a layer "
        "takes 64 ticks; to reduce its gradient takes 34 on two ranks and 54 on four. Hide the "
        "one behind the other."
    ),
    draw=overlap,
    given={
        "weights": "four layers, 64 x 64, the same on every rank",
        "x": "16 examples of this rank, 16 x 64",
        "target": "what should come out, 16 x 64",
    },
    results={"weights": "the weights after the step, on every rank"},
    calls=(*MOVES, "all_reduce"),
    operations=_LAYERS,
    stub=_WHOLE_BATCH,
    hints=(
        "Look at the timeline of the stub: while a gradient is reduced, nothing is computed. "
        "Which line waits?",
        'me.all_reduce returns at once. It is me.compute("update", ...) that waits for the sum, '
        "and the next backward does not need the updated weight.",
        "Start each all-reduce right after its backward, put what it returns into a list, and "
        "make all the updates after the loop, beginning with the last layer: its sum is there "
        "first.",
    ),
    budgets={2: Score(460.0, 163_840, 65_536), 4: Score(490.0, 163_840, 98_304)},
    reference={2: Score(420.25, 151_552, 65_536), 4: Score(440.25, 151_552, 98_304)},
)


def zero2(random: np.random.Generator, size: int) -> Task:
    """The state of Adam is sharded."""
    return data_parallel(random, size, layers=6, width=64, rows=16, adam=True)


ZERO2 = Puzzle(
    number=4,
    title="ZeRO-2",
    sentence=(
        "The optimizer is Adam, and each rank has its state for one part of every weight only: "
        "the rows with its number, when the weight is split into as many parts as there are "
        "ranks. Update that part, then collect the updated weights. The gradients of all layers "
        "do not fit at the same time."
    ),
    draw=zero2,
    given={
        "weights": "six layers, 64 x 64, the same on every rank",
        "m, v": "Adam's state: for each layer this rank's rows, (64 / me.size) x 64",
        "x": "16 examples of this rank, 16 x 64",
        "target": "what should come out, 16 x 64",
    },
    results={"weights": "all weights after the step, complete, on every rank"},
    calls=(*MOVES, *COLLECTIVES),
    operations=("forward", "loss", "backward", "adam"),
    stub="""\
def solve(me):
    saved = [me.x]
    for w in me.weights:
        saved.append(me.compute("forward", w, saved[-1]))
    dy = me.compute("loss", saved[-1], me.target)
    for i in reversed(range(len(me.weights))):
        y = saved.pop()
        dy, dw = me.compute("backward", me.weights[i], saved[-1], y, dy)
        dw = me.all_reduce(dw)  # and now? me.m[i] and me.v[i] are parts
    me.keep("weights", me.weights)
""",
    hints=(
        "For its update a rank needs its rows of the summed gradient, not all of them: that is "
        "what me.reduce_scatter gives, for half the bytes.",
        "me.split(me.weights[i], me.size)[me.rank] is the part of the weight that this rank "
        "updates. After its backward a layer's weight is not needed any more, so the other "
        "parts may go. me.all_gather collects the updated parts.",
        "Overlap: start the reduce-scatter of layer i, carry out the backward of layer i - 1 and "
        "start its reduce-scatter. Only then call adam for layer i and start its all-gather.",
    ),
    budgets={2: Score(700.0, 294_912, 98_304), 4: Score(720.0, 237_568, 147_456)},
    reference={2: Score(647.25, 278_528, 98_304), 4: Score(667.25, 221_184, 147_456)},
)


def zero3(random: np.random.Generator, size: int) -> Task:
    """The weights are sharded."""
    task = data_parallel(random, size, layers=6, width=64, rows=16)
    given, expected = [], []
    for rank, own in enumerate(task.given):
        shards = [np.split(w, size)[rank] for w in own["weights"]]
        given.append({"shards": shards, "x": own["x"], "target": own["target"]})
        expected.append({"shards": [_rows(w, size, rank) for w in task.expected[rank]["weights"]]})
    return Task(given, expected)


def _rows(whole: Made, size: int, rank: int) -> Made:
    return replace(whole, make=lambda times: np.split(whole.make(times), size)[rank])


ZERO3 = Puzzle(
    number=5,
    title="ZeRO-3 with prefetch",
    sentence=(
        "Now the weights are sharded, too: each rank has its rows of every layer. Gather a "
        "layer when you need it, and let go of it afterwards: two complete layers at a time are "
        "enough. The time does not allow you to wait for each gather."
    ),
    draw=zero3,
    given={
        "shards": "this rank's rows of six layers of 64 x 64, each (64 / me.size) x 64",
        "x": "16 examples of this rank, 16 x 64",
        "target": "what should come out, 16 x 64",
    },
    results={"shards": "this rank's rows of the weights after the step"},
    calls=(*MOVES, *COLLECTIVES),
    operations=_LAYERS,
    stub="""\
def solve(me):
    saved = [me.x]
    for shard in me.shards:
        saved.append(me.compute("forward", me.all_gather(shard), saved[-1]))
    dy = me.compute("loss", saved[-1], me.target)
    for i in reversed(range(len(me.shards))):
        w, y = me.all_gather(me.shards[i]), saved.pop()
        dy, dw = me.compute("backward", w, saved[-1], y, dy)
        me.shards[i] = me.compute("update", me.shards[i], me.reduce_scatter(dw))
    me.keep("shards", me.shards)
""",
    hints=(
        "The stub waits for every all-gather, and in its backward for every reduce-scatter. "
        "Which of them could be under way while something is computed?",
        "Start the all-gather of the next layer before you compute with this one. In the "
        "backward the next layer is the one below.",
        "Put what me.reduce_scatter returns into a list and update after the loop, beginning "
        "with the last layer. The last layer need not be gathered a second time.",
    ),
    budgets={2: Score(680.0, 188_416, 147_456), 4: Score(700.0, 147_456, 221_184)},
    reference={2: Score(611.25, 172_032, 139_264), 4: Score(630.75, 131_072, 208_896)},
)


def recompute(random: np.random.Generator, size: int) -> Task:
    """Many small layers."""
    return data_parallel(random, size, layers=25, width=8, rows=256)


RECOMPUTE = Puzzle(
    number=8,
    title="Recompute: fit in half the memory",
    sentence=(
        "25 layers and 256 examples on every rank, data parallel. The stub holds the outputs of "
        "all layers until the backward pass needs them. Make the same step in half its memory. "
        "There is time to compute each output a second time. With four ranks there is then not "
        "enough left to wait for every all-reduce."
    ),
    draw=recompute,
    given={
        "weights": "25 layers, 8 x 8, the same on every rank",
        "x": "256 examples of this rank, 256 x 8",
        "target": "what should come out, 256 x 8",
    },
    results={"weights": "the weights after the step, on every rank"},
    calls=("add", "all_reduce"),
    operations=("forward", "loss", "backward", "update"),
    stub="""\
def solve(me):
    saved = [me.x]
    for w in me.weights:
        saved.append(me.compute("forward", w, saved[-1]))
    dy = me.compute("loss", saved[-1], me.target)
    for i in reversed(range(len(me.weights))):
        y = saved.pop()
        dy, dw = me.compute("backward", me.weights[i], saved[-1], y, dy)
        me.weights[i] = me.compute("update", me.weights[i], me.all_reduce(dw))
    me.keep("weights", me.weights)
""",
    hints=(
        "Keep only some outputs in the forward pass. From the last one that you kept you can "
        "compute the next ones again, when the backward pass comes to them.",
        "Divide the 25 layers into segments, and keep the input of each. Segments of k layers "
        "hold 25 / k inputs, and k outputs of the segment that is under way. For which k is the "
        "sum smallest?",
        "Segments of five. Keep the outputs of the last segment, too: its backwards come right "
        "after its forwards. For each of the others, from the last: compute its five outputs again "
        "from its input, then five backwards. del what you have used, and free me.target after "
        "the loss. Overlap the all-reduces as in puzzle 3: update after all backwards, beginning "
        "with the last layer.",
    ),
    budgets={2: Score(880.0, 122_112, 6_400), 4: Score(880.0, 122_112, 9_600)},
    reference={2: Score(803.03125, 104_960, 6_400), 4: Score(807.28125, 104_960, 9_600)},
)
