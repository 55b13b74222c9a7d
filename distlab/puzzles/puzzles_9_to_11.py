"""The words, the budgets and the references of puzzles 9 to 11."""

from distlab.puzzles.messages import Score
from distlab.puzzles.puzzle import BLOCK, COLLECTIVES, MOVES, Puzzle

RING_ATTENTION = Puzzle(
    number=9,
    title="Ring attention",
    sentence=(
        "A sequence is divided among the ranks: each has 64 rows of q, k and v. Every row of q "
        "attends to all rows of k and v. With six ranks these do not fit on one. There is no "
        "causal mask."
    ),
    given={"q, k, v": "this rank's rows, 64 x 16"},
    results={"out": "what attention gives for this rank's rows of q, 64 x 16"},
    calls=("send", "receive", *MOVES, "all_gather"),
    operations=("attend", "merge", "finish"),
    stub="""\
def solve(me):
    k, v = me.all_gather(me.k), me.all_gather(me.v)
    partial = me.compute("attend", me.q, k, v)
    me.keep("out", me.compute("finish", partial))
""",
    hints=(
        "attend gives a partial result for some rows of k and v, and merge puts two partial "
        "results of the same q together. So the keys and values can come one block after the "
        "other.",
        "Pass the blocks around a ring: size times attend, and in between k and v go to the "
        "next rank. If you receive only after attend, the time is not enough.",
        "In each step first send the block that you have and call receive for the next one, "
        "then attend, then go on with what you have received. In the last step there is nothing "
        "to send.",
    ),
    budgets={4: Score(280.0, 46_080, 24_576), 6: Score(420.0, 46_080, 40_960)},
    reference={4: Score(258.8125, 42_496, 24_576), 6: Score(388.5, 42_496, 40_960)},
)

EXPERTS = Puzzle(
    number=10,
    title="Experts: balanced all-to-all",
    sentence=(
        "Each rank owns two experts, layers of 64 x 64: rank r has experts 2r and 2r + 1. Each "
        "rank has tokens for all experts, and half of all tokens want expert 0. Give every rank "
        "what the experts make of its own tokens, without letting everybody wait for rank 0."
    ),
    given={
        "tokens": "a list: tokens[e] are this rank's tokens for expert e, 64 numbers each",
        "experts": "a dict: the weights of this rank's experts by their numbers",
        "counts": "counts[rank][e] is how many tokens a rank has for expert e: the same in all "
        "checks",
    },
    results={"out": "a list: what expert e gives for tokens[e]"},
    calls=("send", "receive", *MOVES, "all_to_all", "all_gather"),
    operations=("expert",),
    stub="""\
def solve(me):
    mine = me.join([me.experts[2 * me.rank], me.experts[2 * me.rank + 1]])
    experts = me.split(me.all_gather(mine), 2 * me.size)
    pairs = zip(experts, me.tokens)
    me.keep("out", [me.compute("expert", w, x) for w, x in pairs])
""",
    hints=(
        "The stub brings all experts to all tokens. The other way is to bring the tokens to the "
        "experts: me.all_to_all with me.join of what each rank's experts need, and a second "
        "me.all_to_all for the results. me.split(x, [rows, rows]) undoes a join. Look at the "
        "timeline of that program: what does rank 0 do, and what do the others?",
        "For expert 0 the tokens are many and the weights few: bring this one expert to the "
        "tokens, and the tokens of all other experts to their experts.",
        "If rank 0 sends expert 0 to everybody it sends too much. Let each rank pass it to the "
        "next. Start the first all_to_all before that, and use expert 0 last, when it has "
        "arrived for sure.",
    ),
    budgets={4: Score(370.0, 122_880, 45_056), 6: Score(600.0, 159_744, 61_440)},
    reference={4: Score(337.0, 112_640, 41_984), 6: Score(547.0, 145_408, 58_368)},
)

TWO_TWO_TWO = Puzzle(
    number=11,
    title="2 x 2 x 2",
    sentence=(
        "Data, tensor and pipeline parallel at once, within all three budgets. The pipeline has "
        "two stages of one block each, as in puzzle 6, and two ranks share each block. Six "
        "micro-batches go through each of two replicas; it is also checked with one replica, on "
        "four ranks."
    ),
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
    operations=BLOCK,
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

LAST = (RING_ATTENTION, EXPERTS, TWO_TWO_TWO)
"""Puzzles 9 to 11."""
