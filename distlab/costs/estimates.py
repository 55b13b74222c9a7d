"""What a plan takes: memory, time, and how sure that is."""

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape

from distlab.costs.checking import number, of_kind
from distlab.costs.machines import Machine
from distlab.costs.memory import ROOM, Memory, memory
from distlab.costs.models import Transformer
from distlab.costs.plans import Plan
from distlab.costs.times import StepTime, step_time
from distlab.tables import aligned

USUAL = 0.15
"""How far off predictions of published runs are, at least four times of five, whoever published
them (docs/costs.md says how often for whom)."""
NEARLY_FULL = 0.85
"""Part of the memory from which allocators have to search and to give back, which takes time."""
FP32 = "No run in fp32 was compared. Without TF32, PyTorch's default, products take far longer."
LARGE = "ZeRO-3 in large groups: some implementations took three times as long."
MANY = "Many small experts: published runs took 0.8 to 3 times what is counted."


@dataclass(frozen=True)
class Estimate:
    """What one plan takes on one machine.

    Attributes:
        model: The model.
        plan: How it is divided.
        machine: On what.
        memory: Bytes per device, by part and pipeline stage; `memory.total` is of the fullest.
        step_time: Seconds of one step, a number with `parts`, `low` and `high`.
        doubts: What is not known, in words: why the range is wider than usual, and where memory may
            be far more than is counted.
    """

    model: Transformer
    plan: Plan
    machine: Machine
    memory: Memory
    step_time: StepTime
    doubts: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether the bytes counted on the fullest device, and the room, are in its memory."""
        return self.memory.fits

    @property
    def rough(self) -> bool:
        """Whether only the range of the time is to be used, and no single number."""
        return MANY in self.doubts

    @property
    def model_flops(self) -> float:
        """FLOPs of one step that the model needs, without those of recompute."""
        return self.model.flops(self.plan.batch)

    @property
    def tokens_per_second_per_device(self) -> float:
        """Tokens of a step by its seconds and devices."""
        return self.plan.batch * self.model.sequence / self.step_time / self.plan.devices

    @property
    def mfu(self) -> float:
        """Model FLOPs utilization: the part of the 16-bit peak that `model_flops` take.

        They include the half of the attention that a causal mask throws away.
        """
        return self.model_flops / self.step_time / self.plan.devices / self.machine.flops

    @property
    def hfu(self) -> float:
        """Hardware FLOPs utilization as papers count it: `mfu` with the FLOPs of recompute.

        These are not the FLOPs that kernels execute. Like `mfu` it counts the whole attention.
        Under a causal mask, flash attention computes about half, and in the backward pass the
        scores once more, which no `recompute` asks for. `step_time` counts both as the kernels do:
        half of the forward pass, and 2.5 times that half backward.
        """
        again = self.plan.recompute
        if again == "selective" and self.plan.attention == "flash":
            again = None  # it keeps no scores, so nothing is added
        done = self.model.flops(self.plan.batch, again)
        return done / self.step_time / self.plan.devices / self.machine.flops

    @property
    def bound(self) -> str:
        """What to change first, in a word.

        `memory` if it does not fit; else the part other than `compute` that takes most, if it takes
        a fifth of the step or more; else `compute`.
        """
        if not self.fits:
            return "memory"
        parts = {name: value for name, value in self.step_time.parts.items() if name != "compute"}
        worst = max(parts, key=lambda name: parts[name])
        return worst if parts[worst] > 0.2 * self.step_time else "compute"

    def __str__(self) -> str:
        plan, time, kept = self.plan, self.step_time, self.memory
        unit, name = unit_of(kept.total)
        capacity = f"{kept.capacity / 1e9:.0f}" + ("" if name == "GB" else " GB")
        memory_line = (
            f"{kept.total / unit:.1f} {name}, with an allocator up to {kept.high / unit:.1f}; "
            f"{(kept.capacity - kept.room) / 1e9:.1f} may be used of {capacity}"
        )
        between = f"between {time.low:.3g} and {time.high:.3g} s"
        rows = [
            ("devices", f"{plan.devices} ({self.machine.name}): {_axes_of(plan)}"),
            ("memory", memory_line + (": fits" if self.fits else ": does not fit")),
            ("", ", ".join(_parts(kept.parts, unit, name))),
            ("step", between if self.rough else f"{time:.3g} s, {between}"),
        ]
        if not self.rough:
            rows += [
                ("", ", ".join(_parts(time.parts, 1, "s"))),
                ("tokens/s per device", f"{self.tokens_per_second_per_device:,.0f}"),
                ("MFU, HFU", f"{self.mfu:.1%}, {self.hfu:.1%}"),
            ]
        return "\n".join([aligned([*rows, ("bound by", self.bound)]), *self.doubts])

    def __repr__(self) -> str:
        unit, name = unit_of(self.memory.total)
        size = f"{self.memory.total / unit:.1f} {name} per device"
        low, high = self.step_time.low, self.step_time.high
        return f"<Estimate: {low:.3g} to {high:.3g} s per step, {size}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: all of the text."""
        return f"<pre>{escape(str(self))}</pre>"


