"""What `plots.timeline` is given, as rows: their spans, their marks, and where both have room."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from matplotlib.axes import Axes

from distlab.errors import did_you_mean
from distlab.lessons.plots.style import BAR, figure_of, width_in_pixels, width_of
from distlab.phrases import said

LANE = 0.4  # what a row is higher for each further span at the same time
SIZE = 8.5
GAP = 4  # pixels between a tick and its word


class Span(NamedTuple):
    """Something that took a while, with what to write into its bar."""

    kind: str
    start: float
    end: float
    label: str = ""


@dataclass
class Row:
    """One row of the picture.

    Attributes:
        name: What is written beside it.
        spans: What took a while, by when it began.
        marks: What happened at one moment: when, and a word.
        lanes: For each span, in which lane of the row it is drawn; spans at the same time are
            below each other.
    """

    name: str
    spans: list[Span]
    marks: list[tuple[float, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.spans.sort(key=lambda span: (span.start, -span.end))
        ends: list[float] = []
        self.lanes: list[int] = []
        for span in self.spans:
            lane = next((i for i, end in enumerate(ends) if end <= span.start), len(ends))
            ends[lane : lane + 1] = [span.end]
            self.lanes.append(lane)

    @property
    def depth(self) -> int:
        """How many lanes the row has."""
        return max(self.lanes, default=0) + 1

    @property
    def tall(self) -> float:
        """The height of its lanes with the room around them, where a row with one lane has 1."""
        return 1 + LANE * (self.depth - 1)

    @property
    def high(self) -> float:
        """The height of its bars together."""
        return self.tall - 1 + BAR


def read_rows(lines: Any, marks: Iterable[tuple[int | str, float, str]]) -> list[Row]:
    """Read what a caller gave for the rows; ValueError if they can't be drawn: see `timeline`."""
    pairs = lines.items() if isinstance(lines, Mapping) else enumerate(lines)
    rows = [
        _row(said(f"rank {key}") if isinstance(key, int) else str(key), line) for key, line in pairs
    ]
    for row, at, word in marks:
        rows[row_number(row, rows)].marks.append((float(at), str(word)))
    if not any(row.spans for row in rows):
        raise ValueError(f"No span was recorded, in {len(rows)} row{'s' * (len(rows) != 1)}.")
    return rows


def row_number(row: int | str, rows: Sequence[Row]) -> int:
    """The number of a row that is given by number or by name; ValueError if there is none."""
    names = [each.name for each in rows]
    if row in names:
        return names.index(str(row))
    if isinstance(row, int) and 0 <= row < len(rows):
        return row
    raise ValueError(f"There is no row {row!r} among {names}.{did_you_mean(row, names)}")


def _row(name: str, line: Any) -> Row:
    spans = []
    for given in line:
        kind, start, end, *label = given
        if end < start:
            raise ValueError(
                f"{kind!r} of row {name!r} ends before it starts: from {start:g} to {end:g}."
            )
        spans.append(Span(str(kind), float(start), float(end), *map(str, label)))
    return Row(name, spans)


def room_for_words(axes: Axes, rows: Sequence[Row], first: float, last: float) -> float:
    """Where the axis has to end so that every mark's word fits to the right of its tick."""
    width = axes.get_window_extent().width
    ends = [last]
    for row in rows:
        for at, word in row.marks:
            share = min(_width(axes, word) / width, 0.9)
            ends += [first + (at - first) / (1 - share), first + (last - first) * share]
    return max(ends)


def level_of_words(axes: Axes, row: Row) -> list[int]:
    """For each mark of a row, how many lines above the bar its word is.

    Words go to the right of their ticks. The last mark is the lowest, so that no tick on its way
    up to its word crosses another word.
    """
    pixel = 1 / width_in_pixels(axes, 1)
    starts: list[float] = []  # for each level, where the word that was put there last begins
    levels = [0] * len(row.marks)
    for i in sorted(range(len(row.marks)), key=lambda i: row.marks[i][0], reverse=True):
        at, word = row.marks[i]
        end = at + _width(axes, word) * pixel
        # A tick of a higher level passes all lower ones, so the level must clear what is there.
        blocked = [level for level, start in enumerate(starts) if start < end]
        levels[i] = blocked[-1] + 1 if blocked else 0
        starts[levels[i] :] = [at]
    return levels


def _width(axes: Axes, word: str) -> float:
    return width_of(figure_of(axes), word, SIZE) + 2 * GAP
