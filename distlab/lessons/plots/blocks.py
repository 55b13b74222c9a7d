"""Who holds what, before and after a collective or step by step: a row of blocks for each rank."""

import textwrap
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from distlab.lessons.plots.looks import Look, arrow, assign
from distlab.lessons.plots.style import GREY, WIDTH, drawing, new_figure, width_of
from distlab.phrases import said

ORDER = (0, 1, 2, 3, 4, 6, 5, 7)  # of colours: the two blues are far from each other
# All lengths are points, of which an inch has 72.
LINE = 12.0
HEAD = 20.0  # above the blocks of a panel, with its title
FOOT = 8.0  # below them
PAD = 8.0  # in a block, beside and above its words together
ROOM = 6.0  # between ranks
BETWEEN = 34.0  # panels, with an arrow
WIDEST = 120.0  # block
SMALLEST = 7.0  # words

Key = Callable[[int, int, Any], Hashable]


def holdings(
    panels: Mapping[str, Any],
    *,
    title: str | None = None,
    key: Key | None = None,
    colours: Mapping[Any, str] | None = None,
    arrows: bool = True,
) -> Figure:
    """Draw which rank holds what at several moments: a panel for each, a row for each rank.

    A block's colour says which part it is, its text what value it has; a part that a rank does not
    hold is a dashed outline.

    Args:
        panels: For each moment the parts that each rank holds: numbers, words or short arrays, or
            None for a part that it does not hold. An array will do, ranks down and parts across; a
            dict gives the ranks names.
        title: What to write above.
        key: What gives a block its colour, if not its position in the row: a function of rank,
            position and value. Blocks with equal results have one colour, in all panels.
        colours: Matplotlib colours for some results of `key`, such as `{"sum": "C4"}`.
        arrows: Whether each panel points to the next, as moments do that follow one another.

    Returns:
        The figure.

    Raises:
        ValueError: If panels do not have the same ranks and parts.

    Example:
        >>> moved = {"before": [["a", "b"], ["c", "d"]], "after": [["a", "c"], ["b", "d"]]}
        >>> holdings(moved, title="all-to-all", key=lambda rank, position, value: value)
        <Figure size 900x144 with 1 Axes>
    """
    read = _read(panels)
    find = key or (lambda _rank, position, _value: position)
    found: list[Hashable] = [] if key else [*range(len(read[0].rows[0]))]
    found += [find(*block) for panel in read for block in panel.blocks() if block[-1] is not None]
    with drawing():
        looks = assign(found, {}, colours, ORDER)
        figure = new_figure(1.0)
        grid = _grid(figure, read)
        top = 20.0 if title else 0.0
        high = round((top + ceil(len(read) / grid.columns) * grid.height) / 72, 2)
        figure.set_size_inches(WIDTH, high)
        axes = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH * 72), ylim=(high * 72, 0))
        axes.set_axis_off()
        if title:
            axes.text(0, 2, title, fontsize=11, color=GREY, va="top")
        for number, panel in enumerate(read):
            down, across = divmod(number, grid.columns)
            x = grid.left + across * (grid.parts * grid.wide + BETWEEN)
            y = top + down * grid.height
            if across and arrows:
                middle = y + (HEAD + grid.height - FOOT - ROOM) / 2
                arrow(axes, (x - BETWEEN + 4, middle), (x - 7, middle), 10)
            axes.text(x, y + HEAD - 7, panel.title, color=GREY, va="baseline")
            for block in panel.blocks():
                look = None if block[-1] is None else looks[find(*block)]
                _draw(axes, grid, (x, y + HEAD), block, look)
            for rank, name in enumerate(panel.ranks) if not across else ():
                middle = y + HEAD + rank * (grid.tall + ROOM) + grid.tall / 2
                axes.text(x - 8, middle, name, color=GREY, ha="right", va="center_baseline")
        figure.set_layout_engine("none")
    return figure


@dataclass(frozen=True)
class _Panel:
    """Who holds what at one moment: the ranks' names, and for each rank its parts."""

    title: str
    ranks: list[str]
    rows: list[list[Any]]

    def blocks(self) -> Iterator[tuple[int, int, Any]]:
        """Rank, position and value of each part, None for those that the rank does not hold."""
        for rank, row in enumerate(self.rows):
            for position, value in enumerate(row):
                yield rank, position, value


