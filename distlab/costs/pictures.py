"""The picture of an estimate: what fills the memory, and what takes the step's time."""

import io
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec

from distlab.plots.bytes import memory as draw_memory
from distlab.plots.style import drawing, new_figure
from distlab.plots.timelines import timeline
from distlab.timeline import Span

if TYPE_CHECKING:
    from distlab.costs.estimates import Estimate

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
    """Draw one estimate."""
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
    with drawing():
        made = new_figure(2.9 + 0.4 * len(bars))
        rows = GridSpec(2, 1, figure=made, height_ratios=[1.2 + 0.4 * len(bars), 1.5])
        draw_memory(
            bars,
            limit=kept.capacity - kept.room,
            unit="GB",
            colours=COLOURS,
            title=f"Memory of one of {shown.plan.devices} devices ({shown.machine.name}): "
            f"{kept.room / 1e9:.3g} of {kept.capacity / 1e9:.3g} GB stay free",
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
    return made


def png(shown: "Estimate") -> bytes:
    """The picture as a notebook stores it."""
    stream = io.BytesIO()
    figure(shown).savefig(stream, format="png", facecolor="none")
    return stream.getvalue()
