"""What fills the memory of a device: a bar for each plan, stacked of what takes the bytes."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from distlab.errors import did_you_mean, listed
from distlab.lessons.plots import style
from distlab.lessons.plots.looks import Look, assign
from distlab.phrases import said

KINDS = {
    "weights": Look(style.COLOURS[0]),
    "gradients": Look(style.COLOURS[1]),
    "optimizer state": Look(style.COLOURS[2]),
    "activations": Look(style.COLOURS[3]),
    "buffers": Look(style.COLOURS[6]),
    "inputs": Look(style.COLOURS[3], "////"),
    "other": Look(style.COLOURS[7]),
}
UNITS = {"kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}
LIMIT = style.COLOURS[4]
GAP = 5.0  # pixels before and behind words


def memory(
    plans: Mapping[str, Mapping[str, float]],
    limit: float | None = None,
    unit: str = "MB",
    *,
    colours: Mapping[str, str] | None = None,
    title: str | None = None,
) -> Figure:
    """Draw how much memory each plan or each device takes, and for what.

    A kind of contents has the same colour in every picture: `weights` are blue, `gradients` ochre,
    the `optimizer state` green, `activations` pink; there are also `buffers`, `inputs` and `other`.
    A kind that is not known gets a free colour. A part is labelled where there is room; the legend
    names all of them, in the order of the bars.

    Args:
        plans: For each plan or device the bytes of each kind of contents.
        limit: The bytes that a device has: a dashed line. Bars that pass it say by how much.
        unit: What to write the bytes in: `"kB"`, `"MB"` or `"GB"` with a thousand of each in the
            next, or `"KiB"`, `"MiB"` or `"GiB"` with 1,024.
        colours: Matplotlib colours for some kinds.
        title: What to write above.

    Returns:
        The figure.

    Raises:
        ValueError: If no plan takes any memory, or the unit is not known.

    Example:
        >>> one = {"weights": 4e9, "gradients": 4e9, "optimizer state": 8e9}
        >>> memory({"1 device": one}, limit=12e9, unit="GB")
        <Figure size 900x111 with 1 Axes>
    """
    if unit not in UNITS:
        raise ValueError(
            f"Unknown unit {unit!r}: expected {listed(list(UNITS))}.{did_you_mean(unit, UNITS)}"
        )
    bars = [{kind: size / UNITS[unit] for kind, size in plan.items()} for plan in plans.values()]
    totals = [sum(bar.values()) for bar in bars]
    if not any(totals):
        raise ValueError("No plan takes any memory.")
    bound = 0.0 if limit is None else limit / UNITS[unit]
    met = dict.fromkeys(kind for bar in bars for kind in bar)
    kinds = [kind for kind in KINDS if kind in met] + [kind for kind in met if kind not in KINDS]
    with style.drawing():
        looks = assign(kinds, KINDS, colours)
        axes = style.new_figure(2.0).add_subplot()
        style.bare(axes, title)
        axes.set_ylim(len(bars), 0)
        axes.set_yticks([i + 0.5 for i in range(len(bars))], list(plans))
        axes.tick_params(axis="y", length=0)
        axes.xaxis.set_major_formatter(lambda size, _: _brief(size))
        axes.set_xlabel(f"memory ({unit})", color=style.GREY)
        words = [_total(total, bound, unit) for total in totals]
        for _ in range(2):  # the axes' width depends on the labels of their ticks, and these on it
            style.figure_of(axes).draw_without_rendering()
            _extend(axes, totals, words, bound)
        handles: list[Any] = [look.handle(kind) for kind, look in looks.items()]
        if limit is not None:
            name = f"limit: {_brief(bound)} {unit}"
            handles.append(
                axes.axvline(bound, color=LIMIT, ls="--", lw=1.8, label=name, gid="limit")
            )
        legend_rows = style.legend_below(axes, handles)
        style.settle_rows(axes, len(bars), legend_rows)
        for row, bar in enumerate(bars):
            _stack(axes, row, bar, looks, bound)
            # Behind the limit, too, which would run through the words.
            behind = bound if totals[row] < bound else totals[row]
            behind += GAP / style.width_in_pixels(axes, 1)
            axes.text(
                behind, row + 0.5, words[row], fontsize=9, color=style.GREY, va="center_baseline"
            )
    return style.figure_of(axes)


def _brief(size: float) -> str:
    """Write a size in three digits: `0.25`, `12.5`, `1,230`."""
    return f"{size:,.0f}" if size >= 999.5 else f"{size:.3g}"


def _total(total: float, bound: float, unit: str) -> str:
    words = f"{_brief(total)} {unit}"
    if 0 < bound < total:
        # Of what is written, so that readers who subtract find the same.
        written = [float(_brief(size).replace(",", "")) for size in (total, bound)]
        apart = written[0] - written[1] or total - bound
        words += f", {_brief(apart)} too much"
    return said(words)


def _extend(axes: Axes, totals: Sequence[float], words: Sequence[str], bound: float) -> None:
    """Make room for every total behind its bar, and behind the limit."""
    figure, width = style.figure_of(axes), axes.get_window_extent().width
    ends = []
    for total, its_words in zip(totals, words, strict=True):
        share = (style.width_of(figure, its_words, 9) + 2 * GAP) / width
        ends.append(max(total, bound) / (1 - min(share, 0.9)))
    axes.set_xlim(0, max(ends))
    ticks = int(width / (style.width_of(figure, _brief(max(ends)), 10) + 30))
    axes.xaxis.set_major_locator(MaxNLocator(max(1, min(ticks, 10)), steps=[1, 2, 5, 10]))


def _stack(
    axes: Axes, row: int, bar: Mapping[str, float], looks: Mapping[str, Look], bound: float
) -> None:
    """Draw the parts of a bar, each with its words where there is room beside the limit."""
    left = 0.0
    for kind in (kind for kind in looks if bar.get(kind)):
        size, look = bar[kind], looks[kind]
        look.bar(axes, kind, (left, row + (1 - style.BAR) / 2), size, style.BAR)
        begin, end = left, left = left, left + size
        if begin < bound < end:
            begin, end = (begin, bound) if bound - begin > end - bound else (bound, end)
        least = GAP if look.hatch else GAP / 2  # words on a hatch have a ground
        for words, gap in ((f"{said(kind)} {_brief(size)}", GAP), (_brief(size), least)):
            needed = style.width_of(style.figure_of(axes), words, 8.5) + 2 * gap
            if needed <= style.width_in_pixels(axes, end - begin):
                look.words(axes, (begin + end) / 2, row + 0.5, words, 8.5)
                break
