"""Puzzles 1, 9 and 10: about moving data alone."""

from collections.abc import Sequence

import numpy as np

from distlab.puzzles import operations
from distlab.puzzles.operations import Array
from distlab.puzzles.puzzle import MOVES, Made, Puzzle, Score, Task


def all_reduce(random: np.random.Generator, size: int) -> Task:
    """Every rank has a gradient, and all want the sum."""
    gradients = [random.standard_normal((48, 64)) for _ in range(size)]
    total = Made(lambda times: sum(t * g for t, g in zip(times, gradients, strict=True)), size)
    return Task([{"gradient": g} for g in gradients], [{"sum": total}] * size)


RING = Puzzle(
    number=1,
    title="All-reduce from sends",
    sentence=(
        "Every rank has a gradient, and every rank wants the sum of all. You have send and "
        "receive, and no collective."
    ),
    draw=all_reduce,
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


def ring_attention(random: np.random.Generator, size: int) -> Task:
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
    return Task(given, [{"out": attended(mine)} for mine in q])


RING_ATTENTION = Puzzle(
    number=9,
    title="Ring attention",
    sentence=(
        "A sequence is divided among the ranks: each has 64 rows of q, k and v. Every row of q "
        "attends to all rows of k and v. With six ranks these do not fit on one. There is no "
        "causal mask."
    ),
    draw=ring_attention,
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
    heads = ["counts", *(f"expert {expert}" for expert in range(2 * size))]
    rows = [[f"rank {r}", *map(str, counts)] for r, counts in enumerate(routing(size))]
    return [heads, *rows]


def experts(random: np.random.Generator, size: int) -> Task:
    """Every rank has tokens for all experts, and owns two experts."""
    counts = routing(size)
    weights = random.standard_normal((2 * size, 64, 64)) / 8
    given, expected = [], []
    for rank in range(size):
        tokens = [random.standard_normal((count, 64)) for count in counts[rank]]
        own = {expert: weights[expert] for expert in (2 * rank, 2 * rank + 1)}
        given.append({"tokens": tokens, "experts": own, "counts": counts})
        out = [operations.expert(w, x) for w, x in zip(weights, tokens, strict=True)]
        expected.append({"out": out})
    return Task(given, expected)


EXPERTS = Puzzle(
    number=10,
    title="Experts: balanced all-to-all",
    sentence=(
        "Each rank owns two experts, layers of 64 x 64: rank r has experts 2r and 2r + 1. Each "
        "rank has tokens for all experts, and half of all tokens want expert 0. Give every rank "
        "what the experts make of its own tokens, without letting everybody wait for rank 0."
    ),
    draw=experts,
    table=counts_table,
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
