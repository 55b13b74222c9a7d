"""Who holds what, before and after a collective or step by step: a row of blocks for each rank."""

import textwrap
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import FancyArrowPatch, Rectangle

from distlab.lessons.plots.looks import Look, assign
from distlab.lessons.plots.style import (
    GREY,
    INK,
    WIDTH,
    check_figure,
    drawing,
    new_figure,
    width_of,
)
from distlab.lessons.plots.values import Panel, brief, read_panels

ORDER = (0, 1, 2, 3, 4, 6, 5, 7)  # of colours: the two blues are far from each other
# All lengths are points, of which an inch has 72.
LINE = 12.0
HEAD = 20.0  # above the blocks of a panel, with its title
PAD = 8.0  # in a block, beside and above its words together
ROOM = 6.0  # between ranks
BETWEEN = 34.0  # panels, with an arrow
WIDEST = 120.0  # block

Key = Callable[[int, int, Any], Hashable]


def collective(
    before: Any,
    after: Any,
    *,
    title: str | None = None,
    key: Key | None = None,
    figure: Figure | SubFigure | None = None,
) -> Figure | None:
    """Draw which rank holds what before a collective, and after it.

    Args:
        before: For each rank the parts that it holds: numbers, words or short arrays; None for a
            part that it does not hold. An array will do, ranks down and parts across.
        after: The same after the collective.
        title: What to write above, such as `"all-reduce"`.
        key: See `holdings`.
        figure: Where to draw, if not in a new figure; a subfigure will do.

    Returns:
        The figure, which a notebook shows once, as the result of its cell (see `distlab.plots`);
        None if `figure` is given.

    Raises:
        TypeError: If `before` or `after` is no row for each rank.
        ValueError: If they do not have the same ranks and parts, or `figure` is too small.

    Example:
        >>> collective([["a0", "b0"], ["a1", "b1"]], [["a0+a1", None], [None, "b0+b1"]])
        <Figure size 900x117 with 1 Axes>
    """
    return _draw({"before": before, "after": after}, title, key, figure)


def holdings(
    panels: Mapping[str, Any],
    *,
    title: str | None = None,
    key: Key | None = None,
    colours: Mapping[Any, str] | None = None,
    arrows: bool = True,
    figure: Figure | SubFigure | None = None,
) -> Figure | None:
    """Draw which rank holds what at several moments: a panel for each, a row for each rank.

    A block's colour says which part it is, its text what value it has; a part that a rank does not
    hold is a dashed outline.

    Args:
        panels: For each moment its rows, one for each rank: see `collective`. Rows may be a dict
            by the ranks' names.
        title: What to write above.
        key: What gives a block its colour, if not its position in the row: a function of rank,
            position and value. Blocks with equal results have one colour, in all panels.
        colours: Matplotlib colours for some results of `key`, such as `{"sum": "C4"}`.
        arrows: Whether each panel points to the next, as moments do that follow one another.
        figure: Where to draw, if not in a new figure; a subfigure will do.

    Returns:
        The figure, which a notebook shows once, as the result of its cell (see `distlab.plots`);
        None if `figure` is given.

    Raises:
        TypeError: If `panels` is nothing of the kind.
        ValueError: If there is no panel, panels do not have the same ranks and parts, or `figure`
            is too small.

    Example:
        >>> moved = {"before": [["a", "b"], ["c", "d"]], "after": [["a", "c"], ["b", "d"]]}
        >>> holdings(moved, title="all-to-all", key=lambda rank, position, value: value)
        <Figure size 900x144 with 1 Axes>
    """
    return _draw(panels, title, key, figure, colours, arrows)


def _draw(
    given: Any,
    title: str | None,
    key: Key | None,
    figure: Figure | SubFigure | None,
    colours: Mapping[Any, str] | None = None,
    arrows: bool = True,
) -> Figure | None:
    panels = read_panels(given)
    check_figure(figure)
    with drawing():
        keys, looks = _looks(panels, key, colours or {})
        own = new_figure(1.0) if figure is None else None
        where = figure or own
        assert where is not None
        root = where.get_figure(root=True)
        assert root is not None
        wide = where.bbox.width / root.dpi * 72
        grid = _grid(root, panels, wide)
        top = 20.0 if title else 0.0
        needed = top + ceil(len(panels) / grid.columns) * grid.height
        if own:
            own.set_size_inches(WIDTH, round(needed / 72, 2))
        high = where.bbox.height / root.dpi * 72
        if high < needed - 1:
            raise ValueError(
                f"The figure must be at least {needed / 72:.1f} inches high, not {high / 72:.1f}."
            )
        axes = where.add_axes((0, 0, 1, 1), xlim=(0, wide), ylim=(high, 0))
        axes.set_axis_off()
        if title:
            axes.text(0, 2, title, fontsize=11, color=GREY, va="top")
        for number, panel in enumerate(panels):
            down, across = divmod(number, grid.columns)
            x = grid.left + across * (grid.parts * grid.wide + BETWEEN)
            y = top + down * grid.height
            if across and arrows:
                _arrow(axes, x, y + (HEAD + grid.height - 8 - ROOM) / 2)
            _panel(axes, panel, grid, (x, y), keys[number], looks)
        if own:
            own.set_layout_engine("none")
    return own


