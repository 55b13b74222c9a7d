"""Seconds of one layer with one micro-batch on one device."""

from dataclasses import dataclass

from distlab.costs.kernels import all_to_all_time, beside, matmul_time, ring_time, stream_time
from distlab.costs.machines import Machine
from distlab.costs.models import Transformer
from distlab.costs.plans import Plan

Product = tuple[float, float, float, float]
"""Sides m, n, k of a product, and how many such there are."""


@dataclass(frozen=True)
class Pass:
    """Seconds of one layer forward, backward, or forward once more.

    Attributes:
        compute: Of arithmetic and memory.
        tensor: Of collectives over the tensor axis, which nothing hides.
        context: Over the context axis, less what attention hides.
        expert: Of the exchange of tokens between experts.
    """

    compute: float = 0.0
    tensor: float = 0.0
    context: float = 0.0
    expert: float = 0.0

    @property
    def total(self) -> float:
        """Seconds in all."""
        return self.compute + self.tensor + self.context + self.expert

    def __add__(self, other: "Pass") -> "Pass":
        return Pass(
            self.compute + other.compute,
            self.tensor + other.tensor,
            self.context + other.context,
            self.expert + other.expert,
        )

    def times(self, factor: float) -> "Pass":
        """So many of them."""
        return Pass(
            self.compute * factor, self.tensor * factor, self.context * factor, self.expert * factor
        )


def passes(model: Transformer, plan: Plan, machine: Machine) -> tuple[Pass, Pass, Pass]:
    """One layer forward, backward, and what is computed again for the backward pass."""
    size = plan.formats.compute
    products = _products(model, plan)
    matrices = sum(matmul_time(m, n, k, machine, size, c) for m, n, k, c in products)
    gradients = sum(
        matmul_time(m, k, n, machine, size, c) + matmul_time(k, n, m, machine, size, c)
        for m, n, k, c in products
    )
    attention, attention_back = _attention(model, plan, machine)
    elements = _elements(model, plan, machine)
    tensor, context, expert = _sent(model, plan, machine)
    exposed, exposed_back, exposed_again = (
        (beside(tensor, matrices), beside(tensor, gradients), beside(tensor / 2, matrices))
        if plan.overlap_tensor
        else (tensor, tensor, tensor / 2)
    )
    forward = Pass(
        matrices + attention + elements, exposed, max(0.0, context - attention), 2 * expert
    )
    backward = Pass(
        gradients + attention_back + 2 * elements,
        exposed_back,
        max(0.0, 2 * context - attention_back),
        2 * expert,
    )
    again = {
        None: Pass(),
        "selective": Pass(attention if plan.attention == "standard" else 0.0),
        "matmuls": Pass(
            matrices * model.again_flops / model.layer_matmul_flops + elements,
            exposed_again,  # the gathers; what is summed is kept
            0.0,
            expert,
        ),
        "full": forward,
    }[plan.recompute]
    return forward, backward, again


def _products(model: Transformer, plan: Plan) -> list[Product]:
    t, tokens = plan.tensor, plan.micro_batch * model.sequence / plan.context
    h, q, kv, f = model.hidden, model.query / t, model.key_on(t), model.inner / t
    products = [(tokens, q + 2 * kv, h, 1.0), (tokens, h, q, 1.0)]
    if model.experts > 1:
        local = model.experts / plan.expert
        rows = tokens * model.top_k * plan.expert / model.experts
        products.append((tokens, model.experts, h, 1.0))
    else:
        local, rows = 1.0, tokens
    up = [(rows, f, h, local)] * (2 if model.gated else 1)
    return [*products, *up, (rows, h, f, local)]


def _attention(model: Transformer, plan: Plan, machine: Machine) -> tuple[float, float]:
    """Scores, softmax and weighted values, forward and backward."""
    s, d, size = model.sequence, model.head, plan.formats.compute
    pairs = plan.micro_batch * model.heads / plan.tensor
    if plan.attention == "flash":  # skips what the causal mask hides, and keeps no scores
        forward = 2 * pairs * s * s / plan.context * d / (machine.peak(size) * machine.flash)
        return forward, 2.5 * forward
    rows = s / plan.context
    products = matmul_time(rows, s, d, machine, size, pairs) + matmul_time(
        rows, d, s, machine, size, pairs
    )
    moved = pairs * rows * s * (4 * size + (1 if model.masks else 0))
    softmax = stream_time(moved, machine, 2)
    return products + softmax, 2 * products + 1.2 * softmax


def attention_time(model: Transformer, plan: Plan, machine: Machine) -> float:
    """Seconds of attention in one layer with one micro-batch: forward, backward, and again."""
    forward, backward = _attention(model, plan, machine)
    again = plan.recompute == "full" or (
        plan.recompute == "selective" and plan.attention == "standard"
    )
    return forward + backward + again * forward


def _elements(model: Transformer, plan: Plan, machine: Machine) -> float:
    """Normalizations, additions, activation and rotation: their bytes, forward."""
    size, t = plan.formats.compute, plan.tensor
    tokens = plan.micro_batch * model.sequence / plan.context
    share = t if plan.sequence_parallel else 1
    norm = 2 * size if plan.fused or not model.gated else 34
    add = 3 * size
    wide = tokens * model.hidden / share * (model.norms * norm + 2 * add)
    if plan.fused:
        act = 3 * size if model.gated else 2 * size
    else:
        act = 5 * size if model.gated else 4 * size
    inner = tokens * model.top_k * model.inner / t * act
    turned = (
        tokens * (model.query / t + model.key_on(t)) * (2 * size if plan.fused else 20)
        if model.gated
        else 0
    )
    split = 0 if plan.fused else tokens * (model.query / t + 2 * model.key_on(t)) * 2 * size
    return stream_time(wide + inner + turned + split, machine, 6)


def _sent(model: Transformer, plan: Plan, machine: Machine) -> tuple[float, float, float]:
    """A layer's tensor all-reduces, a context ring's keys and values, an exchange of experts."""
    size, t, c = plan.formats.compute, plan.tensor, plan.context
    tokens = plan.micro_batch * model.sequence / c
    tensor = model.norms * 2 * ring_time(tokens * model.hidden * size, t, 1, machine)
    if plan.expert > 1 and plan.sequence_parallel and model.top_k > 1:
        # What comes from other ranks is gathered over the tensor axis, and its sums are scattered:
        # a token for each of its experts, as in Megatron-LM's MoEAlltoAllTokenDispatcher.
        more = tokens * (model.top_k - 1) * model.hidden * size
        tensor += 2 * ring_time(more, t, 1, machine)
    context = ring_time(2 * tokens * c * model.key_on(t) * size, c, t, machine)
    routed = tokens * model.top_k * model.hidden * size / (t if plan.sequence_parallel else 1)
    expert = all_to_all_time(routed, plan.expert, t, machine)
    return tensor, context, expert
