"""Solutions of the puzzles: for each the reference, and naive ones with the budget they miss."""


def ring(me):
    parts = me.split(me.gradient, me.size)
    after, before = (me.rank + 1) % me.size, (me.rank - 1) % me.size
    for step in range(me.size - 1):
        me.send(after, parts[(me.rank - step) % me.size])
        i = (me.rank - step - 1) % me.size
        parts[i] = me.add(parts[i], me.receive(before))
    for step in range(me.size - 1):
        me.send(after, parts[(me.rank + 1 - step) % me.size])
        parts[(me.rank - step) % me.size] = me.receive(before)
    me.keep("sum", me.join(parts))


def everybody_to_everybody(me):
    total = me.gradient
    others = [rank for rank in range(me.size) if rank != me.rank]
    for other in others:
        me.send(other, me.gradient)
    for other in others:
        received = me.receive(other)
        total = me.add(total, received)
    me.keep("sum", total)


def to_the_first_and_back(me):
    if me.rank:
        me.send(0, me.gradient)
        me.keep("sum", me.receive(0))
        return
    total = me.gradient
    for other in range(1, me.size):
        total = me.add(total, me.receive(other))
    for other in range(1, me.size):
        me.send(other, total)
    me.keep("sum", total)


def forward(me, weights, x):
    saved = [x]
    for w in weights:
        saved.append(me.compute("forward", w, saved[-1]))
    return saved


def before_backward(me):
    saved = forward(me, me.weights, me.x)
    return saved, me.compute("loss", saved[-1], me.target)


def backward(me, weights, saved, dy):
    slopes = []
    for w in reversed(weights):
        y = saved.pop()
        dy, dw = me.compute("backward", w, saved[-1], y, dy)
        slopes.insert(0, dw)
    return slopes


def update(me, weights, slopes):
    return [me.compute("update", w, dw) for w, dw in zip(weights, slopes, strict=True)]


def update_from_the_last(me, weights, slopes):
    """The gradient of the last layer is there first."""
    return update(me, weights[::-1], slopes[::-1])[::-1]


def in_pieces(me, each, whole):
    """Adds up the gradients of four pieces of the batch, reduced each or as a whole."""
    total = None
    xs, targets = me.split(me.x, 4), me.split(me.target, 4)
    while xs:
        saved = forward(me, me.weights, xs.pop())
        dy = me.compute("loss", saved[-1], targets.pop())
        slopes = [each(dw) for dw in backward(me, me.weights, saved, dy)]
        total = [me.add(t, s) for t, s in zip(total, slopes, strict=True)] if total else slopes
        del saved, dy, slopes
    total = [whole(dw) for dw in total]
    me.keep("weights", update(me, me.weights, total))


def as_it_is(tensor):
    return tensor


def accumulate(me):
    in_pieces(me, as_it_is, me.all_reduce)


def reduce_each_piece(me):
    in_pieces(me, me.all_reduce, as_it_is)


def whole_batch(me):
    saved, dy = before_backward(me)
    slopes = [me.all_reduce(dw) for dw in backward(me, me.weights, saved, dy)]
    me.keep("weights", update(me, me.weights, slopes))


def overlap(me):
    saved, dy = before_backward(me)
    slopes = []
    for w in reversed(me.weights):
        y = saved.pop()
        dy, dw = me.compute("backward", w, saved[-1], y, dy)
        slopes.insert(0, me.all_reduce(dw))
    me.keep("weights", update_from_the_last(me, me.weights, slopes))


def zero2(me):
    saved, dy = before_backward(me)
    reduced = {}
    for i in reversed(range(len(me.weights))):
        y = saved.pop()
        dy, dw = me.compute("backward", me.weights[i], saved[-1], y, dy)
        reduced[i] = me.reduce_scatter(dw)
        del dw, y
        if i + 1 in reduced:
            adam_on_shard(me, i + 1, reduced.pop(i + 1))
    adam_on_shard(me, 0, reduced.pop(0))
    me.keep("weights", me.weights)


def adam_on_shard(me, i, dw):
    w = me.split(me.weights[i], me.size)[me.rank]
    w, me.m[i], me.v[i] = me.compute("adam", w, me.m[i], me.v[i], dw)
    me.weights[i] = me.all_gather(w)


