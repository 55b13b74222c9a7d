"""Curves that should be one: above as they are, below how far each is from the reference."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, NullLocator
from numpy.typing import NDArray

from distlab.errors import did_you_mean, listed
from distlab.lessons.plots import style
from distlab.phrases import said

Numbers = NDArray[np.float64]
HUES = 7  # C0 to C6; C7 is the reference's
DASH = 5.0  # in widths of the line
UPPER, LOWER, STRIP = 2.1, 1.4, 0.6  # inches: the curves, the panel below, one of several below
BETWEEN = 1.23  # of a strip's height: the middle between it and the strip above
PALE: dict[str, Any] = {"color": style.COLOURS[7], "linewidth": 7, "alpha": 0.5}
GAPS: dict[str, Any] = {"color": style.GREY, "linewidth": 0.8, "linestyle": "-."}
GAPS["label"] = "gap between neighbouring float32 numbers"


def compare(
    curves: Mapping[str, Sequence[float]],
    reference: str,
    *,
    x: str = "step",
    y: str = "loss",
    steps: Sequence[float] | None = None,
    rounding: bool = False,
    title: str | None = None,
) -> Figure:
    """Draw curves, and below them on a log axis how far each is from the reference.

    Made for "parallel equals serial", where the curves coincide: the reference is a wide pale line,
    and the others are thin lines on it, dashed such that each shows where they have the same
    values. Each has its differences in a panel of its own, all on one scale. A difference of
    exactly zero has no place on a log axis; it gets a row of its own at the bottom, labelled
    "equal".

    Args:
        curves: For each name its values, all equally many.
        reference: The name of the curve that the others are compared with.
        x: What the curves go along.
        y: What their values are.
        steps: Where on the x axis the values are; 0, 1, 2 and so on by default.
        rounding: Whether to draw how far apart neighbouring float32 numbers of the reference's size
            are: one rounding moves a value by half of that at most.
        title: What to write above.

    Returns:
        The figure.

    Raises:
        ValueError: If the reference is not among the curves, or is alone; if a curve is longer or
            shorter than the reference.

    Example:
        >>> compare({"serial": [2.0, 1.0, 0.5], "2 ranks": [2.0, 1.0, 0.5000001]}, "serial")
        <Figure size 900x435 with 2 Axes>
    """
    if reference not in curves:
        raise ValueError(
            f"The reference {reference!r} is not among the curves, which are "
            f"{listed(list(curves)) or 'none'}.{did_you_mean(reference, curves)}"
        )
    numbers = {name: np.asarray(values, np.float64) for name, values in curves.items()}
    serial = numbers.pop(reference)
    if not numbers:
        raise ValueError(f"There is nothing to compare {reference!r} with.")
    for name, values in numbers.items():
        if len(values) != len(serial):
            raise ValueError(
                f"{name!r} has {len(values)} values and {reference!r} has {len(serial)}: they "
                "can't be compared one by one."
            )
    places = np.asarray(range(len(serial)) if steps is None else steps, dtype=np.float64)
    apart = {name: abs(values - serial) for name, values in numbers.items()}
    gaps = np.spacing(abs(serial).astype(np.float32)).astype(float) if rounding else np.empty(0)
    scale = _Scale.of(np.concatenate([*apart.values(), gaps]))
    alone = len(apart) == 1
    looks = {name: _look(number, len(apart)) for number, name in enumerate(apart)}
    with style.drawing():
        lower = LOWER if alone else len(apart) * (STRIP + 0.22)
        figure = style.new_figure(UPPER + lower + 0.85 + 0.3 * bool(title))
        ratios = [UPPER, *([LOWER] if alone else [STRIP] * len(apart))]
        above, *panels = figure.subplots(len(ratios), 1, sharex=True, height_ratios=ratios)
        dot = "o" if len(places) == 1 else ""  # a line takes two points
        above.plot(places, serial, solid_capstyle="butt", label=reference, marker=dot, **PALE)
        for name, look in looks.items():
            above.plot(places, numbers[name], label=name, marker=dot, markersize=4, **look)
        for (name, values), axes in zip(apart.items(), panels, strict=True):
            if rounding:
                axes.plot(places, gaps, drawstyle="steps-mid", **GAPS)
            look = {"label": name, "color": looks[name]["color"]}
            _differences(axes, places, values, look, scale, decades=4 if alone else 1)
            style.bare(axes, keep=("left", "bottom"))
            axes.grid(axis="y")
            if not alone:
                axes.set_title(name, loc="left", fontsize=9, color=style.GREY, pad=2)
        style.bare(above, title, keep=("left", "bottom"))
        above.grid(axis="y")
        above.set_ylabel(y, color=style.GREY)
        # In the middle of the panels, which is between two of them if their number is even.
        height = 0.5 if len(panels) % 2 else BETWEEN
        words = f"difference\nfrom {reference}"
        panels[len(panels) // 2].set_ylabel(words, y=height, color=style.GREY)
        panels[-1].set_xlabel(x, color=style.GREY)
        # Not Matplotlib's own choice of ticks, which depends on the style when it is drawn.
        above.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        whole = all(float(place).is_integer() for place in places)
        above.xaxis.set_major_locator(MaxNLocator(10, steps=[1, 2, 5, 10], integer=whole))
        figure.align_ylabels([above, *panels])
        figure.draw_without_rendering()  # gives the axes the width that the legend may have
        short = {"linestyle": "-" if alone else (0, (3, 1.5))}
        handles = [Line2D([], [], label=f"{reference} (reference)", **PALE)]
        handles += [Line2D([], [], label=name, **look | short) for name, look in looks.items()]
        handles += [Line2D([], [], **GAPS)] * rounding
        style.legend_below(panels[-1], handles)
        style.settle(figure)
    return figure


def _look(number: int, count: int) -> dict[str, Any]:
    """A thin line for one of several curves that may coincide: dashes that fill others' gaps."""
    dashes = (DASH, DASH * (count - 1)) if count > 1 else None
    line = (number * DASH, dashes)
    return {"color": style.COLOURS[number % HUES], "linewidth": 1.6, "linestyle": line}


