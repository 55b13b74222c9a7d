"""Who does what when: a row for each rank, a bar for each span of time."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator

from distlab.lessons.plots import style
from distlab.lessons.plots.looks import Look, arrow, assign
from distlab.lessons.plots.rows import (
    GAP,
    SIZE,
    Row,
    Span,
    level_of_words,
    read_rows,
    room_for_words,
    row_number,
)

KINDS = {
    "compute": Look(style.COLOURS[0]),
    "forward": Look(style.COLOURS[0]),
    "backward": Look(style.COLOURS[2]),
    "update": Look(style.COLOURS[6]),
    "communicate": Look(style.COLOURS[1]),
    "send": Look(style.COLOURS[1], "////"),
    "receive": Look(style.COLOURS[1], "...."),
    "save": Look(style.COLOURS[3]),
    "restore": Look(style.COLOURS[3], "////"),
    "start": Look(style.COLOURS[7]),
    "wait": Look(style.COLOURS[7], "////", pale=True),
    "idle": Look(style.COLOURS[7], pale=True),
}
MARK = style.COLOURS[4]
LEVEL = 0.36  # height of a line of words, where a row has 1
EDGE = 2  # pixels, so that the last bar has its outline
MICRO = "\N{MICRO SIGN}s"
UNITS = {"s": 1.0, "ms": 1e3, MICRO: 1e6}

Place = tuple[int | str, float]
"""A row, by its name or its number, and a time."""


def timeline(
    lines: Mapping[str, Iterable[Any]] | Sequence[Iterable[Any]],
    *,
    marks: Iterable[tuple[int | str, float, str]] = (),
    arrows: Iterable[tuple[Place, Place]] = (),
    unit: str | None = None,
    colours: Mapping[str, str] | None = None,
    title: str | None = None,
    axes: Axes | None = None,
) -> Figure | None:
    """Draw what each rank did when: a row for each, a bar for each span, a tick for each mark.

    A kind of span has the same colour in every picture: `compute` and `forward` are blue,
    `backward` is green, what is communicated is ochre; `wait` is pale and hatched, `idle` is pale.
    A kind that is not known gets a free colour. Spans of one row that overlap are drawn below each
    other, each at a part of the height. A label is written into its bar if it fits.

    Args:
        lines: For each rank its spans: tuples of kind, start, end and perhaps a label. Ranks of a
            machine may take the times from `time.monotonic()`, which is one clock. A dict gives the
            rows names; else they are `rank 0`, ...
        marks: What happened at one moment: tuples of row (number or name), time and word.
        arrows: Messages: pairs of places, each a row and a time, from the sender to the receiver.
        unit: `"s"` or `"ms"` for times in seconds, counted from the first start; by default
            whichever suits. Any other word, such as `"slot"`, names the steps of a schedule: times
            are then drawn as they are.
        colours: Matplotlib colours for some kinds, such as `{"load": "C6"}`.
        title: What to write above.
        axes: Where to draw, if not in a new figure. Set the size of its figure before.

    Returns:
        The figure; None if `axes` is given.

    Raises:
        ValueError: If there are no spans, a span ends before it starts, or a mark or an arrow
            names a row that there is not.

    Example:
        >>> schedule = [[("forward", 0, 1, "0")], [("idle", 0, 1), ("forward", 1, 2, "0")]]
        >>> timeline(schedule, unit="slot", arrows=[((0, 1), (1, 1))])
        <Figure size 900x153 with 1 Axes>
    """
    given = read_rows(lines, marks)
    zero, factor, clock = _clock(given, unit)

    def moved(time: float) -> float:
        return (time - zero) * factor

    rows = [
        Row(
            row.name,
            [Span(s.kind, moved(s.start), moved(s.end), s.label) for s in row.spans],
            [(moved(at), word) for at, word in row.marks],
        )
        for row in given
    ]
    messages = [
        ((row_number(one, rows), moved(sent)), (row_number(other, rows), moved(received)))
        for (one, sent), (other, received) in arrows
    ]
    with style.drawing():
        looks = _looks(rows, colours)
        where = axes or style.new_figure(2.0).add_subplot()
        style.bare(where, title)
        levels = _frame(where, rows, [time for ends in messages for _, time in ends], clock)
        heights = [
            row.tall + LEVEL * (1 + max(above, default=-1))
            for row, above in zip(rows, levels, strict=True)
        ]
        bottoms = [sum(heights[: i + 1]) for i in range(len(rows))]
        middles = [bottom - row.tall / 2 for row, bottom in zip(rows, bottoms, strict=True)]
        where.set_ylim(sum(heights), 0)
        where.set_yticks(middles, [row.name for row in rows])
        legend_rows = style.legend_below(where, [look.handle(kind) for kind, look in looks.items()])
        if axes is None:
            style.settle_rows(where, sum(heights), legend_rows)
        _bars(where, rows, middles, looks)
        for row, middle, above in zip(rows, middles, levels, strict=True):
            _marks(where, row, middle, above)
        for (one, sent), (other, received) in messages:
            down = 1 if other > one else -1
            begin = middles[one] + down * rows[one].high / 2
            end = middles[other] - down * rows[other].high / 2
            arrow(where, (sent, begin), (received, end), 9, linewidth=1.2, zorder=3)
    return style.figure_of(where) if axes is None else None


def _clock(rows: Sequence[Row], unit: str | None) -> tuple[float, float, str]:
    """Which time is shown as 0, in how many of the picture's units, and the words below the axis.

    Seconds are counted from the first start, in a unit that suits; other times stay as they are.
    """
    if unit is not None and unit not in UNITS:
        return 0.0, 1.0, unit
    zero = min(span.start for row in rows for span in row.spans)
    longest = max(span.end for row in rows for span in row.spans) - zero
    unit = unit or ("s" if longest >= 1 else "ms" if longest >= 1e-3 else MICRO)
    return zero, UNITS[unit], f"time ({unit})"


def _looks(rows: Sequence[Row], colours: Mapping[str, str] | None) -> dict[str, Look]:
    """The looks of all kinds in the order of their first starts, those that are pale last."""
    starts: dict[str, float] = {}
    for span in (span for row in rows for span in row.spans):
        starts[span.kind] = min(span.start, starts.get(span.kind, span.start))
    # Colours do not depend on times: the same kinds look alike in the next run, too.
    looks = assign([*(k for k in KINDS if k in starts), *starts], KINDS, colours)
    return {kind: looks[kind] for kind in sorted(starts, key=lambda k: (looks[k].pale, starts[k]))}


def _frame(axes: Axes, rows: Sequence[Row], others: Iterable[float], clock: str) -> list[list[int]]:
    """Set up the axis of time, and find for each mark how many lines above its bar its word is."""
    times = [t for row in rows for span in row.spans for t in (span.start, span.end)]
    times += [*(at for row in rows for at, _ in row.marks), *others]
    first, last = min(times), max(times)
    last = last if last > first else first + 1
    axes.set_xlabel(clock, color=style.GREY)
    whole = not clock.startswith("time (")
    axes.xaxis.set_major_locator(MaxNLocator(12, steps=[1, 2, 5, 10], integer=whole))
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    axes.tick_params(axis="y", length=0)
    axes.set_axisbelow(True)
    axes.grid(axis="x")
    axes.set_xlim(first, last)
    style.figure_of(axes).draw_without_rendering()  # gives the axes their width
    edge = EDGE / style.width_in_pixels(axes, 1)
    axes.set_xlim(first, max(room_for_words(axes, rows, first, last), last + edge))
    return [level_of_words(axes, row) for row in rows]


def _bars(
    axes: Axes, rows: Sequence[Row], middles: Sequence[float], looks: Mapping[str, Look]
) -> None:
    labels: list[tuple[Text, float]] = []  # with the pixels that each may take
    for row, middle in zip(rows, middles, strict=True):
        each = row.high / row.depth
        for span, lane in zip(row.spans, row.lanes, strict=True):
            look, wide = looks[span.kind], span.end - span.start
            low = middle - row.high / 2 + lane * each
            look.bar(axes, span.kind, (span.start, low), wide, each)
            if span.label:
                text = look.words(axes, span.start + wide / 2, low + each / 2, span.label, 9)
                text.set_clip_on(True)
                labels.append((text, style.width_in_pixels(axes, wide) - 2))
    for size in (9, 8, 7):  # the largest at which all fit; at the last, some are hidden
        for text, _ in labels:
            text.set_fontsize(size)
        wide_ones = [text for text, room in labels if text.get_window_extent().width > room]
        if not wide_ones:
            return
    for text in wide_ones:
        text.set_visible(False)


def _marks(axes: Axes, row: Row, middle: float, levels: Sequence[int]) -> None:
    gap = GAP / style.width_in_pixels(axes, 1)
    for (at, word), level in zip(row.marks, levels, strict=True):
        top = middle - row.high / 2 - (1 - style.BAR) / 4 - LEVEL * (level + 1)
        ends = [middle + row.high / 2 + 0.08, top]
        axes.plot([at, at], ends, color=MARK, linewidth=2, gid="mark")
        axes.text(at + gap, top + LEVEL / 2, word, va="center", fontsize=SIZE, color=style.GREY)
