"""What fills the memory of a device: a bar for each plan, stacked of what takes the bytes."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.patheffects import Stroke
from matplotlib.ticker import MaxNLocator

from distlab.errors import did_you_mean, listed
from distlab.lessons.plots import style
from distlab.lessons.plots.looks import Look, assign

KINDS = {
    "weights": Look(style.COLOURS[0]),
    "gradients": Look(style.COLOURS[1]),
    "optimizer state": Look(style.COLOURS[2]),
    "activations": Look(style.COLOURS[3]),
    "buffers": Look(style.COLOURS[6]),
    "inputs": Look(style.COLOURS[3], "////"),
    "other": Look(style.COLOURS[7]),
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
LIMIT = style.COLOURS[4]
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
        ValueError: If no plan takes any memory, or the unit is not known.

    Example:
        >>> one = {"weights": 4e9, "gradients": 4e9, "optimizer state": 8e9}
        >>> memory({"1 device": one}, limit=12e9, unit="GB")
        <Figure size 900x132 with 1 Axes>
    """
    if unit not in UNITS:
        raise ValueError(
            f"Unknown unit {unit!r}: expected {listed(list(UNITS))}.{did_you_mean(unit, UNITS)}"
        )
    bars = [{kind: size / UNITS[unit] for kind, size in plan.items()} for plan in plans.values()]
    totals = [sum(bar.values()) for bar in bars]
    if not any(totals):
        raise ValueError("No plan takes any memory.")
    bound = None if limit is None else limit / UNITS[unit]
    met = dict.fromkeys(kind for bar in bars for kind in bar)
    kinds = [kind for kind in KINDS if kind in met] + [kind for kind in met if kind not in KINDS]
    with style.drawing():
        looks = assign(kinds, KINDS, colours)
        where = axes or style.new_figure(2.0).add_subplot()
        lane = 0.0 if bound is None else LANE
        style.bare(where, title)
        where.set_ylim(len(bars), -lane)
        where.set_yticks([i + 0.5 for i in range(len(bars))], list(plans))
        where.tick_params(axis="y", length=0)
        where.xaxis.set_major_formatter(lambda size, _: _brief(size))
        where.set_xlabel(f"memory ({unit})", color=style.GREY)
        words = [_total(total, bound, unit) for total in totals]
        for _ in range(2):  # the axes' width depends on the labels of their ticks, and these on it
            style.figure_of(where).draw_without_rendering()
            _extend(where, totals, words, bound)
        legend_rows = style.legend_below(where, [look.handle(kind) for kind, look in looks.items()])
        if axes is None:
            style.settle_rows(where, len(bars) + lane, legend_rows)
        for row, bar in enumerate(bars):
            _stack(where, row, bar, looks, bound)
            _write_total(where, row + 0.5, totals[row], words[row], bound)
        if bound is not None:
            _limit(where, totals, bound, unit)
    return style.figure_of(where) if axes is None else None


def _brief(size: float) -> str:
    """Write a size in three digits: `0.25`, `12.5`, `1,230`."""
    return f"{size:,.0f}" if size >= 999.5 else f"{size:.3g}"


def _total(total: float, bound: float | None, unit: str) -> str:
    words = f"{_brief(total)} {unit}"
    if bound is not None and total > bound:
        # Of what is written, so that readers who subtract find the same.
        written = [float(_brief(size).replace(",", "")) for size in (total, bound)]
        apart = written[0] - written[1] or total - bound
        words += f", {_brief(apart)} too much"
    return words


def _extend(axes: Axes, totals: Sequence[float], words: Sequence[str], bound: float | None) -> None:
    """Make room for every total behind its bar, and behind the limit if it would cross that."""
    figure, width = style.figure_of(axes), axes.get_window_extent().width
    ends = []
    for total, its_words in zip(totals, words, strict=True):
        share = (style.width_of(figure, its_words, 9) + 2 * GAP) / width
        ends.append(max(total, bound or 0) / (1 - min(share, 0.9)))
    axes.set_xlim(0, max(ends))
    ticks = int(width / (style.width_of(figure, _brief(max(ends)), 10) + 30))
    axes.xaxis.set_major_locator(MaxNLocator(max(1, min(ticks, 10)), steps=[1, 2, 5, 10]))


def _stack(
    axes: Axes, row: int, bar: Mapping[str, float], looks: Mapping[str, Look], bound: float | None
) -> None:
    """Draw the parts of a bar, each with its words where there is room beside the limit."""
    left = 0.0
    for kind in (kind for kind in looks if bar.get(kind)):
        size, look = bar[kind], looks[kind]
        look.bar(axes, kind, (left, row + (1 - style.BAR) / 2), size, style.BAR)
        begin, end = left, left = left, left + size
        if bound is not None and begin < bound < end:
            begin, end = (begin, bound) if bound - begin > end - bound else (bound, end)
        for words, gap in ((f"{kind} {_brief(size)}", GAP), (_brief(size), GAP / 2)):
            needed = style.width_of(style.figure_of(axes), words, 8.5) + 2 * gap
            if needed <= style.width_in_pixels(axes, end - begin):
                look.words(axes, (begin + end) / 2, row + 0.5, words, 8.5)
                break


def _write_total(axes: Axes, y: float, end: float, words: str, bound: float | None) -> None:
    """Write a bar's total behind it, or behind the limit if that would run through the words."""
    pixel = 1 / style.width_in_pixels(axes, 1)
    if bound is not None:
        words_end = end + (style.width_of(style.figure_of(axes), words, 9) + 2 * GAP) * pixel
        if end - GAP * pixel < bound < words_end:
            end = bound
    axes.text(end + GAP * pixel, y, words, fontsize=9, color=style.GREY, va="center_baseline")


def _limit(axes: Axes, totals: Sequence[float], bound: float, unit: str) -> None:
    """Draw the limit's dashes in front of the bars, with a rim inside each that it crosses."""

    def line(gid: str) -> Line2D:
        ends = [len(totals), -0.3]
        return axes.plot([bound, bound], ends, color=LIMIT, ls="--", lw=WIDE, gid=gid)[0]

    for row, total in enumerate(totals):
        if 0 < bound < total:
            rim, corner = line("rim"), (0, row + (1 - style.BAR) / 2)
            rim.set_path_effects([Stroke(linewidth=WIDE + 2 * RIM, foreground="white")])
            rim.set_clip_path(Rectangle(corner, total, style.BAR, transform=axes.transData))
    line("limit")
    words = f"limit: {_brief(bound)} {unit}"
    pixel = 1 / style.width_in_pixels(axes, 1)
    right = (
        bound + (style.width_of(style.figure_of(axes), words, 9) + GAP) * pixel < axes.get_xlim()[1]
    )
    axes.text(
        bound + (GAP if right else -GAP) * pixel,
        -0.2,
        words,
        fontsize=9,
        color=style.GREY,
        ha="left" if right else "right",
        va="center_baseline",
    )