def zero1(me):
    saved, dy = before_backward(me)
    slopes = backward(me, me.weights, saved, dy)
    for i, dw in enumerate(slopes):
        adam_on_shard(me, i, me.reduce_scatter(dw))
    me.keep("weights", me.weights)


def all_reduce_then_slice(me):
    saved, dy = before_backward(me)
    for i in reversed(range(len(me.weights))):
        y = saved.pop()
        dy, dw = me.compute("backward", me.weights[i], saved[-1], y, dy)
        dw = me.split(me.all_reduce(dw), me.size)[me.rank]
        adam_on_shard(me, i, dw)
        del dw, y
    me.keep("weights", me.weights)


def zero3(me):
    layers = len(me.shards)
    saved = [me.x]
    w = me.all_gather(me.shards[0])
    for i in range(layers):
        ahead = me.all_gather(me.shards[i + 1]) if i + 1 < layers else None
        saved.append(me.compute("forward", w, saved[-1]))
        if ahead is not None:
            w = ahead
    del ahead
    dy = me.compute("loss", saved[-1], me.target)
    slopes = [None] * layers
    for i in reversed(range(layers)):
        ahead = me.all_gather(me.shards[i - 1]) if i else None
        y = saved.pop()
        dy, dw = me.compute("backward", w, saved[-1], y, dy)
        slopes[i] = me.reduce_scatter(dw)
        w = ahead
        del dw, y, ahead
    me.keep("shards", update_from_the_last(me, me.shards, slopes))


def gather_all_first(me):
    weights = [me.all_gather(shard) for shard in me.shards]
    saved = forward(me, weights, me.x)
    dy = me.compute("loss", saved[-1], me.target)
    slopes = []
    while weights:
        w, y = weights.pop(), saved.pop()
        dy, dw = me.compute("backward", w, saved[-1], y, dy)
        slopes.insert(0, me.reduce_scatter(dw))
        del w, dw
    me.keep("shards", update(me, me.shards, slopes))


def gather_when_needed(me):
    saved = [me.x]
    for shard in me.shards:
        saved.append(me.compute("forward", me.all_gather(shard), saved[-1]))
    dy = me.compute("loss", saved[-1], me.target)
    slopes = []
    for shard in reversed(me.shards):
        y = saved.pop()
        dy, dw = me.compute("backward", me.all_gather(shard), saved[-1], y, dy)
        slopes.insert(0, me.reduce_scatter(dw))
        del dw, y
    me.keep("shards", update(me, me.shards, slopes))


def column_row(me):
    z = me.compute("forward", me.a, me.x)
    y = me.all_reduce(me.compute("linear", me.b, z))
    dy = me.compute("loss", y, me.target)
    dz, db = me.compute("linear_backward", me.b, z, dy)
    dx, da = me.compute("backward", me.a, me.x, z, dz)
    me.keep("dx", me.all_reduce(dx))
    me.keep("a", me.compute("update", me.a, da))
    me.keep("b", me.compute("update", me.b, db))


def gather_weights(me):
    a_parts = me.split(me.all_gather(me.a), me.size)
    b_parts = me.split(me.all_gather(me.b), me.size)
    z = [me.compute("forward", a, me.x) for a in a_parts]
    y = me.compute("linear", b_parts[0], z[0])
    for i in range(1, me.size):
        y = me.add(y, me.compute("linear", b_parts[i], z[i]))
    dy, dx = me.compute("loss", y, me.target), None
    for i in range(me.size):
        dz, db = me.compute("linear_backward", b_parts[i], z[i], dy)
        part, da = me.compute("backward", a_parts[i], me.x, z[i], dz)
        dx = me.add(dx, part) if dx else part
        if i == me.rank:
            mine = me.compute("update", me.a, da), me.compute("update", me.b, db)
    me.keep("dx", dx)
    me.keep("a", mine[0])
    me.keep("b", mine[1])


def dx_first(me):
    z = me.compute("forward", me.a, me.x)
    y = me.all_reduce(me.compute("linear", me.b, z))
    dy = me.compute("loss", y, me.target)
    dz, db = me.compute("linear_backward", me.b, z, dy)
    dx = me.all_reduce(me.compute("backward_input", me.a, z, dz))
    da = me.compute("backward_weight", me.x, z, dz)
    me.keep("dx", dx)
    me.keep("a", me.compute("update", me.a, da))
    me.keep("b", me.compute("update", me.b, db))