def _axes_of(plan: Plan) -> str:
    """The axes of a plan, in words."""
    sizes = {axis: getattr(plan, axis) for axis in ("data", "tensor", "pipeline")}
    sizes |= {axis: n for axis in ("context", "expert") if (n := getattr(plan, axis)) > 1}
    return " x ".join(f"{k} {n}" for k, n in sizes.items()) + ", short ends" * plan.short_ends


def unit_of(number: float) -> tuple[float, str]:
    """A unit in which so many bytes are not zero: its bytes, and its name."""
    return (1e9, "GB") if number >= 1e9 else (1e6, "MB") if number >= 1e6 else (1e3, "kB")


def _parts(parts: Mapping[str, float], unit: float, name: str) -> list[str]:
    return [
        f"{key} {value / unit:.3g} {name}" for key, value in parts.items() if value / unit >= 5e-4
    ]


def estimate(
    model: Transformer, plan: Plan, machine: Machine, *, room: float | None = None
) -> Estimate:
    """Estimate the memory and the time of one training step.

    Memory is counted with published formulas (`distlab.costs.memory`). Time is that of each matrix
    product, of the bytes that pass through memory, and of the bytes that are sent; nine rates were
    fitted to published runs, and others are predicted (docs/costs.md).

    Args:
        model: The model's sizes.
        plan: How it is divided.
        machine: What it runs on.
        room: Bytes of a device's memory that stay free, for what an allocator holds and does not
            use: a plan fits if the bytes counted and the room are no more than the memory. By
            default a sixth of it. torchtitan's runs with ZeRO 3 alone took up to 10.4 % more than
            counted, those with a tensor or a pipeline axis up to 36 % (docs/costs.md).

    Returns:
        The estimate.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If the plan cannot divide the model, or the room is not a part of the memory.

    Example:
        >>> from distlab import costs
        >>> plan = costs.Plan(tensor=8, pipeline=8, batch=64, interleave=3, recompute="full")
        >>> costs.estimate(costs.GPT3_175B, plan, costs.A100_80GB).fits
        True
    """
    of_kind("model", model, Transformer)
    of_kind("plan", plan, Plan)
    of_kind("machine", machine, Machine)
    plan.check(model)
    free = machine.memory * ROOM if room is None else number("room", room, zero=True)
    if free >= machine.memory or 0 < free < 1e6:
        raise ValueError(
            f"room={free:,.0f}: give bytes that stay free, from 0 to less than the "
            f"{machine.memory:,.0f} of a device"
        )
    kept = memory(model, plan, machine.memory, free)
    doubts, spread = _doubts(model, plan, machine, kept)
    time = step_time(model, plan, machine, spread)
    return Estimate(model, plan, machine, kept, time, doubts)


def _doubts(
    model: Transformer, plan: Plan, machine: Machine, kept: Memory
) -> tuple[tuple[str, ...], float]:
    """What widens the range, in words, and the range as a factor."""
    node, ranks, experts = machine.devices_per_node, plan.data * plan.context, model.routed
    apart = plan.expert > 1 and plan.expert * plan.tensor > node
    linear = any(layer.attention.state for _, layer in model.kinds)
    full = NEARLY_FULL * kept.capacity < kept.total <= kept.capacity
    divided = plan.zero >= 2 and (plan.pipeline > 1 or plan.tensor > 1)
    more = ("pipeline", "13 to 36") if plan.pipeline > 1 else ("tensor axis", "18 to 26")
    all_doubts = (
        (not machine.fitted, f"No run on {machine.name} was used to fit its rates.", 0.3),
        (plan.tensor > node, "No run was compared whose tensor axis is larger than a node.", 0.3),
        (plan.context > 1, "No run with a context axis was used to fit.", 0.2),
        (apart, "No run with experts spread over several nodes was used to fit.", 0.3),
        (linear, "No run with linear attention was compared.", 0.3),
        (plan.formats.multiplied > 2, FP32, 0.3),
        (experts > 0, "How evenly tokens go to experts is not known: taken as equal.", 0.3),
        (experts >= 32, MANY, 2.0),
        (full, "Memory is nearly full: an allocator that searches can take a third longer.", 0.3),
        (plan.zero == 3 and ranks > node * 16, LARGE, 0.5),
        (divided, f"With a {more[0]}, torchtitan held {more[1]} % more memory than counted.", 0.0),
    )
    found = [(words, factor) for there, words, factor in all_doubts if there]
    spread = (USUAL**2 + sum(factor**2 for _, factor in found)) ** 0.5
    return tuple(words for words, _ in found), spread
