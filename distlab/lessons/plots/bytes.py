"""What fills the memory of a device: a bar for each plan, stacked of what takes the bytes."""

from collections.abc import Mapping, Sequence
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
    bare,
    drawing,
    figure_of,
    legend_below,
    new_figure,
    settle_rows,
    width_in_pixels,
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
LANE = 0.5  # of a row, above the bars, for the limit's words
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
        The figure; None if `axes` is given.

    Raises:
        TypeError: If `plans` is no dict of dicts.
        ValueError: If no plan takes any memory, or the unit is not known.

    Example:
        >>> one = {"weights": 4e9, "gradients": 4e9, "optimizer state": 8e9}
        >>> memory({"1 device": one}, limit=12e9, unit="GB")
        <Figure size 900x132 with 1 Axes>
    """
    bars = _read(plans, unit)
    bound = None if limit is None else limit / UNITS[unit]
    met = dict.fromkeys(kind for bar in bars for kind in bar.parts)
    kinds = [kind for kind in KINDS if kind in met] + [kind for kind in met if kind not in KINDS]
    looks = assign(kinds, KINDS, colours)
    with drawing():
        where = axes or new_figure(2.0).add_subplot()
        lane = 0.0 if bound is None else LANE
        bare(where, title)
        where.set_ylim(len(bars), -lane)
        where.set_yticks([i + 0.5 for i in range(len(bars))], [bar.name for bar in bars])
        where.tick_params(axis="y", length=0)
        where.xaxis.set_major_formatter(lambda size, _: _brief(size))
        where.set_xlabel(f"memory ({unit})", color=GREY)
        words = [_total(bar, bound, unit) for bar in bars]
        for _ in range(2):  # the axes' width depends on the labels of their ticks, and these on it
            figure_of(where).draw_without_rendering()
            _extend(where, bars, words, bound)
        legend_rows = legend_below(where, [look.handle(kind) for kind, look in looks.items()])
        if axes is None:
            settle_rows(where, len(bars) + lane, legend_rows)
        for row, (bar, total) in enumerate(zip(bars, words, strict=True)):
            _stack(where, row, bar, looks, bound)
            _write_total(where, row + 0.5, bar.total, total, bound)
        if bound is not None:
            _limit(where, bars, bound, unit)
    return figure_of(where) if axes is None else None


@dataclass(frozen=True)
class _Bar:
    """One plan: its name, and what takes how much, in the picture's unit."""

    name: str
    parts: dict[str, float]

    @property
    def total(self) -> float:
        return sum(self.parts.values())


def _read(plans: Any, unit: str) -> list[_Bar]:
    if unit not in UNITS:
        raise ValueError(
            f"Unknown unit {unit!r}: expected {listed(list(UNITS))}.{did_you_mean(unit, UNITS)}"
        )
    if not isinstance(plans, Mapping) or not all(isinstance(p, Mapping) for p in plans.values()):
        raise TypeError(
            'memory() takes a dict of plans, such as {"1 device": {"weights": 4e9, "gradients": '
            f"4e9}}}}, not {of_type(plans)}."
        )
    bars = [
        _Bar(str(name), {str(kind): float(size) / UNITS[unit] for kind, size in parts.items()})
        for name, parts in plans.items()
    ]
    if not any(bar.total for bar in bars):
        raise ValueError("No plan takes any memory.")
    return bars


def _brief(size: float) -> str:
    """Write a size in three digits: `0.25`, `12.5`, `1,230`."""
    return f"{size:,.0f}" if size >= 999.5 else f"{size:.3g}"


def _total(bar: _Bar, bound: float | None, unit: str) -> str:
    words = f"{_brief(bar.total)} {unit}"
    if bound is not None and bar.total > bound:
        # Of what is written, so that readers who subtract find the same.
        written = [float(_brief(size).replace(",", "")) for size in (bar.total, bound)]
        apart = written[0] - written[1] or bar.total - bound
        words += f", {_brief(apart)} too much"
    return words


def _extend(axes: Axes, bars: Sequence[_Bar], words: Sequence[str], bound: float | None) -> None:
    """Make room for every total behind its bar, and behind the limit if it would cross that."""
    figure, width = figure_of(axes), axes.get_window_extent().width
    ends = []
    for bar, total in zip(bars, words, strict=True):
        share = (width_of(figure, total, 9) + 2 * GAP) / width
        ends.append(max(bar.total, bound or 0) / (1 - min(share, 0.9)))
    axes.set_xlim(0, max(ends))
    ticks = int(width / (width_of(figure, _brief(max(ends)), 10) + 30))
    axes.xaxis.set_major_locator(MaxNLocator(max(1, min(ticks, 10)), steps=[1, 2, 5, 10]))


def _stack(axes: Axes, row: int, bar: _Bar, looks: Mapping[str, Look], bound: float | None) -> None:
    """Draw the parts of a bar, each with its words where there is room beside the limit."""
    left = 0.0
    for kind in (kind for kind in looks if bar.parts.get(kind)):
        size, look = bar.parts[kind], looks[kind]
        look.bar(axes, kind, (left, row + (1 - BAR) / 2), size, BAR)
        begin, end = left, left = left, left + size
        if bound is not None and begin < bound < end:
            begin, end = (begin, bound) if bound - begin > end - bound else (bound, end)
        for words, gap in ((f"{kind} {_brief(size)}", GAP), (_brief(size), GAP / 2)):
            needed = width_of(figure_of(axes), words, 8.5) + 2 * gap
            if needed <= width_in_pixels(axes, end - begin):
                look.words(axes, (begin + end) / 2, row + 0.5, words, 8.5)
                break


def _write_total(axes: Axes, y: float, end: float, words: str, bound: float | None) -> None:
    """Write a bar's total behind it, or behind the limit if that would run through the words."""
    pixel = 1 / width_in_pixels(axes, 1)
    if bound is not None:
        words_end = end + (width_of(figure_of(axes), words, 9) + 2 * GAP) * pixel
        if end - GAP * pixel < bound < words_end:
            end = bound
    axes.text(end + GAP * pixel, y, words, fontsize=9, color=GREY, va="center_baseline")


def _limit(axes: Axes, bars: Sequence[_Bar], bound: float, unit: str) -> None:
    """Draw the limit's dashes in front of the bars, with a rim inside each that it crosses."""

    def line(gid: str) -> Line2D:
        ends = [len(bars), -0.3]
        return axes.plot([bound, bound], ends, color=LIMIT, ls="--", lw=WIDE, gid=gid)[0]

    for row, bar in enumerate(bars):
        if 0 < bound < bar.total:
            rim, corner = line("rim"), (0, row + (1 - BAR) / 2)
            rim.set_path_effects([Stroke(linewidth=WIDE + 2 * RIM, foreground="white")])
            rim.set_clip_path(Rectangle(corner, bar.total, BAR, transform=axes.transData))
    line("limit")
    words = f"limit: {_brief(bound)} {unit}"
    pixel = 1 / width_in_pixels(axes, 1)
    right = bound + (width_of(figure_of(axes), words, 9) + GAP) * pixel < axes.get_xlim()[1]
    axes.text(
        bound + (GAP if right else -GAP) * pixel,
        -0.2,
        words,
        fontsize=9,
        color=GREY,
        ha="left" if right else "right",
        va="center_baseline",
    )