@dataclass(frozen=True)
class _Scale:
    """The decades that all panels of differences show, and whether there are zeros below them."""

    low: int
    high: int
    zeros: bool
    seen: bool

    @classmethod
    def of(cls, differences: Numbers) -> "_Scale":
        """The scale that shows all these."""
        seen = differences[differences > 0]
        low = math.floor(math.log10(seen.min())) if len(seen) else 0
        high = math.ceil(math.log10(seen.max())) if len(seen) else 0
        return cls(low, max(high, low + 1), bool((differences == 0).any()), bool(len(seen)))

    @property
    def room(self) -> float:
        """Decades between what is smallest and zero."""
        return max(1, (self.high - self.low) / 3)

    @property
    def zero(self) -> float:
        return float(10.0 ** (self.low - self.room))


def _differences(
    axes: Axes,
    places: Numbers,
    values: Numbers,
    look: Mapping[str, Any],
    scale: _Scale,
    decades: int,
) -> None:
    """Draw differences on a log axis, and zeros at its bottom, in a band.

    `decades` is how many steps the ticks of the log axis may have.
    """
    axes.set_yscale("log")
    apart = np.where(values > 0, values, np.nan)
    # No line joins the dots: between two steps there is no difference.
    axes.plot(places, apart, linestyle="", marker=".", markersize=5, **look)
    same = values == 0
    row = np.full(same.sum(), scale.zero)
    axes.plot(places[same], row, "|", gid="zeros", color=look["color"], markersize=5)
    stride = max(1, math.ceil((scale.high - scale.low) / decades))
    shown = range(scale.low, scale.high + 1, stride) if scale.seen else range(0)
    labels = [f"1e{decade}" for decade in shown]
    ticks = [10.0**decade for decade in shown]
    if scale.zeros:
        ticks, labels = [scale.zero, *ticks], [said("equal"), *labels]
        if scale.seen:
            band = 10.0 ** (scale.low - scale.room * 1.5), 10.0 ** (scale.low - scale.room / 2)
            axes.axhspan(*band, color=style.GREY, alpha=0.12, linewidth=0)
    axes.set_yticks(ticks, labels, fontsize=10 if decades > 1 else 8)
    axes.yaxis.set_minor_locator(NullLocator())
    bottom = scale.low - scale.room * 1.5 if scale.zeros else scale.low
    top = scale.high if scale.seen else scale.low
    if same.all():
        words = "no difference at any point"
        axes.text(
            0.5, 0.75, words, ha="center", va="center", color=style.GREY, transform=axes.transAxes
        )
    axes.set_ylim(10.0**bottom, 10.0 ** (top + (top - bottom) * 0.05))