@dataclass(frozen=True)
class _Grid:
    """How large everything is, in points.

    Attributes:
        columns: How many panels are beside each other.
        parts: How many blocks a row has.
        left: What the ranks' names take.
        wide: The width of a block.
        tall: The height of a block.
        size: The size of its words.
        texts: For each value as it is written, the same in lines that fit.
    """

    columns: int
    ranks: int
    parts: int
    left: float
    wide: float
    tall: float
    size: float
    texts: Mapping[str, str]

    @property
    def height(self) -> float:
        """What a panel takes, with its title and the room below it."""
        return HEAD + self.ranks * (self.tall + ROOM) + 8


def _grid(figure: Figure, panels: Sequence[Panel], wide: float) -> _Grid:
    """Choose as many panels in a row as there is room for, and the size of the words in blocks."""

    def points(words: str, size: float) -> float:
        return width_of(figure, words, size) / figure.dpi * 72

    first = panels[0]
    left = max(points(rank, 10) for rank in first.ranks) + 10
    held = [value for panel in panels for row in panel.rows for value in row if value is not None]
    plain = {brief(value): brief(value) for value in held} or {"": ""}
    longest = max(plain, key=lambda words: points(words, 9))
    titles = max(points(panel.title, 10) for panel in panels)

    def grid(
        columns: int, size: float, lines: int = 1, texts: Mapping[str, str] | None = None
    ) -> _Grid:
        room = (wide - left - (columns - 1) * BETWEEN - 2) / columns / first.parts
        tall = max(LINE * lines + PAD, 22)
        block = min(room, max(WIDEST, points(longest, 9) + PAD))
        return _Grid(
            columns, len(first.ranks), first.parts, left, block, tall, size, texts or plain
        )

    for rows in range(1, len(panels) + 1):
        columns = ceil(len(panels) / rows)
        for size in (9.0, 8.0):
            found = grid(columns, size)
            fits = points(longest, size) <= found.wide - PAD
            if fits and titles <= found.wide * found.parts + BETWEEN / 2:
                return found
    narrow = grid(1, 7.0)
    texts = {words: _wrapped(words, narrow.wide - PAD, points) for words in plain}
    return grid(1, 7.0, max(words.count("\n") + 1 for words in texts.values()), texts)


def _wrapped(words: str, room: float, points: Callable[[str, float], float]) -> str:
    """Break words of the smallest size into lines, after a plus or at a space."""
    for length in range(len(words), 0, -1):
        lines = textwrap.wrap(words.replace("+", "+ "), length + words.count("+"))
        lines = [line.replace("+ ", "+") for line in lines]
        if all(points(line, 7.0) <= room for line in lines):
            break
    return "\n".join(lines)


def _looks(
    panels: Sequence[Panel], key: Key | None, colours: Mapping[Any, str]
) -> tuple[list[list[list[str | None]]], dict[str, Look]]:
    """Each block's key, None where the rank holds nothing, and what each key looks like."""
    found: dict[Hashable, str] = {}  # keys may be of any type; looks have names

    def name(rank: int, position: int, value: Any) -> str | None:
        if value is None:
            return None
        chosen = position if key is None else key(rank, position, value)
        return found.setdefault(chosen, str(len(found)) if key else str(position))

    keys = [
        [
            [name(rank, position, value) for position, value in enumerate(row)]
            for rank, row in enumerate(panel.rows)
        ]
        for panel in panels
    ]
    every = map(str, range(panels[0].parts)) if key is None else found.values()
    chosen = {found[result]: colour for result, colour in colours.items() if result in found}
    return keys, assign(every, {}, chosen, free=ORDER)


def _panel(
    axes: Axes,
    panel: Panel,
    grid: _Grid,
    corner: tuple[float, float],
    keys: Sequence[Sequence[str | None]],
    looks: Mapping[str, Look],
) -> None:
    left, top = corner
    axes.text(left, top + HEAD - 7, panel.title, color=GREY, va="baseline")
    y = top + HEAD
    for rank, row, its_keys in zip(panel.ranks, panel.rows, keys, strict=True):
        middle = y + grid.tall / 2
        if left == grid.left:
            axes.text(left - 8, middle, rank, color=GREY, ha="right", va="center_baseline")
        for position, (value, its_key) in enumerate(zip(row, its_keys, strict=True)):
            place, size = (left + position * grid.wide, y), (grid.wide - 3, grid.tall)
            if its_key is None:
                dashes = (0, (3, 2))
                axes.add_patch(
                    Rectangle(place, *size, fill=False, edgecolor=GREY, lw=0.8, linestyle=dashes)
                )
                continue
            look = looks[its_key]
            block = look.patch(Rectangle, place, *size, linewidth=0.5, label=its_key)
            axes.add_patch(block)
            words = grid.texts[brief(value)]
            axes.text(
                place[0] + size[0] / 2,
                middle,
                words,
                fontsize=grid.size,
                color=INK,
                ha="center",
                va="center" if "\n" in words else "center_baseline",
                bbox=look.ground(),
            )
        y += grid.tall + ROOM


def _arrow(axes: Axes, end: float, y: float) -> None:
    """Point from the panel before to the one whose blocks begin at `end`."""
    axes.add_patch(
        FancyArrowPatch(
            (end - BETWEEN + 4, y),
            (end - 7, y),
            arrowstyle="-|>",
            mutation_scale=10,
            shrinkA=0,
            shrinkB=0,
            color=GREY,
        )
    )