class Stage:
    """A stage of a pipeline: what the schedules share."""

    def __init__(self, me):
        self.me = me
        self.saved = []
        self.slope = None
        self.done = [0, 0]

    def forward(self):
        me, i = self.me, self.done[0]
        self.done[0] += 1
        x = me.batches[i] if me.rank == 0 else me.receive(me.rank - 1)
        y = me.compute("forward", me.w, x)
        if me.rank < me.size - 1:
            me.send(me.rank + 1, y)
        self.saved.append((x, y))

    def backward(self):
        me, i = self.me, self.done[1]
        self.done[1] += 1
        x, y = self.saved.pop(0)
        if me.rank == me.size - 1:
            dy = me.compute("loss", y, me.targets[i])
        else:
            dy = me.receive(me.rank + 1)
        dw = self.slopes(x, y, dy)
        self.slope = me.add(self.slope, dw) if self.slope else dw

    def slopes(self, x, y, dy):
        dx, dw = self.me.compute("backward", self.me.w, x, y, dy)
        if self.me.rank:
            self.me.send(self.me.rank - 1, dx)
        return dw

    def finish(self):
        self.me.keep("w", self.me.compute("update", self.me.w, self.slope))


def in_turn(stage, ahead):
    """So many forwards, then one forward and one backward in turn, then the backwards left."""
    for i in range(stage.me.count + ahead):
        if i < stage.me.count:
            stage.forward()
        if i >= ahead:
            stage.backward()
    stage.finish()


def recompute(me, last=True):
    """Computes the outputs of each segment again, or of all but the last."""
    marks, saved = [me.x], None
    for start in range(0, 25 if last else 20, 5):
        x = marks[-1]
        for w in me.weights[start : start + 5]:
            x = me.compute("forward", w, x)
        marks.append(x)
    if last:
        dy = me.compute("loss", marks.pop(), me.target)
        me.free(x, me.target)
    else:
        del x
        saved = forward(me, me.weights[20:], marks.pop())
        dy = me.compute("loss", saved[-1], me.target)
        me.free(me.target)
    slopes = []
    for start in (20, 15, 10, 5, 0):
        part = me.weights[start : start + 5]
        saved = saved or forward(me, part, marks.pop())
        while part:
            y = saved.pop()
            dy, dw = me.compute("backward", part.pop(), saved[-1], y, dy)
            slopes.insert(0, me.all_reduce(dw))
        saved = y = dw = None
    me.keep("weights", update_from_the_last(me, me.weights, slopes))


def recompute_but_the_last(me):
    recompute(me, last=False)


def recompute_from_the_start(me):
    slopes, dy = [], None
    for i in reversed(range(25)):
        saved = [me.x]
        for w in me.weights[: i + 1]:
            saved = [saved[-1], me.compute("forward", w, saved[-1])]
        if dy is None:
            dy = me.compute("loss", saved[1], me.target)
        dy, dw = me.compute("backward", me.weights[i], saved[0], saved[1], dy)
        slopes.insert(0, me.all_reduce(dw))
    me.keep("weights", update(me, me.weights, slopes))


def ring_attention(me):
    k, v, total = me.k, me.v, None
    after, before = (me.rank + 1) % me.size, (me.rank - 1) % me.size
    for step in range(me.size):
        if step < me.size - 1:
            me.send(after, k)
            me.send(after, v)
            following = me.receive(before), me.receive(before)
        partial = me.compute("attend", me.q, k, v)
        total = me.compute("merge", total, partial) if total else partial
        k, v = following
    me.keep("out", me.compute("finish", total))


def gather_keys(me):
    k, v = me.all_gather(me.k), me.all_gather(me.v)
    me.keep("out", me.compute("finish", me.compute("attend", me.q, k, v)))


def ring_without_overlap(me):
    k, v = me.k, me.v
    after, before = (me.rank + 1) % me.size, (me.rank - 1) % me.size
    total = me.compute("attend", me.q, k, v)
    for _ in range(me.size - 1):
        me.send(after, k)
        me.send(after, v)
        k, v = me.receive(before), me.receive(before)
        partial = me.compute("attend", me.q, k, v)
        total = me.compute("merge", total, partial)
    me.keep("out", me.compute("finish", total))


def pass_along(me, tensor):
    """A broadcast from rank 0 as a chain."""
    if me.rank:
        tensor = me.receive(me.rank - 1)
    if me.rank + 1 < me.size:
        me.send(me.rank + 1, tensor)
    return tensor


