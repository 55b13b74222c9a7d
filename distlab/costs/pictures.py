"""The picture of an estimate: what fills the memory, and what takes the step's time."""

import io
from textwrap import wrap
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec

from distlab.costs.words import axes_of, unit_of
from distlab.lessons.plots.bytes import memory as draw_memory
from distlab.lessons.plots.style import GREY, drawing, new_figure
from distlab.lessons.plots.timelines import timeline
from distlab.lessons.timeline import Span

if TYPE_CHECKING:
    from distlab.costs.estimates import Estimate

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


def figure(shown: "Estimate") -> Figure:
    """Draw one estimate: memory, time, and the doubts below them."""
    kept = shown.memory
    stages = kept.stages
    last = len(stages) - 1
    chosen = range(last + 1) if last < MOST_STAGES else sorted({0, kept.fullest, last})
    bars = {
        "a device" if last == 0 else f"stage {i}": {k: v for k, v in stages[i].items() if v}
        for i in chosen
    }
    spans: list[Span] = []
    start = 0.0
    for name, seconds in shown.step_time.parts.items():
        if seconds > 0:
            spans.append(Span(name, start, start + seconds))
            start += seconds
    count = shown.plan.devices
    device = "One device" if count == 1 else f"A device, one of {count:,}"
    doubts = [line for doubt in shown.doubts for line in wrap(doubt, LINE)]
    words = 0.2 * len(doubts)
    with drawing():
        made = new_figure(3.2 + 0.4 * len(bars) + words)
        heights = [1.2 + 0.4 * len(bars), 1.5] + [words] * bool(doubts)
        rows = GridSpec(len(heights), 1, figure=made, height_ratios=heights)
        draw_memory(
            bars,
            limit=kept.capacity - kept.room,
            unit=unit_of(kept.total)[1],
            colours=COLOURS,
            title=f"{device} ({shown.machine.name}): {axes_of(shown.plan)}\n"
            f"{kept.room / 1e9:.3g} of {kept.capacity / 1e9:.3g} GB are to stay free",
            axes=made.add_subplot(rows[0]),
        )
        timeline(
            {"one step": spans},
            unit="s",
            colours=COLOURS,
            title=f"One step: {shown.step_time:.3g} s, expected between {shown.step_time.low:.3g} "
            f"and {shown.step_time.high:.3g} s",
            axes=made.add_subplot(rows[1]),
        )
        if doubts:
            below = made.add_subplot(rows[2])
            below.set_axis_off()
            below.text(0, 1, "\n".join(doubts), color=GREY, fontsize="small", va="top")
    return made


def png(shown: "Estimate") -> bytes:
    """The picture as a notebook stores it."""
    stream = io.BytesIO()
    figure(shown).savefig(stream, format="png", facecolor="none")
    return stream.getvalue()
