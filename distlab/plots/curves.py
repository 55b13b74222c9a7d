"""Curves that should be one: above as they are, below how far each is from the reference."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, NullLocator
from numpy.typing import NDArray

from distlab.plots.style import (
    COLOURS,
    GREY,
    bare,
    check_figure,
    drawing,
    heading,
    legend_below,
    new_figure,
    settle,
)
from distlab.public import public
from distlab.wording import did_you_mean, listed, of_type

Numbers = NDArray[np.float64]
MARKERS = "osD^vPX"
FEW = 40  # points, each of which gets a marker
DASH = 5.0  # in widths of the line


@public
def compare(
    curves: Mapping[str, Sequence[float]],
    reference: str,
    *,
    x: str = "step",
    y: str = "loss",
    steps: Sequence[float] | None = None,
    rounding: bool = False,
    title: str | None = None,
    figure: Figure | SubFigure | None = None,
) -> Figure | None:
    """Draw curves, and below them on a log axis how far each is from the reference.

    Made for "parallel equals serial", where the curves coincide: the reference is a wide pale line,
    and the others are thin lines on it, dashed such that each shows where they have the same
    values. A difference of exactly zero has no place on a log axis; it gets a line of its own at
    the bottom, labelled "equal".

    Args:
        curves: For each name its values, all equally many.
        reference: The name of the curve that the others are compared with.
        x: What the curves go along.
        y: What their values are.
        steps: Where on the x axis the values are; 0, 1, 2 and so on by default.
        rounding: Whether to draw how far apart neighbouring float32 numbers of the reference's size
            are: one rounding moves a value by half of that at most.
        title: What to write above.
        figure: Where to draw, if not in a new figure; a subfigure will do.

    Returns:
        The figure, which a notebook shows once, as the result of its cell (see `distlab.plots`);
        None if `figure` is given.

    Raises:
        TypeError: If `curves` is no dict of numbers.
        ValueError: If the reference is not among the curves, or is alone; if a curve is empty,
            longer or shorter than another, or has values that are not finite.

    Example:
        >>> compare({"serial": [2.0, 1.0, 0.5], "2 ranks": [2.0, 1.0, 0.5000001]}, "serial")
        <Figure size 900x430 with 2 Axes>
    """
    numbers = _read(curves, reference)
    places = _steps(steps, numbers[reference])
    check_figure(figure)
    apart = {
        name: abs(values - numbers[reference])
        for name, values in numbers.items()
        if name != reference
    }
    with drawing():
        own = new_figure(4.3 + 0.3 * bool(title)) if figure is None else None
        where = figure or own
        assert where is not None
        above, below = where.subplots(2, 1, sharex=True, height_ratios=[3, 2])
        looks = {name: _look(i, len(apart), len(places)) for i, name in enumerate(apart)}
        pale: dict[str, Any] = {"color": COLOURS[7], "linewidth": 7, "alpha": 0.5}
        above.plot(places, numbers[reference], solid_capstyle="butt", label=reference, **pale)
        for name in apart:
            look = {**looks[name], "marker": ""} if len(places) > 1 else looks[name]
            above.plot(places, numbers[name], label=name, **look)
        handles = [Line2D([], [], label=f"{reference} (reference)", **pale)]
        handles += [
            Line2D([], [], label=name, **{**look, "linestyle": "-"}) for name, look in looks.items()
        ]
        if rounding:
            gaps = np.spacing(abs(numbers[reference]).astype(np.float32)).astype(float)
            (line,) = below.plot(places, gaps, color=GREY, linewidth=0.8, linestyle="-.")
            line.set_label("gap between neighbouring float32 numbers")
            handles.append(line)
        else:
            gaps = np.empty(0)
        _differences(below, places, apart, looks, gaps)
        for axes in (above, below):
            bare(axes, keep=("left", "bottom"))
            axes.grid(axis="y")
        above.set_ylabel(y, color=GREY)
        below.set_ylabel(f"difference\nfrom {reference}", color=GREY)
        below.set_xlabel(x, color=GREY)
        # Not Matplotlib's own choice of ticks, which depends on the style when it is drawn.
        above.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        whole = all(float(place).is_integer() for place in places)
        below.xaxis.set_major_locator(MaxNLocator(10, steps=[1, 2, 5, 10], integer=whole))
        where.align_ylabels([above, below])
        heading(above, title)
        if own:
            own.draw_without_rendering()  # gives the axes the width that the legend may have
        legend_below(below, handles, 34)
        if own:
            settle(own)
    return own


def _look(number: int, count: int, points: int) -> dict[str, Any]:
    """A thin line for one of several curves that may coincide: dashes that fill others' gaps."""
    dashes = (number * DASH, (DASH, DASH * (count - 1))) if count > 1 else (0, ())
    return {
        "color": COLOURS[number % len(MARKERS)],
        "linewidth": 1.6,
        "linestyle": (dashes[0], dashes[1] or None),
        "marker": MARKERS[number % len(MARKERS)] if points <= FEW else "",
        "markersize": 4 + 2.5 * (number % 4),  # so that one shows around another
        "markerfacecolor": "none",
        "markeredgewidth": 1.2,
    }


