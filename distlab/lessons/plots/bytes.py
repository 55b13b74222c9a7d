"""What fills the memory of a device: a bar for each plan, stacked of what takes the bytes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.patheffects import Stroke
from matplotlib.ticker import MaxNLocator

from distlab.errors import did_you_mean, listed, of_type
from distlab.lessons.plots.looks import Look, assign
from distlab.lessons.plots.style import (
    BAR,
    COLOURS,
    GREY,
    INK,
    LEGEND_ROW,
    ROW,
    SMALL,
    bare,
    check_axes,
    drawing,
    figure_of,
    heading,
    legend_below,
    new_figure,
    settle,
    width_of,
)

KINDS = {
    "weights": Look(COLOURS[0]),
    "gradients": Look(COLOURS[1]),
    "optimizer state": Look(COLOURS[2]),
    "activations": Look(COLOURS[3]),
    "buffers": Look(COLOURS[6]),
    "inputs": Look(COLOURS[3], "////"),
    "other": Look(COLOURS[7]),
}
UNITS = {
    "B": 1.0,
    "kB": 1e3,
    "MB": 1e6,
    "GB": 1e9,
    "TB": 1e12,
    "KiB": 2.0**10,
    "MiB": 2.0**20,
    "GiB": 2.0**30,
    "TiB": 2.0**40,
}
LIMIT = COLOURS[4]
GAP = 5.0  # pixels before and behind words
WIDE = 1.8  # points, the limit
RIM = 1.0  # points of white on both sides of the limit where it runs through a bar


def memory(
    plans: Mapping[str, Mapping[str, float]],
    limit: float | None = None,
    unit: str = "MB",
    *,
    colours: Mapping[str, str] | None = None,
    title: str | None = None,
    axes: Axes | None = None,
) -> Figure | None:
    """Draw how much memory each plan or each device takes, and for what.

    A kind of contents has the same colour in every picture: `weights` are blue, `gradients` orange,
    the `optimizer state` green, `activations` pink; there are also `buffers`, `inputs` and `other`.
    A kind that is not known gets a free colour. A part is labelled where there is room; the legend
    names all of them, in the order of the bars.

    Args:
        plans: For each plan or device the bytes of each kind of contents.
        limit: The bytes that a device has: a dashed line. Bars that pass it say by how much.
        unit: What to write the bytes in: `"B"`, `"kB"`, `"MB"`, `"GB"`, `"TB"` with a thousand of
            each in the next, or `"KiB"`, `"MiB"`, `"GiB"`, `"TiB"` with 1,024.
        colours: Matplotlib colours for some kinds.
        title: What to write above.
        axes: Where to draw, if not in a new figure. Set the size of its figure before.

    Returns:
        The figure, which a notebook shows once, as the result of its cell (see `distlab.plots`);
        None if `axes` is given.

    Raises:
        TypeError: If `plans` is no dict of dicts of numbers.
        ValueError: If there are no plans, or nothing in any, if bytes are negative or not finite,
            or the unit is not known.

    Example:
        >>> one = {"weights": 4e9, "gradients": 4e9, "optimizer state": 8e9}
        >>> memory({"1 device": one}, limit=12e9, unit="GB")
        <Figure size 900x132 with 1 Axes>
    """
    bars = _read(plans, unit)
    bound = None if limit is None else _size(limit, "The limit", unit)
    check_axes(axes)
    met = dict.fromkeys(kind for bar in bars for kind in bar.parts)
    kinds = [kind for kind in KINDS if kind in met] + [kind for kind in met if kind not in KINDS]
    looks = assign(kinds, KINDS, colours)
    with drawing():
        own = new_figure(2.0) if axes is None else None
        where = axes if own is None else own.add_subplot()
        assert where is not None
        lane = 0.0 if bound is None else 0.5
        bare(where)
        where.set_ylim(len(bars), -lane)
        where.set_yticks([i + 0.5 for i in range(len(bars))], [bar.name for bar in bars])
        where.tick_params(axis="y", length=0)
        where.xaxis.set_major_formatter(lambda size, _: brief_size(size))
        where.set_xlabel(f"memory ({unit})", color=GREY)
        heading(where, title)
        for _ in range(2):  # the axes' width depends on the labels of their ticks, and these on it
            figure_of(where).draw_without_rendering()
            _extend(where, bars, bound, unit)
        legend_rows = legend_below(where, [look.handle(kind) for kind, look in looks.items()], 34)
        if own:
            room = 0.49 + 0.3 * bool(title) + LEGEND_ROW * legend_rows
            own.set_size_inches(own.get_figwidth(), round(room + ROW * (len(bars) + lane), 2))
            settle(own)
        _draw(where, bars, kinds, looks, bound, unit)
    return own


@dataclass(frozen=True)
class _Bar:
    """One plan: its name, and what takes how much, in the picture's unit."""

    name: str
    parts: dict[str, float]

    @property
    def total(self) -> float:
        return sum(self.parts.values())


def brief_size(size: float) -> str:
    """Write a size in three digits: `0.25`, `12.5`, `1,230`."""
    return f"{size:,.0f}" if size >= 999.5 else f"{size:.3g}"


