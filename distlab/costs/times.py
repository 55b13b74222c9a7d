"""Seconds of one training step, part by part."""

from distlab.costs.kernels import (
    beside,
    matmul_time,
    ring_bandwidth,
    ring_time,
    send_time,
    stream_time,
)
from distlab.costs.layers import passes
from distlab.costs.machines import Machine
from distlab.costs.memory import layer_of, parameters_of
from distlab.costs.models import Transformer
from distlab.costs.plans import Plan


class StepTime(float):
    """Seconds of one step, and what takes them.

    Attributes:
        parts: Seconds by name: `compute` of the layers, again with recompute, and of the output;
            exposed communication over the axes `tensor`, `context`, `expert` and `data`;
            `pipeline`, what stages send each other; `bubble`, stages that wait; `optimizer`, the
            update.
        low: The least that is expected, in seconds.
        high: The most that is expected, in seconds.
    """

    parts: dict[str, float]
    low: float
    high: float


def step_time(model: Transformer, plan: Plan, machine: Machine, spread: float = 0.0) -> StepTime:
    """Seconds of one step on such a machine."""
    m, p = plan.micro_batches, plan.pipeline
    forward, backward, again = passes(model, plan, machine)
    layer = {part: forward[part] + backward[part] + again[part] for part in forward}
    first, total = sum(forward.values()), sum(layer.values())
    per_micro, per_step = _data(model, plan, machine, first, total - first)
    head = _head(model, plan, machine)
    middle, last = plan.layers_of(model, 1 if p > 2 else 0), plan.layers_of(model, p - 1)
    slot = middle * total + per_micro
    if last * total + head < middle * total:
        last, head = middle, 0.0
    # All stages wait for the slowest: with equal parts it is the one with the output.
    parts = {
        **{part: seconds * m * last for part, seconds in layer.items()},
        "compute": m * (last * layer["compute"] + head),
        "data": m * per_micro + per_step,
        "pipeline": _between(model, plan, machine),
        "bubble": (p - 1) / plan.interleave * slot,
        "optimizer": _update(model, plan, machine),
    }
    time = StepTime(sum(parts.values()))
    time.parts, time.low, time.high = parts, time / (1 + spread), time * (1 + spread)
    return time


def _head(model: Transformer, plan: Plan, machine: Machine) -> float:
    """The output matrix and the loss, forward and backward, of one micro-batch."""
    size = plan.formats.compute
    tokens, h = plan.micro_batch * model.sequence / plan.context, model.hidden
    v = model.vocabulary / plan.tensor
    products = sum(
        matmul_time(m, n, k, machine, size)
        for m, n, k in ((tokens, v, h), (tokens, h, v), (v, h, tokens))
    )
    return products + stream_time(tokens * v * (5 * 4 + 2 * size), machine, 6)


def _data(
    model: Transformer, plan: Plan, machine: Machine, forward: float, backward: float
) -> tuple[float, float]:
    """Exposed communication over the data axis: of each micro-batch, and of each step."""
    group, stride = plan.data * plan.context, plan.tensor
    if group == 1:
        return 0.0, 0.0
    own, experts = parameters_of(model, plan, 0)
    layers = plan.layers_of(model, 0)
    size = plan.formats
    share = ring_bandwidth(group, stride, machine) / machine.inner_bandwidth

    def over(common: float, routed: float, size: float) -> float:
        """Numbers that all ranks have, and those of experts, which each of their copies has."""
        return ring_time(common * size, group, stride, machine) + ring_time(
            routed * size, group // plan.expert, stride * plan.expert, machine
        )

    if plan.zero == 3:
        layer, routed = layer_of(model, plan)
        gather, scatter = (over(layer, routed, x) for x in (size.compute, size.gradients))
        rest = own - layers * layer
        ends = sum(
            ring_time(rest * x, group, stride, machine) for x in (size.compute, size.gradients)
        )
        if not plan.overlap:
            return layers * (2 * gather + scatter) + ends, 0.0
        exposed = beside(gather, forward, share)
        exposed += beside(gather + scatter, backward, share)
        return layers * exposed + ends, 0.0
    # What the second half of it sends: gradients once more, or weights that were updated.
    kept = {0: size.gradients, 1: size.weights, 2: min(size.weights, size.compute)}[plan.zero]
    scatter, gather = (over(own, experts, each) for each in (size.gradients, kept))
    # ZeRO 2 keeps no gradients but its own part, so it sends them after each micro-batch. With a
    # pipeline it adds them up first, which memory.py counts.
    every_time = plan.zero == 2 and plan.pipeline == 1
    if not plan.overlap:
        return (scatter, gather) if every_time else (0.0, scatter + gather)
    # Beside the last backward pass; what its first layer makes comes after it.
    if not plan.zero:
        both = scatter + gather
        return 0.0, max(both / layers, beside(both, layers * backward, share))
    # ZeRO 1 and 2 gather the updated weights beside the first forward pass.
    after = max(scatter / layers, beside(scatter, layers * backward, share))
    gathered = max(gather / layers, beside(gather, layers * forward, share))
    return (after, gathered) if every_time else (0.0, after + gathered)


def _between(model: Transformer, plan: Plan, machine: Machine) -> float:
    """Activations forward and gradients backward; each rank of the tensor axis sends a part."""
    p = plan.pipeline
    if p == 1:
        return 0.0
    tokens = plan.micro_batch * model.sequence / plan.context
    number = tokens * model.hidden * plan.formats.compute / plan.tensor
    one = send_time(number, plan.devices, machine)
    return 2 * one * (plan.micro_batches * plan.interleave + p - 1)


def _update(model: Transformer, plan: Plan, machine: Machine) -> float:
    """The optimizer reads and writes what it keeps."""
    own, experts = parameters_of(model, plan, 0)
    group = plan.data * plan.context
    numbers = own / (group if plan.zero else 1) + experts / (
        group / plan.expert if plan.zero else 1
    )
    size = plan.formats
    return stream_time(
        numbers * 2 * (size.master + size.moments + size.gradients + size.weights), machine
    )
