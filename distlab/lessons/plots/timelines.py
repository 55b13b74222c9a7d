"""Who does what when: a row for each rank, a bar for each span of time."""

from collections.abc import Iterable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle
from matplotlib.ticker import MaxNLocator

from distlab.lessons.plots.looks import Look, assign
from distlab.lessons.plots.marks import GAP, LEVEL, SIZE, level_of_words, room_for_words
from distlab.lessons.plots.rows import Arrow, Place, TimelineRow, read_arrows, read_rows
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
    shrink_to_fit,
)
from distlab.lessons.timeline import Mark, Span, Timeline

KINDS = {
    "compute": Look(COLOURS[0]),
    "forward": Look(COLOURS[0]),
    "backward": Look(COLOURS[2]),
    "update": Look(COLOURS[6]),
    "communicate": Look(COLOURS[1]),
    "send": Look(COLOURS[1], "////"),
    "receive": Look(COLOURS[1], "...."),
    "save": Look(COLOURS[3]),
    "restore": Look(COLOURS[3], "////"),
    "start": Look(COLOURS[7]),
    "wait": Look(COLOURS[7], "////", pale=True),
    "idle": Look(COLOURS[7], pale=True),
}
MARK = COLOURS[4]
LANE = 0.4  # what a row is higher for each further span at the same time
MICRO = "\N{MICRO SIGN}s"
EDGE = 2  # pixels, so that the last bar has its outline
UNITS = {"s": 1.0, "ms": 1e3, MICRO: 1e6}


