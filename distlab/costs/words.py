"""A plan and its bytes in a few words, for text and for pictures."""

from distlab.costs.plans import Plan


def axes_of(plan: Plan) -> str:
    """The axes of a plan, in words."""
    sizes = {"data": plan.data, "tensor": plan.tensor, "pipeline": plan.pipeline}
    sizes |= {"context": plan.context} if plan.context > 1 else {}
    sizes |= {"expert": plan.expert} if plan.expert > 1 else {}
    ends = ", short ends" if plan.short_ends else ""
    return " x ".join(f"{name} {size}" for name, size in sizes.items()) + ends


def unit_of(number: float) -> tuple[float, str]:
    """A unit in which so many bytes are not zero: its bytes, and its name."""
    return (1e9, "GB") if number >= 1e9 else (1e6, "MB") if number >= 1e6 else (1e3, "kB")
