"""Which plans fit, best first."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import gcd

from distlab.costs.checking import of_kind, whole
from distlab.costs.estimates import Estimate, estimate
from distlab.costs.machines import Machine
from distlab.costs.models import Transformer
from distlab.costs.plans import Plan, Precision

MICRO_BATCHES = (1, 2, 4, 8, 16)
CHUNKS = 12
"""Chunks per stage at most; NVIDIA's runs of GPT-3 have so many."""


def search(
    model: Transformer,
    devices: int,
    machine: Machine,
    batch: int,
    *,
    precision: str | Precision = "bf16_fp32_gradients",
    attention: str = "flash",
    fused: bool = True,
    fused_loss: bool = False,
    overlap: bool = True,
    top: int = 10,
    room: float | None = None,
) -> list[Estimate]:
    """Find the plans that fit, best first.

    Tries data, tensor (within a node), pipeline, context and expert axes, ZeRO 1 (and 3 without a
    pipeline, where there is something to shard over), micro-batches, interleaving and recompute;
    where the layers do not divide, stages with short ends. Of plans that differ only in
    micro-batch, interleaving and recompute only the fastest is returned.

    Limits: micro-batches of 1, 2, 4, 8 and 16, up to 12 chunks per stage, and a context axis up to
    16 that leaves each device 4,096 tokens or more. Never tried: ZeRO 0 and 2, recompute of
    "matmuls", and `overlap_tensor`, which not every program has.

    By default its plans are in `bf16_fp32_gradients` with flash attention, for compiled or fused
    code that communicates beside computation; with a tensor axis they have sequence parallelism.
    `Plan` by itself has other defaults: to change one of these plans, use
    `dataclasses.replace(found[0].plan, ...)`.

    Args:
        model: The model's sizes.
        devices: How many devices there are; a plan uses all of them.
        machine: Of what kind.
        batch: Sequences in a step.
        precision: Number formats of all plans.
        attention: "flash" or "standard".
        fused: Whether the code is compiled or has fused kernels; not so in plain PyTorch.
        fused_loss: Whether the loss works on the logits in place.
        overlap: Whether gradients and weights are sent beside computation.
        top: How many to return at most.
        room: Bytes of a device's memory that stay free, as in `estimate`; by default one sixth.

    Returns:
        Estimates by their step time; empty if no plan fits.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If there are no devices or no sequences, or a name or the room is not known.

    Example:
        >>> from distlab import costs
        >>> best = costs.search(costs.LLAMA3_8B, 64, costs.H100_SXM, batch=256)[0]
        >>> best.plan.devices, best.fits
        (64, True)
    """
    of_kind("model", model, Transformer)
    of_kind("machine", machine, Machine)
    devices, batch, top = whole("devices", devices), whole("batch", batch), whole("top", top)
    base = Plan(
        batch=batch,
        precision=precision,
        attention=attention,
        fused=fused,
        fused_loss=fused_loss,
        overlap=overlap,
    )
    best: dict[tuple[int, ...], Estimate] = {}
    for plan in _plans(model, devices, machine, base):
        found = estimate(model, plan, machine, room=room)
        if not found.fits:
            continue
        key = (plan.data, plan.tensor, plan.pipeline, plan.context, plan.expert, plan.zero)
        if key not in best or found.step_time < best[key].step_time:
            best[key] = found
    return sorted(best.values(), key=lambda found: float(found.step_time))[:top]


def _divisors(number: int, limit: int) -> list[int]:
    return [size for size in range(1, min(number, limit) + 1) if number % size == 0]


def _plans(model: Transformer, devices: int, machine: Machine, base: Plan) -> Iterator[Plan]:
    """All plans to try whose sizes divide, for the batch and the program of one."""
    contexts = [c for c in _divisors(devices, 16) if c == 1 or model.sequence // c >= 4096]
    for tensor, context in product(_divisors(devices, machine.devices_per_node), contexts):
        for pipeline in _divisors(devices // (tensor * context), model.layers):
            data = devices // (tensor * context * pipeline)
            short = model.layers % pipeline != 0
            slots = model.layers + 2 * short
            if data * tensor * context * pipeline != devices or slots % pipeline:
                continue
            ways = product(
                (1, 3) if pipeline == 1 and data * context > 1 else (1,),
                MICRO_BATCHES,
                (None, "selective", "full") if base.attention == "standard" else (None, "full"),
                _divisors(slots // pipeline, CHUNKS if pipeline > 1 else 1),
                _divisors(gcd(model.routed or 1, data * context), model.routed or 1),
            )
            for zero, micro, again, chunks, expert in ways:
                try:
                    plan = replace(
                        base,
                        data=data,
                        tensor=tensor,
                        pipeline=pipeline,
                        context=context,
                        expert=expert,
                        micro_batch=micro,
                        recompute=again,
                        sequence_parallel=tensor > 1,
                        zero=zero,
                        interleave=chunks,
                        short_ends=short,
                    )
                    plan.check(model)
                except ValueError:  # something does not divide
                    continue
                yield plan