def _read(panels: Mapping[str, Any]) -> list[_Panel]:
    """Read what a caller gave for the panels, which must have the same ranks and parts."""
    read = []
    for title, rows in panels.items():
        names = rows if isinstance(rows, Mapping) else [said(f"rank {i}") for i in range(len(rows))]
        values = rows.values() if isinstance(rows, Mapping) else rows
        split = [list(row) if _is_many(row) else [row] for row in values]
        read.append(_Panel(str(title), [str(name) for name in names], split))
    first = read[0]
    for panel in read:
        if panel.ranks != first.ranks:
            raise ValueError(
                f"{first.title!r} has the ranks {first.ranks}, {panel.title!r} has {panel.ranks}."
            )
        for rank, row in zip(panel.ranks, panel.rows, strict=True):
            if len(row) != len(first.rows[0]):
                raise ValueError(
                    f"All rows must have as many parts: {rank} of {panel.title!r} has {len(row)}, "
                    f"{first.ranks[0]} of {first.title!r} has {len(first.rows[0])}. Write None for "
                    "a part that a rank does not hold."
                )
    return read


def _is_many(value: Any) -> bool:
    many = isinstance(value, Iterable) and not isinstance(value, str)
    return many and getattr(value, "ndim", 1) > 0


def _brief(value: Any) -> str:
    """Write a value in a few characters: `3`, `0.333`, `1e+06`, `1 2 3`, `1 2 ... 9`."""
    if isinstance(value, str):
        return value
    if _is_many(value):
        words = [_brief(each) for each in np.asarray(value).ravel().tolist()]
        if len(words) > 4:
            words = [*words[:2], "\N{HORIZONTAL ELLIPSIS}", words[-1]]
        return " ".join(words)
    number = float(value)
    whole = number.is_integer() and abs(number) < 100_000
    return str(int(number)) if whole else f"{number:.3g}"


@dataclass(frozen=True)
class _Grid:
    """How large everything is, in points.

    Attributes:
        columns: How many panels are beside each other.
        ranks: How many rows a panel has.
        parts: How many blocks a row has.
        left: What the ranks' names take.
        wide: The width of a block.
        size: The size of its words.
        texts: For each value as it is written, the same in lines that fit.
    """

    columns: int
    ranks: int
    parts: int
    left: float
    wide: float
    size: float
    texts: Mapping[str, str]

    @property
    def tall(self) -> float:
        """The height of a block."""
        lines = max(words.count("\n") + 1 for words in self.texts.values())
        return max(LINE * lines + PAD, 22)

    @property
    def height(self) -> float:
        """What a panel takes, with its title and the room below it."""
        return HEAD + self.ranks * (self.tall + ROOM) + FOOT


def _grid(figure: Figure, panels: Sequence[_Panel]) -> _Grid:
    """Choose as many panels in a row as there is room for, and the size of the words in blocks."""

    def points(words: str, size: float) -> float:
        return width_of(figure, words, size) / figure.dpi * 72

    ranks, parts = len(panels[0].ranks), len(panels[0].rows[0])
    left = max(points(rank, 10) for rank in panels[0].ranks) + 10
    held = (value for panel in panels for _, _, value in panel.blocks() if value is not None)
    texts = {words: words for words in map(_brief, held)} or {"": ""}
    longest = max(texts, key=lambda words: points(words, 9))
    titles = max(points(panel.title, 10) for panel in panels)
    for rows in range(1, len(panels) + 1):
        columns = ceil(len(panels) / rows)
        room = (WIDTH * 72 - left - (columns - 1) * BETWEEN - 2) / columns / parts
        wide = min(room, max(WIDEST, points(longest, 9) + PAD))
        for size in (9.0, 8.0):
            fits = points(longest, size) <= wide - PAD
            if fits and titles <= wide * parts + BETWEEN / 2:
                return _Grid(columns, ranks, parts, left, wide, size, texts)
    for words in texts:
        texts[words] = _wrapped(words, lambda line: points(line, SMALLEST) <= wide - PAD)
    return _Grid(1, ranks, parts, left, wide, SMALLEST, texts)


def _wrapped(words: str, fits: Callable[[str], bool]) -> str:
    """Break words into lines, after a plus or at a space."""
    for length in range(len(words), 0, -1):
        lines = textwrap.wrap(words.replace("+", "+ "), length + words.count("+"))
        lines = [line.replace("+ ", "+") for line in lines]
        if all(map(fits, lines)):
            break
    return "\n".join(lines)


def _draw(
    axes: Axes,
    grid: _Grid,
    corner: tuple[float, float],
    block: tuple[int, int, Any],
    look: Look | None,
) -> None:
    """Draw one block of the panel whose blocks begin at the corner; without a look an outline."""
    rank, position, value = block
    x, y = corner[0] + position * grid.wide, corner[1] + rank * (grid.tall + ROOM)
    wide, tall = grid.wide - 3, grid.tall
    if look is None:
        dashes = (0, (3, 2))
        axes.add_patch(
            Rectangle((x, y), wide, tall, fill=False, edgecolor=GREY, lw=0.8, linestyle=dashes)
        )
        return
    axes.add_patch(look.patch(Rectangle, (x, y), wide, tall, linewidth=0.5))
    look.words(axes, x + wide / 2, y + tall / 2, grid.texts[_brief(value)], grid.size)
