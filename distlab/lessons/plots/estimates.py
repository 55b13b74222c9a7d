"""The picture of an estimate of `costs`: what fills the memory, what takes the step's time."""

from itertools import accumulate, pairwise

from matplotlib.figure import Figure

from distlab.costs.estimates import Estimate, unit_of
from distlab.lessons.plots.bytes import memory
from distlab.lessons.plots.style import drawing, new_figure
from distlab.lessons.plots.timelines import timeline
from distlab.lessons.timeline import Span


def estimate(shown: Estimate) -> Figure:
    """Draw what fills the memory of a device, and what takes the time of a step.

    Of a pipeline's stages, those are shown that keep most and least.

    Args:
        shown: What `costs.estimate` returned, or `costs.search` found.

    Returns:
        The figure.

    Example:
        >>> from distlab import costs
        >>> plan = costs.Plan(tensor=8, pipeline=8, batch=64, recompute="full")
        >>> estimate(costs.estimate(costs.GPT3_175B, plan, costs.A100_80GB))
        <Figure size 900x400 with 2 Axes>
    """
    kept, time = shown.memory, shown.step_time
    totals = [sum(stage.values()) for stage in kept.stages]
    chosen = {kept.fullest, totals.index(min(totals))}
    bars = {
        f"stage {i}": {part: size for part, size in kept.stages[i].items() if size}
        for i in sorted(chosen)
    }
    taken = {part: seconds for part, seconds in time.parts.items() if seconds}
    ends = pairwise(accumulate(taken.values(), initial=0.0))
    spans = [Span(part, *both) for part, both in zip(taken, ends, strict=True)]
    with drawing():
        figure = new_figure(3.2 + 0.4 * len(bars))
        above, below = figure.subplots(2, height_ratios=[1.2 + 0.4 * len(bars), 1.5])
        memory(
            bars,
            limit=kept.capacity - kept.room,
            unit=unit_of(kept.total)[1],
            title=f"one of {shown.plan.devices:,} devices ({shown.machine.name}), of which "
            f"{kept.room / 1e9:.3g} of {kept.capacity / 1e9:.3g} GB are to stay free",
            axes=above,
        )
        timeline(
            {"one step": spans},
            unit="s",
            title=f"{time:.3g} s, expected between {time.low:.3g} and {time.high:.3g} s",
            axes=below,
        )
    return figure
