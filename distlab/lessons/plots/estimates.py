"""The picture of an estimate of `costs`: what fills the memory, what takes the step's time."""

from textwrap import wrap

from matplotlib.figure import Figure

from distlab.costs.estimates import Estimate
from distlab.costs.words import axes_of, unit_of
from distlab.lessons.plots.bytes import memory
from distlab.lessons.plots.style import GREY, drawing, new_figure
from distlab.lessons.plots.timelines import timeline
from distlab.lessons.timeline import Span

LINE = 100
"""Letters in a line of a doubt."""
COLOURS = {
    "tensor": "C1",
    "context": "C4",
    "expert": "C3",
    "data": "C5",
    "pipeline": "C2",
    "bubble": "C7",
    "optimizer": "C6",
}
MOST_STAGES = 4
"""Stages that are drawn one by one; of more only the first, the fullest and the last."""


def estimate(shown: Estimate) -> Figure:
    """Draw what fills the memory, what takes the time of a step, and below them the doubts.

    Args:
        shown: What `costs.estimate` returned, or `costs.search` found.

    Returns:
        The figure.

    Example:
        >>> from distlab import costs
        >>> plan = costs.Plan(tensor=8, pipeline=8, batch=64, recompute="full")
        >>> estimate(costs.estimate(costs.GPT3_175B, plan, costs.A100_80GB))
        <Figure size 900x440 with 2 Axes>
    """
    kept, time, count = shown.memory, shown.step_time, shown.plan.devices
    last = len(kept.stages) - 1
    chosen = range(last + 1) if last < MOST_STAGES else sorted({0, kept.fullest, last})
    bars = {
        "a device" if last == 0 else f"stage {i}": {k: v for k, v in kept.stages[i].items() if v}
        for i in chosen
    }
    spans: list[Span] = []
    start = 0.0
    for name, seconds in time.parts.items():
        if seconds > 0:
            spans.append(Span(name, start, start + seconds))
            start += seconds
    device = "One device" if count == 1 else f"A device, one of {count:,}"
    doubts = [line for doubt in shown.doubts for line in wrap(doubt, LINE)]
    words = 0.2 * len(doubts)
    with drawing():
        figure = new_figure(3.2 + 0.4 * len(bars) + words)
        heights = [1.2 + 0.4 * len(bars), 1.5] + [words] * bool(doubts)
        above, middle, *below = figure.subplots(len(heights), height_ratios=heights)
        memory(
            bars,
            limit=kept.capacity - kept.room,
            unit=unit_of(kept.total)[1],
            colours=COLOURS,
            title=f"{device} ({shown.machine.name}): {axes_of(shown.plan)}\n"
            f"{kept.room / 1e9:.3g} of {kept.capacity / 1e9:.3g} GB are to stay free",
            axes=above,
        )
        timeline(
            {"one step": spans},
            unit="s",
            colours=COLOURS,
            title=f"One step: {time:.3g} s, expected between {time.low:.3g} and {time.high:.3g} s",
            axes=middle,
        )
        for axes in below:
            axes.set_axis_off()
            axes.text(0, 1, "\n".join(doubts), color=GREY, fontsize="small", va="top")
    return figure