def _differences(
    axes: Axes,
    places: Numbers,
    apart: Mapping[str, Numbers],
    looks: Mapping[str, dict[str, Any]],
    gaps: Numbers,
) -> None:
    """Draw differences on a log axis, and zeros at its bottom, below a line."""
    seen = np.concatenate([*apart.values(), gaps])
    seen = seen[seen > 0]
    low = math.floor(math.log10(seen.min())) if len(seen) else 0
    high = math.ceil(math.log10(seen.max())) if len(seen) else 0
    high = max(high, low + 1)
    zeros = any((values == 0).any() for values in apart.values())
    room = max(1, (high - low) / 4)  # decades between what is smallest and zero
    zero = 10.0 ** (low - room)
    axes.set_yscale("log")
    for name, values in apart.items():
        solid = {**looks[name], "linestyle": "-", "linewidth": 1.0}
        if not solid["marker"]:  # a point between two zeros has no line
            solid |= {"marker": ".", "markersize": 3, "markerfacecolor": looks[name]["color"]}
        axes.plot(places, np.where(values > 0, values, np.nan), label=name, **solid)
        same = values == 0
        dots = {**looks[name], "linestyle": "", "marker": looks[name]["marker"] or "|"}
        axes.plot(places[same], np.full(same.sum(), zero), gid="zeros", **dots)
    stride = max(1, math.ceil((high - low) / 4))
    decades = range(low, high + 1, stride) if len(seen) else range(0)
    labels = [f"1e{decade}" for decade in decades]
    ticks = [10.0**decade for decade in decades]
    if zeros:
        ticks, labels = [zero, *ticks], ["equal", *labels]
        if len(seen):
            axes.axhline(10.0 ** (low - room / 2), color=GREY, linewidth=0.8, linestyle=":")
    axes.set_yticks(ticks, labels)
    axes.yaxis.set_minor_locator(NullLocator())
    bottom = low - room * 1.5 if zeros else low
    top = high if len(seen) else low
    if not len(seen):
        words = "no difference at any point"
        axes.text(0.5, 0.75, words, ha="center", color=GREY, transform=axes.transAxes)
    axes.set_ylim(10.0**bottom, 10.0 ** (top + (top - bottom) * 0.05))


def _read(curves: Any, reference: str) -> dict[str, Numbers]:
    if not isinstance(curves, Mapping):
        raise TypeError(
            'compare() takes a dict of curves by name, such as {"serial": losses, "8 devices": '
            f"others}}, not {of_type(curves)}."
        )
    if reference not in curves:
        raise ValueError(
            f"The reference {reference!r} is not among the curves, which are "
            f"{listed([str(name) for name in curves]) or 'none'}.{did_you_mean(reference, curves)}"
        )
    if len(curves) < 2:
        raise ValueError(f"There is nothing to compare {reference!r} with.")
    numbers = {str(name): _numbers(name, values) for name, values in curves.items()}
    for name, values in numbers.items():
        if len(values) != len(numbers[reference]):
            raise ValueError(
                f"{name!r} has {len(values)} values and {reference!r} has "
                f"{len(numbers[reference])}: they can't be compared one by one."
            )
    return numbers


def _numbers(name: object, values: Iterable[float]) -> Numbers:
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"The values of {name!r} must be numbers, not {of_type(values)}.") from None
    if numbers.ndim != 1 or not len(numbers):
        raise ValueError(
            f"{name!r} must be one row of at least one number, not of shape {numbers.shape}."
        )
    wrong = np.flatnonzero(~np.isfinite(numbers))
    if len(wrong):
        raise ValueError(f"{name!r} is {numbers[wrong[0]]} at position {wrong[0]}.")
    return numbers


def _steps(steps: Sequence[float] | None, values: Numbers) -> Numbers:
    if steps is None:
        return np.arange(len(values), dtype=np.float64)
    places = _numbers("steps", steps)
    if len(places) != len(values):
        raise ValueError(f"There are {len(values)} values, but {len(places)} steps.")
    return places
