"""The words, the budgets and the references of puzzles 6 to 8."""

from distlab.puzzles.messages import Score
from distlab.puzzles.puzzle import BLOCK, COLLECTIVES, MOVES, Puzzle

TENSOR_PARALLEL = Puzzle(
    number=6,
    title="Column and row parallel",
    sentence=(
        "A block gives y = tanh(x @ a) @ b, where a is 64 x 256 and b is 256 x 64. Each rank has "
        "some columns of a and the same rows of b; x is the same on every rank. Make one step, "
        "and send as little as possible."
    ),
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
    operations=BLOCK,
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

PIPELINE = Puzzle(
    number=7,
    title="Pipeline: from GPipe to 1F1B",
    sentence=(
        "Each rank is a stage of one layer. Eight micro-batches go through all stages and back. "
        "Keep every stage busy, but do not hold the activations of all micro-batches at the "
        "same time."
    ),
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

RECOMPUTE = Puzzle(
    number=8,
    title="Recompute: fit in half the memory",
    sentence=(
        "25 layers and 256 examples on every rank, data parallel. The stub holds the outputs of "
        "all layers until the backward pass needs them. Make the same step in half its memory. "
        "There is time to compute each output a second time. With four ranks there is then not "
        "enough left to wait for every all-reduce."
    ),
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
        "Segments of five. For each, from the last: compute its five outputs again from its "
        "input, then five backwards. del the outputs before the next segment, and free me.target "
        "after the loss. Overlap the all-reduces as in puzzle 3: update after all backwards, "
        "beginning with the last layer.",
    ),
    budgets={2: Score(880.0, 122_112, 6_400), 4: Score(880.0, 122_112, 9_600)},
    reference={2: Score(803.03125, 104_960, 6_400), 4: Score(807.28125, 104_960, 9_600)},
)

MIDDLE = (TENSOR_PARALLEL, PIPELINE, RECOMPUTE)
"""Puzzles 6 to 8."""