def weights_to_tokens(me, early=False):
    ranks = range(me.size)
    owned = [[e for e in (2 * rank, 2 * rank + 1) if e] for rank in ranks]
    out = {}
    incoming = me.all_to_all([me.join([me.tokens[e] for e in owned[r]]) for r in ranks])
    popular = pass_along(me, me.experts.pop(0, None))
    if early and me.rank == 0:
        out[0] = me.compute("expert", popular, me.tokens[0])
        del popular
    results = []
    for source in ranks:
        sizes = [me.counts[source][e] for e in owned[me.rank]]
        parts = me.split(incoming[source], sizes)
        pairs = zip(owned[me.rank], parts, strict=True)
        results.append(me.join([me.compute("expert", me.experts[e], x) for e, x in pairs]))
    if early:
        me.experts.clear()
        del parts, pairs
    returned = me.all_to_all(results)
    if not out:
        out[0] = me.compute("expert", popular, me.tokens[0])
    for owner in ranks:
        sizes = [me.counts[me.rank][e] for e in owned[owner]]
        out.update(zip(owned[owner], me.split(returned[owner], sizes), strict=True))
    me.keep("out", [out[e] for e in range(2 * me.size)])


def own_tokens_first(me):
    """Rank 0 uses its own expert while tokens come, and experts go."""
    weights_to_tokens(me, early=True)


def tokens_to_experts(me):
    ranks = range(me.size)
    incoming = me.all_to_all([me.join(me.tokens[2 * r : 2 * r + 2]) for r in ranks])
    results = []
    for source in ranks:
        parts = me.split(incoming[source], me.counts[source][2 * me.rank : 2 * me.rank + 2])
        experts = me.experts.values()
        pairs = zip(experts, parts, strict=True)
        results.append(me.join([me.compute("expert", w, x) for w, x in pairs]))
    out = []
    for owner, part in enumerate(me.all_to_all(results)):
        out += me.split(part, me.counts[me.rank][2 * owner : 2 * owner + 2])
    me.keep("out", out)


def all_experts_everywhere(me):
    mine = me.join(list(me.experts.values()))
    experts = me.split(me.all_gather(mine), 2 * me.size)
    pairs = zip(experts, me.tokens, strict=True)
    me.keep("out", [me.compute("expert", w, x) for w, x in pairs])


class Corner:
    """A rank of the 2 x 2 x 2 grid: half of the block of a stage."""

    def __init__(self, me):
        self.me = me
        self.saved = []
        self.sums = []
        self.done = [0, 0]

    def forward(self):
        me, i = self.me, self.done[0]
        self.done[0] += 1
        x = me.batches[i] if me.stage == 0 else me.receive(me.across)
        z = me.compute("forward", me.a, x)
        y = me.all_reduce(me.compute("linear", me.b, z), group=me.groups["tensor"])
        if me.stage == 0:
            me.send(me.across, y)
            y = None
        self.saved.append((x, z, y))

    def backward(self):
        me, i = self.me, self.done[1]
        self.done[1] += 1
        x, z, y = self.saved.pop(0)
        dy = me.compute("loss", y, me.targets[i]) if me.stage == 1 else me.receive(me.across)
        dz, db = me.compute("linear_backward", me.b, z, dy)
        da = self.slope(x, z, dz)
        if self.sums:
            da, db = me.add(self.sums[0], da), me.add(self.sums[1], db)
        if self.reduces():
            db = me.all_reduce(db, group=me.groups["data"])
            da = me.all_reduce(da, group=me.groups["data"])
        self.sums = [da, db]

    def slope(self, x, z, dz):
        me = self.me
        dx, da = me.compute("backward", me.a, x, z, dz)
        if me.stage == 1:
            me.send(me.across, me.all_reduce(dx, group=me.groups["tensor"]))
        return da

    def reduces(self):
        return self.done[1] == self.me.count

    def finish(self):
        da, db = self.sums
        self.me.keep("b", self.me.compute("update", self.me.b, db))
        self.me.keep("a", self.me.compute("update", self.me.a, da))


class Impatient(Corner):
    """Reduces the gradients of each micro-batch."""

    total = ()

    def reduces(self):
        return True

    def backward(self):
        super().backward()
        self.found, self.sums = self.sums, []
        pairs = zip(self.total, self.found, strict=False)
        self.total = [self.me.add(t, s) for t, s in pairs] or self.found

    def finish(self):
        self.sums = self.total
        super().finish()


