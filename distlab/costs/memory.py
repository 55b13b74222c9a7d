"""Bytes that one device keeps while it trains, by part and by pipeline stage.

Each part is counted at its largest, and the total adds the parts, although they are not all there
at the same moment: the logits have gone when a layer is computed again. So a total can be more than
the peak. It can also be less: what the optimizer's update needs for a moment is not counted.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from distlab.costs.checking import of_kind
from distlab.costs.models import Transformer
from distlab.costs.parts import Attention, Layer
from distlab.costs.plans import Plan

HELD = 0.2
"""How much more than is counted here a device may need, as a part of that. What PyTorch reported
for torchtitan's runs was 3 to 10 % more with ZeRO 3 alone, 18 to 26 % with a tensor axis, too, and
13 to 36 % with a pipeline (docs/costs.md)."""
ROOM = HELD / (1 + HELD)
"""The part of a device's memory that stays free by default, one sixth: what is counted fills the
rest, so what needs `HELD` more just fits."""


@dataclass(frozen=True)
class Memory:
    """What the fullest device keeps, and what the devices of each stage keep.

    Attributes:
        stages: For each pipeline stage the bytes of each part: weights, gradients, optimizer state,
            activations, logits, buffers.
        capacity: Bytes that a device has.
        room: Bytes of these that are to stay free.
    """

    stages: tuple[Mapping[str, float], ...]
    capacity: float
    room: float

    @property
    def fullest(self) -> int:
        """The stage that keeps most."""
        totals = [sum(stage.values()) for stage in self.stages]
        return totals.index(max(totals))

    @property
    def parts(self) -> Mapping[str, float]:
        """Bytes of each part on a device of the fullest stage."""
        return self.stages[self.fullest]

    @property
    def total(self) -> float:
        """Bytes in all on a device of the fullest stage: each part at its largest, added up."""
        return sum(self.parts.values())

    @property
    def high(self) -> float:
        """Bytes that an allocator may hold for that, with those it holds and does not use."""
        return self.total * (1 + HELD)

    @property
    def fits(self) -> bool:
        """Whether `total` and `room` together are no more than a device has."""
        return self.total + self.room <= self.capacity

    def __getitem__(self, part: str) -> float:
        return self.parts[part]


def layer_activations(model: Transformer, plan: Plan) -> float:
    """Count what one layer saves for the backward pass, of one micro-batch, on one device.

    For GPT-3's kind, with standard attention and 16 bits: s b h (10 + 24 / t + 5 a s / (h t)), with
    sequence parallelism s b h / t (34 + 5 a s / h), with selective recompute too 34 s b h / t, with
    full recompute 2 s b h (Korthikanti and others, 2022, table 2,
    https://arxiv.org/abs/2205.05198). With full recompute and sequence parallelism it returns
    2 s b h / t, since each device of the tensor axis keeps its part of the layer's input.

    Llama's kind has no dropout masks and one more product in the feed-forward part. PyTorch by
    itself keeps four tensors of width f there: both products, the activated gate, and what the last
    matrix reads. Compiled code, and Megatron-LM's `fused_bias_swiglu.py`, compute the activation
    again and keep three (`fused`). Flash attention keeps one number per head and token instead of
    the scores. PyTorch's normalizations keep, besides their input, a number in fp32 per token for
    the root mean square, and two as precise as the input else; fused code is taken to keep none.
    Where layers differ, this is the mean over the layers.

    Args:
        model: The model's sizes.
        plan: How it is divided.

    Returns:
        Bytes.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If the plan cannot divide the model.

    Example:
        >>> from distlab import costs
        >>> plan = costs.Plan(tensor=8, recompute="selective", sequence_parallel=True)
        >>> costs.layer_activations(costs.GPT3_175B, plan)
        106954752.0
    """
    of_kind("model", model, Transformer)
    of_kind("plan", plan, Plan)
    plan.check(model)
    return model.mean(lambda layer: _saved(model, layer, plan))


def _saved(model: Transformer, layer: Layer, plan: Plan) -> float:
    """Bytes of one layer: what sequence parallelism divides, what tensor parallelism divides."""
    size, h, attention, feed = plan.formats.compute, model.hidden, layer.attention, layer.feed
    tokens = plan.micro_batch * model.sequence / plan.context
    share = plan.tensor if plan.sequence_parallel else 1
    if plan.recompute == "full":
        return size * tokens * h / share
    key, value = (each * plan.tensor for each in attention.keys_on(plan.tensor))
    scores = _scores(model, attention, plan)
    f, mask = feed.width, 1 if model.masks else 0
    if plan.recompute == "matmuls":  # the layer's input, attention's output, every second product
        every = not attention.joined
        wide = size * (2 * h if every else h)
        kept = attention.mixed + attention.query + f + (key if every else key + value)
        return tokens * (wide / share + (size * kept + scores) / plan.tensor)
    routed = feed.top_k if feed.experts else 1
    # Inputs of the normalizations, of the first products, of what is routed; two dropout masks.
    wide = size * layer.norms * h + 2 * mask * h
    wide += size * (h if layer.norms == 1 and routed == 1 else h + h * routed)
    # Queries, keys, values, the attention's output, and what these were before.
    inner = size * (attention.query + key + value + attention.mixed) + scores
    inner += size * (attention.normed * (attention.query + key) + 2 * attention.gate)
    wide += 2 * size * (attention.query_rank + attention.key_rank)
    # Two products, the activated gate, the last input; fused code has no activated gate.
    inner += size * f * ((3 if plan.fused else 4) if feed.gated else 2)
    if feed.experts:
        wide += size * h * routed + 4 * feed.experts + size * h * bool(feed.shared)
    if not plan.fused:  # what PyTorch's normalizations keep: of the mean square, or two numbers
        wide += layer.norms * (4 if layer.rms else 2 * size)
    return tokens * (wide / share + inner / plan.tensor)


def _scores(model: Transformer, attention: Attention, plan: Plan) -> float:
    """Bytes per token of what attention keeps between its two products."""
    if attention.state:
        return 0.0
    if plan.attention == "flash":
        return 4.0 * attention.heads
    if plan.recompute == "selective":
        return 0.0
    size = plan.formats.compute
    return attention.heads * model.sequence * (2 * size + 1 if model.masks else size)


def in_flight(plan: Plan, stage: int) -> float:
    """How many micro-batches' activations of all its layers a stage keeps at once.

    With 1F1B min(m, p - stage); interleaved 1 + (p - 1) / (p v) times p on the first stage
    (Korthikanti and others, 2022, section 4.2.3; Narayanan and others, 2021, section 2.2).
    """
    p, v, m = plan.pipeline, plan.interleave, plan.micro_batches
    if v == 1:
        return min(m, p - stage)
    return min(m, (2 * (p - stage - 1) + (v - 1) * p + 1) / v)


@lru_cache(maxsize=4096)
def layer_on(layer: Layer, tensor: int, expert: int) -> tuple[float, float]:
    """Numbers of a layer on one device of a stage: what all data ranks have, and experts."""
    common = sum(m.numbers * m.on(tensor) for m in layer.matrices if m.copies == 1)
    experts = sum(m.numbers for m in layer.matrices if m.copies > 1) / (tensor * expert)
    return common + layer.all_vectors, experts


def layer_of(model: Transformer, plan: Plan) -> tuple[float, float]:
    """The same in the mean over the layers."""
    common = model.mean(lambda layer: layer_on(layer, plan.tensor, plan.expert)[0])
    return common, model.mean(lambda layer: layer_on(layer, plan.tensor, plan.expert)[1])


def parameters_of(model: Transformer, plan: Plan, stage: int) -> tuple[float, float]:
    """Numbers on one device of a stage: of weights that data parallelism copies, and of experts."""
    t = plan.tensor
    layers = plan.layers_of(model, stage)
    layer, experts = layer_of(model, plan)
    own = layers * layer
    if stage == 0:
        own += model.hidden * model.vocabulary / t + model.outside
    if stage == plan.pipeline - 1 and (not model.tied or plan.pipeline > 1):
        own += model.hidden * model.vocabulary / t
    return own, layers * experts


def memory(model: Transformer, plan: Plan, capacity: float, room: float) -> Memory:
    """Bytes of every part on one device of each stage."""
    return Memory(tuple(_stage(model, plan, i) for i in range(plan.pipeline)), capacity, room)


def _stage(model: Transformer, plan: Plan, stage: int) -> dict[str, float]:
    bytes_of, group = plan.formats, plan.data * plan.context
    own, experts = parameters_of(model, plan, stage)

    def kept(size: float, sharded: bool, common: float = own) -> float:
        if not sharded:
            return size * (common + experts)
        return size * (common / group + experts / (group / plan.expert))

    weights = kept(bytes_of.weights, plan.zero == 3)
    if plan.zero == 2 and group > 1 and bytes_of.compute < bytes_of.weights:
        weights = kept(bytes_of.compute, False) + kept(bytes_of.weights, True)
    layers = plan.layers_of(model, stage)
    spared = 0.0
    if bytes_of.matrix_moments is not None:  # what an optimizer keeps less of these
        vectors = model.mean(lambda layer: layer.all_vectors)
        matrices = layers * (layer_of(model, plan)[0] - vectors)
        spared = kept(bytes_of.moments - bytes_of.matrix_moments, plan.zero >= 1, matrices)
    first, last = stage == 0, stage == plan.pipeline - 1
    saved = model.mean(lambda layer: _saved(model, layer, plan))
    activations = layers * saved * in_flight(plan, stage)
    tokens = plan.micro_batch * model.sequence / plan.context
    wide = tokens * model.hidden / (plan.tensor if plan.sequence_parallel else 1)
    activations += wide * in_flight(plan, 0) * (first and model.masks)  # of the embedding
    activations += 2 * bytes_of.compute * wide * last  # the output's input
    buffers = 0.0
    if plan.recompute in ("full", "matmuls"):  # the largest layer as it is computed again
        kept_all = replace(plan, recompute=None)
        buffers += max(_saved(model, layer, kept_all) for _, layer in model.kinds) - saved
    if plan.zero == 3:
        buffers += _gathered(model, plan, stage)
    if plan.sequence_parallel and plan.tensor > 1:  # the whole input of a product, its whole sums
        buffers += 2 * bytes_of.compute * tokens * model.hidden
    # A pipeline can't wait for a reduction after each micro-batch: PyTorch's stages call
    # `set_requires_gradient_sync(False)` until the last backward pass (torch 2.13,
    # torch/distributed/pipelining/stage.py), and `fully_shard` adds the gradients up in the
    # precision of their reduction. So they are unsharded at the peak.
    adds_up = plan.zero == 2 and plan.pipeline > 1 and plan.micro_batches > 1
    # A fused loss has the logits of a micro-batch as they are computed, and once in fp32, in place.
    # PyTorch's `cross_entropy` has three numbers in fp32 for each: the log-softmax, its gradient,
    # and that of the logits, which have gone themselves, unless a variable holds them.
    each = bytes_of.compute + 4 if plan.fused_loss else 12
    return {
        "weights": weights,
        "gradients": kept(bytes_of.gradients, plan.zero >= 2 and not adds_up),
        "optimizer state": kept(bytes_of.master + bytes_of.moments, plan.zero >= 1) - spared,
        "activations": activations,
        "logits": each * tokens * model.vocabulary / plan.tensor * last,
        "buffers": buffers,
    }


def _gathered(model: Transformer, plan: Plan, stage: int) -> float:
    """Whole weights and gradients that ZeRO-3 holds at a time, as PyTorch's `fully_shard` does.

    In the backward pass of a layer: its weights, those of the layer before it (gathered ahead) and
    its gradients, all in the compute precision, and the gradients of the layer behind it, which are
    being reduced, in their own precision. When its backward pass is over, its weights are freed and
    its gradients are copied into a buffer for the reduction, which takes the place of the other one
    (torch 2.13, torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, `post_backward` and
    `_backward_prefetch`). The embedding and the output are such units like the layers.
    """
    c, r = plan.formats.compute, plan.formats.gradients
    if plan.data * plan.context == 1:
        return 0.0
    layer = max(sum(layer_on(each, plan.tensor, plan.expert)) for _, each in model.kinds)
    end = model.hidden * model.vocabulary / plan.tensor
    units = [layer] * min(3, int(plan.layers_of(model, stage)))
    units = [end] * (stage == 0) + units + [end] * (stage == plan.pipeline - 1)
    most = 0.0
    for before, unit, behind in zip([0.0, *units], units, [*units[1:], 0.0], strict=False):
        computing = c * (unit + before + unit) + r * behind
        reducing = c * (before + unit) + r * unit
        most = max(most, computing, reducing)
    return most
