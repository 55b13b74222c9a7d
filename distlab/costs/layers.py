"""Seconds of one layer with one micro-batch on one device."""

from distlab.costs.kernels import all_to_all_time, beside, matmul_time, ring_time, stream_time
from distlab.costs.machines import Machine
from distlab.costs.models import Transformer
from distlab.costs.parts import Attention, Layer
from distlab.costs.plans import Plan

Product = tuple[float, float, float, float]
"""Sides m, n, k of a product, and how many such there are."""


Pass = dict[str, float]
"""Seconds of a layer forward, backward, or forward once more: `compute`, of arithmetic and memory;
and of what nothing hides: `tensor`, of collectives over that axis; `context`, less what attention
hides; `expert`, of the exchange of tokens between experts."""


def passes(model: Transformer, plan: Plan, machine: Machine) -> tuple[Pass, Pass, Pass]:
    """One layer forward, backward, and what is computed again, in the mean over the layers."""
    found = [(count, _passes(model, layer, plan, machine)) for count, layer in model.kinds]

    def mean(which: int) -> Pass:
        return {
            part: sum(count * each[which].get(part, 0.0) for count, each in found) / model.layers
            for part in ("compute", "tensor", "context", "expert")
        }

    return mean(0), mean(1), mean(2)


def _passes(
    model: Transformer, layer: Layer, plan: Plan, machine: Machine
) -> tuple[Pass, Pass, Pass]:
    size, out = plan.formats.multiplied, plan.formats.compute
    products = _products(model, layer, plan)
    matrices = sum(matmul_time(m, n, k, machine, size, c, out) for m, n, k, c in products)
    gradients = sum(
        matmul_time(m, k, n, machine, size, c, out) + matmul_time(k, n, m, machine, size, c, out)
        for m, n, k, c in products
    )
    if size < out:  # each factor is read, and written twice: as it is, and transposed
        cast = out + 2 * size
        matrices += sum(stream_time(c * k * (m + n) * cast, machine) for m, n, k, c in products)
        gradients += sum(stream_time(c * m * n * cast, machine) for m, n, _, c in products)
    attention, attention_back = _attention(model, layer.attention, plan, machine)
    elements = _elements(model, layer, plan, machine)
    tensor, context, expert = _sent(model, layer, plan, machine)
    exposed, exposed_back, exposed_again = (
        (beside(tensor, matrices), beside(tensor, gradients), beside(tensor / 2, matrices))
        if plan.overlap_tensor
        else (tensor, tensor, tensor / 2)
    )
    forward = {
        "compute": matrices + attention + elements,
        "tensor": exposed,
        "context": max(0.0, context - attention),
        "expert": 2 * expert,
    }
    backward = {
        "compute": gradients + attention_back + 2 * elements,
        "tensor": exposed_back,
        "context": max(0.0, 2 * context - attention_back),
        "expert": 2 * expert,
    }
    again: Pass = {}
    if plan.recompute == "full":
        again = forward
    elif plan.recompute == "matmuls":  # of the collectives the gathers; what is summed is kept
        part = matrices * layer.again_flops / layer.matmul_flops
        again = {"compute": part + elements, "tensor": exposed_again, "expert": expert}
    elif plan.recompute == "selective" and plan.attention == "standard":
        again = {"compute": attention}
    return forward, backward, again


def _products(model: Transformer, layer: Layer, plan: Plan) -> list[Product]:
    """Sides of the products; matrices that are beside each other are one."""
    t, tokens = plan.tensor, plan.micro_batch * model.sequence / plan.context
    found: list[Product] = []
    for each in layer.matrices:
        part = each.on(t)
        n = each.columns * (1.0 if each.down else part)
        k = each.rows * (part if each.down else 1.0)
        if each.copies > 1:
            local = each.copies / plan.expert
            found.append((tokens * each.uses / local, n, k, local))
        elif each.beside:
            m, before, k, count = found[-1]
            found[-1] = (m, before + n, k, count)
        else:
            found.append((tokens, n, k, 1.0))
    return found


def _attention(
    model: Transformer, attention: Attention, plan: Plan, machine: Machine
) -> tuple[float, float]:
    """Scores, softmax and weighted values, forward and backward."""
    s, size = model.sequence, plan.formats.compute
    tokens = plan.micro_batch * s / plan.context
    share = tokens / plan.tensor
    if attention.state:
        forward = share * attention.state / (machine.peak(size) * machine.flash)
        return forward, 2.5 * forward
    if plan.attention == "flash":  # skips what the causal mask hides, and keeps no scores
        width = attention.query + attention.mixed
        flops = 2 * share * attention.reach(s) * width
        forward = flops / (machine.peak(size) * machine.flash)
        return forward, 2.5 * forward
    pairs = plan.micro_batch * attention.heads / plan.tensor
    rows, q, v = s / plan.context, attention.query, attention.mixed
    products = matmul_time(rows, s, q / attention.heads, machine, size, pairs) + matmul_time(
        rows, v / attention.heads, s, machine, size, pairs
    )
    moved = pairs * rows * s * (4 * size + (1 if model.masks else 0))
    softmax = stream_time(moved, machine, 2)
    return products + softmax, 2 * products + 1.2 * softmax


def _elements(model: Transformer, layer: Layer, plan: Plan, machine: Machine) -> float:
    """Normalizations, additions, activation and rotation: their bytes, forward."""
    size, t, attention, feed = plan.formats.compute, plan.tensor, layer.attention, layer.feed
    tokens = plan.micro_batch * model.sequence / plan.context
    share = t if plan.sequence_parallel else 1
    norm = 2 * size if plan.fused or not layer.rms else 34
    add = 3 * size
    wide = tokens * model.hidden / share * (layer.norms * norm + 2 * add)
    act = (2 + feed.gated + (0 if plan.fused else 2)) * size  # reads and writes of each number
    inner = tokens * feed.width / t * act
    query, (key, value) = attention.query / t, attention.keys_on(t)
    turned = 2 * size if plan.fused else 20
    mixed = (query + key) * turned * attention.rotary
    mixed += attention.normed * (query + key) * norm + attention.gate / t * 3 * size
    split = 0 if plan.fused else (query + key + value) * 2 * size
    return stream_time(wide + inner + tokens * (mixed + split), machine, 6)


def _sent(
    model: Transformer, layer: Layer, plan: Plan, machine: Machine
) -> tuple[float, float, float]:
    """A layer's tensor all-reduces, a context ring's keys and values, an exchange of experts."""
    size, t, c = plan.formats.compute, plan.tensor, plan.context
    tokens, top_k = plan.micro_batch * model.sequence / c, layer.feed.top_k
    sums = 1 if layer.side_by_side else 2
    tensor = sums * 2 * ring_time(tokens * model.hidden * size, t, 1, machine)
    ranks = plan.expert if layer.feed.experts else 1
    if ranks > 1 and plan.sequence_parallel and top_k > 1:
        # What comes from other ranks is gathered over the tensor axis, and its sums are scattered:
        # a token for each of its experts, as in Megatron-LM's MoEAlltoAllTokenDispatcher.
        more = tokens * (top_k - 1) * model.hidden * size
        tensor += 2 * ring_time(more, t, 1, machine)
    context = ring_time(tokens * c * sum(layer.attention.keys_on(t)) * size, c, t, machine)
    routed = tokens * top_k * model.hidden * size / (t if plan.sequence_parallel else 1)
    expert = all_to_all_time(routed, ranks, t, machine)
    return tensor, context, expert