# Better than the references.


def accumulate_with_overlap(me):
    total = None
    xs, targets = me.split(me.x, 4), me.split(me.target, 4)
    while xs:
        saved = forward(me, me.weights, xs.pop())
        dy = me.compute("loss", saved[-1], targets.pop())
        slopes = []
        for i in reversed(range(len(me.weights))):
            y = saved.pop()
            dy, dw = me.compute("backward", me.weights[i], saved[-1], y, dy)
            if total:
                dw = me.add(total[i], dw)
            slopes.insert(0, dw if xs else me.all_reduce(dw))
        total = slopes
        del saved, dy, slopes, dw, y
    me.keep("weights", update(me, me.weights, total))


def one_message(me):
    block, total = me.join([me.k, me.v]), None
    after, before = (me.rank + 1) % me.size, (me.rank - 1) % me.size
    for step in range(me.size):
        if step < me.size - 1:
            following = me.receive(before)
            me.send(after, block)
        k, v = me.split(block, 2)
        partial = me.compute("attend", me.q, k, v)
        total = me.compute("merge", total, partial) if total else partial
        del k, v, partial
        block = following
    me.keep("out", me.compute("finish", total))


def halving_and_doubling(me):
    if me.size != 4:
        ring(me)
        return
    parts = me.split(me.gradient, 4)
    mine = [0, 1, 2, 3]
    for distance in (2, 1):
        other = me.rank ^ distance
        theirs = [i for i in mine if i & distance == other & distance]
        mine = [i for i in mine if i not in theirs]
        for i in theirs:
            me.send(other, parts[i])
            parts[i] = None
        for i in mine:
            parts[i] = me.add(parts[i], me.receive(other))
    for distance in (1, 2):
        other = me.rank ^ distance
        for i in mine:
            me.send(other, parts[i])
        theirs = [i ^ distance for i in mine]
        for i in theirs:
            parts[i] = me.receive(other)
        mine += theirs
    me.keep("sum", me.join(parts))


def without_target(solve):
    """A solution that lets go of the target after the loss."""

    def thrifty(me):
        compute = me.compute

        def computes(operation, *tensors):
            made = compute(operation, *tensors)
            if operation == "loss":
                me.free(me.target)
            return made

        me.compute = computes
        solve(me)

    thrifty.__name__ = f"{solve.__name__}_without_target"
    return thrifty


class EarlyStage(Stage):
    """Sends the gradient of the inputs before it computes that of the weight."""

    def slopes(self, x, y, dy):
        me = self.me
        if me.rank:
            me.send(me.rank - 1, me.compute("backward_input", me.w, y, dy))
        return me.compute("backward_weight", x, y, dy)


class EarlyCorner(Corner):
    """Sends the gradient of the inputs first, and in stage 0 does not compute it."""

    def slope(self, x, z, dz):
        me, dx = self.me, None
        if me.stage == 1:
            dx = me.compute("backward_input", me.a, z, dz)
            dx = me.all_reduce(dx, group=me.groups["tensor"])
        da = me.compute("backward_weight", x, z, dz)
        if dx:
            me.send(me.across, dx)
        return da


def in_turns(name, kind, ahead):
    """A schedule: what kind of rank, and how many forwards it is ahead."""

    def solution(me):
        in_turn(kind(me), ahead(me))

    solution.__name__ = name
    return solution


def distance(me):
    return me.size - 1 - me.rank


gpipe = in_turns("gpipe", Stage, lambda me: me.count)
one_forward_one_backward = in_turns("one_forward_one_backward", Stage, distance)
one_at_a_time = in_turns("one_at_a_time", Stage, lambda me: 0)
inputs_first = in_turns("inputs_first", EarlyStage, distance)
three_d = in_turns("three_d", Corner, lambda me: 1 - me.stage)
three_d_gpipe = in_turns("three_d_gpipe", Corner, lambda me: me.count)
three_d_one_at_a_time = in_turns("three_d_one_at_a_time", Corner, lambda me: 0)
three_d_reduce_each = in_turns("three_d_reduce_each", Impatient, lambda me: 1 - me.stage)
three_d_early = in_turns("three_d_early", EarlyCorner, lambda me: 1 - me.stage)