def _extend(axes: Axes, bars: list[_Bar], bound: float | None, unit: str) -> None:
    """Make room for every total behind its bar, and behind the limit if it would cross that."""
    figure, width = figure_of(axes), axes.get_window_extent().width
    ends = []
    for bar in bars:
        share = (width_of(figure, _total(bar, bound, unit), 9) + 2 * GAP) / width
        ends.append(max(bar.total, bound or 0) / (1 - min(share, 0.9)))
    axes.set_xlim(0, max(ends))
    ticks = int(width / (width_of(figure, brief_size(max(ends)), 10) + 30))
    axes.xaxis.set_major_locator(MaxNLocator(max(1, min(ticks, 10)), steps=[1, 2, 5, 10]))


def _draw(
    axes: Axes,
    bars: list[_Bar],
    kinds: list[str],
    looks: Mapping[str, Look],
    bound: float | None,
    unit: str,
) -> None:
    figure, last = figure_of(axes), axes.get_xlim()[1]
    pixel = last / axes.get_window_extent().width
    for row, bar in enumerate(bars):
        words, low = _total(bar, bound, unit), row + (1 - BAR) / 2
        left = 0.0
        for kind in (kind for kind in kinds if bar.parts.get(kind)):
            size = bar.parts[kind]
            look, narrow = looks[kind], size < SMALL * pixel
            patch = look.patch(Rectangle, (left, low), size, BAR, label=kind)
            patch.set_linewidth(0.8 if narrow else 0.5)
            if narrow:
                patch.set_edgecolor(look.colour)
            axes.add_patch(patch)
            _label(axes, kind, size, look, _free(left, left + size, bound), row + 0.5, pixel)
            left += size
        crosses = (
            bound is not None
            and left - GAP * pixel < bound < left + (width_of(figure, words, 9) + 2 * GAP) * pixel
        )
        start = bound if crosses and bound is not None else left
        axes.text(
            start + GAP * pixel, row + 0.5, words, fontsize=9, color=GREY, va="center_baseline"
        )
        if bound is not None and 0 < bound < left:  # the dashes have a rim inside the bar
            (rim,) = _line(axes, bound, len(bars), gid="rim")
            rim.set_path_effects([Stroke(linewidth=WIDE + 2 * RIM, foreground="white")])
            rim.set_clip_path(Rectangle((0, low), left, BAR, transform=axes.transData))
    if bound is not None:
        _line(axes, bound, len(bars), gid="limit")
        words = f"limit: {brief_size(bound)} {unit}"
        right = bound + width_of(figure, words, 9) * pixel + GAP * pixel < last
        axes.text(
            bound + (GAP if right else -GAP) * pixel,
            -0.2,
            words,
            fontsize=9,
            color=GREY,
            ha="left" if right else "right",
            va="center_baseline",
        )


def _line(axes: Axes, bound: float, rows: int, gid: str) -> list[Line2D]:
    """Draw the limit's dashes, in front of the bars."""
    return axes.plot([bound, bound], [rows, -0.3], color=LIMIT, ls="--", lw=WIDE, gid=gid)


def _total(bar: _Bar, bound: float | None, unit: str) -> str:
    words = f"{brief_size(bar.total)} {unit}"
    if bound is not None and bar.total > bound:
        # Of what is written, so that readers who subtract find the same.
        written = [float(brief_size(size).replace(",", "")) for size in (bar.total, bound)]
        apart = written[0] - written[1] or bar.total - bound
        words += f", {brief_size(apart)} too much"
    return words


def _free(left: float, right: float, bound: float | None) -> tuple[float, float]:
    """The part of a bar where a label can be, which is not across the limit."""
    if bound is None or not left < bound < right:
        return left, right
    return (left, bound) if bound - left > right - bound else (bound, right)


def _label(
    axes: Axes,
    kind: str,
    size: float,
    look: Look,
    between: tuple[float, float],
    y: float,
    pixel: float,
) -> None:
    """Write into a part what it is and how much, if there is room; else how much, or nothing."""
    left, right = between
    for words, gap in ((f"{kind} {brief_size(size)}", GAP), (brief_size(size), GAP / 2)):
        if (width_of(figure_of(axes), words, 8.5) + 2 * gap) * pixel <= right - left:
            axes.text(
                (left + right) / 2,
                y,
                words,
                fontsize=8.5,
                color=INK,
                ha="center",
                va="center_baseline",
                bbox=look.ground(),
            )
            return


def _read(plans: Any, unit: str) -> list[_Bar]:
    if unit not in UNITS:
        raise ValueError(
            f"Unknown unit {unit!r}: expected {listed(list(UNITS))}.{did_you_mean(unit, UNITS)}"
        )
    example = '{"1 device": {"weights": 4e9, "gradients": 4e9}}'
    if not isinstance(plans, Mapping):
        raise TypeError(f"memory() takes a dict of plans, such as {example}, not {of_type(plans)}.")
    if not plans:
        raise ValueError("memory() was given no plans.")
    bars = []
    for name, parts in plans.items():
        if not isinstance(parts, Mapping):
            raise TypeError(
                f"Plan {name!r} must be a dict of bytes, as in {example}, not {of_type(parts)}."
            )
        sizes = {str(k): _size(size, f"{k!r} of {name!r}", unit) for k, size in parts.items()}
        bars.append(_Bar(str(name), sizes))
    if not any(bar.total for bar in bars):
        raise ValueError("No plan takes any memory.")
    return bars


def _size(value: Any, what: str, unit: str) -> float:
    try:
        size = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{what} must be a number of bytes, not {of_type(value)}.") from None
    if not math.isfinite(size) or size < 0:
        raise ValueError(f"{what} can't be {size:,.0f} bytes.")
    return size / UNITS[unit]
