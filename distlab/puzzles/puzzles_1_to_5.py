"""The words, the budgets and the references of puzzles 1 to 5."""

from distlab.puzzles.messages import Score
from distlab.puzzles.puzzle import COLLECTIVES, MOVES, Puzzle

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

RING = Puzzle(
    number=1,
    title="All-reduce from sends",
    sentence=(
        "Every rank has a gradient, and every rank wants the sum of all. You have send and "
        "receive, and no collective."
    ),
    given={"gradient": "48 x 64, different on every rank"},
    results={"sum": "the sum of all gradients, on every rank"},
    calls=("send", "receive", *MOVES),
    operations=(),
    stub="""\
def solve(me):
    others = [rank for rank in range(me.size) if rank != me.rank]
    for other in others:
        me.send(other, me.gradient)
    total = me.gradient
    for other in others:
        received = me.receive(other)
        total = me.add(total, received)
    me.keep("sum", total)
""",
    hints=(
        "The stub sends the whole gradient to everybody, so each rank sends (n - 1) gradients. "
        "Split the gradient into n parts: no rank has to add all of them itself.",
        "Put the ranks into a ring. In each step every rank sends one part to the next rank and "
        "adds the part that comes from the one before. After n - 1 steps each rank has one part "
        "of the sum, complete.",
        "In step s rank r sends part r - s and adds to part r - s - 1, all modulo n. Then go "
        "around once more: in step s rank r sends part r + 1 - s, and what comes takes the "
        "place of part r - s. me.join makes one tensor of the parts.",
    ),
    budgets={4: Score(50.0, 18_432, 18_432), 6: Score(60.0, 18_432, 20_480)},
    reference={4: Score(42.5625, 15_360, 18_432), 6: Score(50.625, 14_336, 20_480)},
)

ACCUMULATION = Puzzle(
    number=2,
    title="Gradient accumulation",
    sentence=(
        "Data parallel: every rank has the same four layers and 128 examples of its own. The "
        "activations of all 128 do not fit. Make one step of gradient descent on all examples."
    ),
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

OVERLAP = Puzzle(
    number=3,
    title="Data parallel with overlap",
    sentence=(
        "Data parallel again, now with larger weights and few examples. The backward of a layer "
        "takes 64 ticks; to reduce its gradient takes 34 on two ranks and 54 on four. Hide the "
        "one behind the other."
    ),
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

ZERO2 = Puzzle(
    number=4,
    title="ZeRO-2",
    sentence=(
        "The optimizer is Adam, and each rank has its state for one part of every weight only: "
        "the rows with its number, when the weight is split into as many parts as there are "
        "ranks. Update that part, then collect the updated weights. The gradients of all layers "
        "do not fit at the same time."
    ),
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

ZERO3 = Puzzle(
    number=5,
    title="ZeRO-3 with prefetch",
    sentence=(
        "Now the weights are sharded, too: each rank has its rows of every layer. Gather a "
        "layer when you need it, and let go of it afterwards: two complete layers at a time are "
        "enough. The time does not allow you to wait for each gather."
    ),
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

FIRST = (RING, ACCUMULATION, OVERLAP, ZERO2, ZERO3)
"""Puzzles 1 to 5."""