def timeline(
    lines: Mapping[str, Timeline | Iterable[Span]] | Sequence[Timeline | Iterable[Span]],
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
    `backward` is green, what is communicated is orange; `wait` is pale and hatched, `idle` is pale.
    A kind that is not known gets a free colour. Spans of one row that overlap are drawn below each
    other, each at a part of the height. A label is written into its bar if it fits.

    Args:
        lines: For each rank what it recorded: a `Timeline`, or spans as tuples of kind, start,
            end and perhaps a label. A dict gives the rows names; else they are `rank 0`, ...
        marks: More marks than the timelines have: tuples of row (number or name), time and word.
        arrows: Messages: pairs of places, each a row and a time, from the sender to the receiver.
        unit: `"s"` or `"ms"` for times in seconds, counted from the first start; by default
            whichever suits. Any other word, such as `"slot"`, names the steps of a schedule: times
            are then drawn as they are.
        colours: Matplotlib colours for some kinds, such as `{"load": "C6"}`.
        title: What to write above.
        axes: Where to draw, if not in a new figure. Set the size of its figure before.

    Returns:
        The figure, which a notebook shows once, as the result of its cell (see `distlab.plots`);
        None if `axes` is given.

    Raises:
        TypeError: If `lines`, a mark or an arrow is nothing of the kind.
        ValueError: If there are no ranks or no spans, a span ends before it starts, or a mark or
            an arrow names a row that there is not.

    Example:
        >>> schedule = [[("forward", 0, 1, "0")], [("idle", 0, 1), ("forward", 1, 2, "0")]]
        >>> timeline(schedule, unit="slot", arrows=[((0, 1), (1, 1))])
        <Figure size 900x153 with 1 Axes>
    """
    rows = read_rows(lines, marks)
    messages = read_arrows(arrows, rows)
    check_axes(axes)
    rows, messages, clock = _in_unit(rows, messages, unit)
    with drawing():
        looks = _looks(rows, colours)
        own = new_figure(2.0) if axes is None else None
        where = axes if own is None else own.add_subplot()
        assert where is not None
        heights = _frame(where, rows, messages, clock, title)
        legend_rows = legend_below(where, [look.handle(kind) for kind, look in looks.items()], 34)
        if own:
            room = 0.49 + 0.3 * bool(title) + LEGEND_ROW * legend_rows
            own.set_size_inches(own.get_figwidth(), round(room + ROW * sum(heights), 2))
            settle(own)
        places = _places(rows, heights)
        _bars(where, rows, places, looks)
        _marks(where, rows, places)
        _arrows(where, messages, places)
    return own


def _in_unit(
    rows: list[TimelineRow], messages: list[Arrow], unit: str | None
) -> tuple[list[TimelineRow], list[Arrow], str]:
    """Count seconds from the first start, in a unit that suits; leave other times as they are."""
    zero, factor = 0.0, 1.0
    if unit is None or unit in UNITS:
        zero = min(span.start for row in rows for span in row.spans)
        longest = max(span.end for row in rows for span in row.spans) - zero
        unit = unit or ("s" if longest >= 1 else "ms" if longest >= 1e-3 else MICRO)
        factor = UNITS[unit]
    moved = [
        TimelineRow(
            row.name,
            [
                Span(s.kind, (s.start - zero) * factor, (s.end - zero) * factor, s.label)
                for s in row.spans
            ],
            [Mark(m.word, (m.at - zero) * factor) for m in row.marks],
        )
        for row in rows
    ]
    sent = [
        Arrow(a.source, (a.sent - zero) * factor, a.target, (a.received - zero) * factor)
        for a in messages
    ]
    return moved, sent, f"time ({unit})" if unit in UNITS else unit


def _looks(rows: Sequence[TimelineRow], colours: Mapping[str, str] | None) -> dict[str, Look]:
    """The looks of all kinds in the order of their first starts, those that are pale last."""
    starts: dict[str, float] = {}
    for span in (span for row in rows for span in row.spans):
        starts[span.kind] = min(span.start, starts.get(span.kind, span.start))
    # Colours do not depend on times: the same kinds look alike in the next run, too.
    looks = assign([*(k for k in KINDS if k in starts), *starts], KINDS, colours)
    return {kind: looks[kind] for kind in sorted(starts, key=lambda k: (looks[k].pale, starts[k]))}


def _frame(
    axes: Axes,
    rows: Sequence[TimelineRow],
    messages: Sequence[Arrow],
    clock: str,
    title: str | None,
) -> list[float]:
    """Set up both axes; return the height of each row, where a bar without marks has 1."""
    times = [t for row in rows for span in row.spans for t in (span.start, span.end)]
    times += [mark.at for row in rows for mark in row.marks]
    times += [t for message in messages for t in (message.sent, message.received)]
    first, last = min(times), max(times)
    last = last if last > first else first + 1
    bare(axes)
    axes.set_xlabel(clock, color=GREY)
    axes.xaxis.set_major_locator(
        MaxNLocator(12, steps=[1, 2, 5, 10], integer=not clock.startswith("time ("))
    )
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(first, last)
    heading(axes, title)
    figure_of(axes).draw_without_rendering()  # gives the axes their width
    edge = (last - first) * EDGE / axes.get_window_extent().width
    axes.set_xlim(first, max(room_for_words(axes, rows, first, last), last + edge))
    heights = [
        1 + LANE * (row.depth - 1) + LEVEL * (1 + max(levels, default=-1))
        for row, levels in zip(rows, level_of_words(axes, rows), strict=True)
    ]
    axes.set_ylim(sum(heights), 0)
    middles = [middle for middle, _ in _places(rows, heights)]
    axes.set_yticks(middles, [row.name for row in rows])
    axes.set_axisbelow(True)
    axes.grid(axis="x")
    return heights


def _places(rows: Sequence[TimelineRow], heights: Sequence[float]) -> list[tuple[float, float]]:
    """Where the middle of each row's bars is, and how high they are together."""
    places = []
    bottom = 0.0
    for row, height in zip(rows, heights, strict=True):
        bottom += height
        tall = 1 + LANE * (row.depth - 1)
        places.append((bottom - tall / 2, tall - 1 + BAR))
    return places


def _bars(
    axes: Axes,
    rows: Sequence[TimelineRow],
    places: Sequence[tuple[float, float]],
    looks: Mapping[str, Look],
) -> None:
    first, last = axes.get_xlim()
    pixels = axes.get_window_extent().width / (last - first)
    labels, rooms = [], []
    for row, (middle, height) in zip(rows, places, strict=True):
        each = height / row.depth
        for span, lane in zip(row.spans, row.lanes, strict=True):
            look = looks[span.kind]
            wide = span.end - span.start
            narrow = wide * pixels < SMALL
            low = middle - height / 2 + lane * each
            bar = look.patch(Rectangle, (span.start, low), wide, each, label=span.kind)
            bar.set_linewidth(0.8 if narrow else 0.5)
            if narrow and not look.pale:
                bar.set_edgecolor(look.colour)
            axes.add_patch(bar)
            if span.label:
                middle_of_bar = span.start + wide / 2, low + each / 2
                text = axes.text(
                    *middle_of_bar,
                    span.label,
                    ha="center",
                    va="center_baseline",
                    color=INK,
                    clip_on=True,
                    bbox=look.ground(),
                )
                labels.append(text)
                rooms.append(wide * pixels - 2)
    shrink_to_fit(labels, rooms, (9, 8, 7))


def _marks(axes: Axes, rows: Sequence[TimelineRow], places: Sequence[tuple[float, float]]) -> None:
    first, last = axes.get_xlim()
    pixel = (last - first) / axes.get_window_extent().width
    words = level_of_words(axes, rows)
    for row, (middle, height), levels in zip(rows, places, words, strict=True):
        above = middle - height / 2 - (1 - BAR) / 4
        for mark, level in zip(row.marks, levels, strict=True):
            top = above - LEVEL * (level + 1)
            axes.plot(
                [mark.at] * 2,
                [middle + height / 2 + 0.08, top],
                color=MARK,
                linewidth=2,
                gid="mark",
            )
            axes.text(
                mark.at + GAP * pixel,
                top + LEVEL / 2,
                mark.word,
                va="center",
                fontsize=SIZE,
                color=GREY,
            )


def _arrows(axes: Axes, messages: Sequence[Arrow], places: Sequence[tuple[float, float]]) -> None:
    for message in messages:
        (one, tall), (other, as_tall) = places[message.source], places[message.target]
        down = 1 if other > one else -1
        axes.add_patch(
            FancyArrowPatch(
                (message.sent, one + down * tall / 2),
                (message.received, other - down * as_tall / 2),
                arrowstyle="-|>",
                mutation_scale=9,
                shrinkA=0,
                shrinkB=0,
                linewidth=1.2,
                color=GREY,
                zorder=3,
            )
        )
