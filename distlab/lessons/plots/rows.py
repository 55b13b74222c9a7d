"""What `plots.timeline` is given, checked: rows of spans, marks and arrows in one clock."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from distlab.errors import did_you_mean, of_type, shown
from distlab.lessons.timeline import Mark, Span, Timeline

Place = tuple[int | str, float]
"""A row, by its name or its number, and a time."""


@dataclass
class TimelineRow:
    """One row of the picture.

    Attributes:
        name: What is written beside it.
        spans: What took a while, by when it began.
        marks: What happened at one moment.
        lanes: For each span, in which lane of the row it is drawn; spans at the same time are
            below each other.
    """

    name: str
    spans: list[Span]
    marks: list[Mark] = field(default_factory=list)

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


@dataclass(frozen=True)
class Arrow:
    """A message from one row to another, rows by their numbers."""

    source: int
    sent: float
    target: int
    received: float


def read_rows(lines: Any, marks: Iterable[tuple[int | str, float, str]]) -> list[TimelineRow]:
    """Read what a caller gave for the rows.

    Args:
        lines: Timelines or lists of spans, one per rank, or a mapping from names to them.
        marks: More marks: row, time and word.

    Returns:
        The rows.

    Raises:
        TypeError: If they are nothing of the kind.
        ValueError: If there are no rows or no spans, or a time can't be.
    """
    if isinstance(lines, Timeline):
        lines = [lines]
    if not isinstance(lines, Mapping | Sequence) or isinstance(lines, str):
        raise TypeError(
            "timeline() takes a list of Timelines, one per rank, or a dict of them by name, "
            f"not {of_type(lines)}."
        )
    pairs = lines.items() if isinstance(lines, Mapping) else enumerate(lines)
    named = {f"rank {key}" if isinstance(key, int) else str(key): line for key, line in pairs}
    if not named:
        raise ValueError("timeline() was given no ranks.")
    rows = [_row(name, line) for name, line in named.items()]
    for given in marks:
        if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != 3:
            raise TypeError(f"A mark is a row, a time and a word, not {of_type(given)}.")
        row, at, word = given
        rows[row_number(row, rows)].marks.append(Mark(str(word), _time(at, f"mark {word!r}")))
    if not any(row.spans for row in rows):
        raise ValueError(f"No span was recorded, in {len(rows)} row{'s' * (len(rows) != 1)}.")
    return rows


def read_arrows(arrows: Iterable[tuple[Place, Place]], rows: Sequence[TimelineRow]) -> list[Arrow]:
    """Read arrows between rows.

    Args:
        arrows: Pairs of places, each a row and a time.
        rows: The rows there are.

    Returns:
        The arrows.

    Raises:
        TypeError: If one is no pair of places.
        ValueError: If a row is unknown, or an arrow stays in its row.
    """
    found = []
    for arrow in arrows:
        try:
            (source, sent), (target, received) = arrow
        except (TypeError, ValueError):
            raise TypeError(
                "An arrow is a pair of places, each a row and a time, such as "
                f"((0, 1.5), (1, 1.6)), not {shown(arrow)}."
            ) from None
        one, other = row_number(source, rows), row_number(target, rows)
        if one == other:
            raise ValueError(f"An arrow goes from {rows[one].name!r} to the same row.")
        found.append(Arrow(one, _time(sent, "arrow"), other, _time(received, "arrow")))
    return found


def row_number(row: int | str, rows: Sequence[TimelineRow]) -> int:
    """The number of a row that is given by number or by name; ValueError if there is none."""
    names = [each.name for each in rows]
    if isinstance(row, str) and row in names:
        return names.index(row)
    if isinstance(row, int) and 0 <= row < len(rows):
        return row
    raise ValueError(f"There is no row {row!r} among {names}.{did_you_mean(row, names)}")


def _row(name: str, line: Any) -> TimelineRow:
    if isinstance(line, Timeline):
        spans, marks = line.spans, line.marks
    elif isinstance(line, Iterable) and not isinstance(line, str | Mapping):
        spans, marks = list(line), []
    else:
        raise TypeError(f"Row {name!r} must be a Timeline or a list of spans, not {of_type(line)}.")
    return TimelineRow(
        name,
        [_span(name, span) for span in spans],
        [Mark(str(word), _time(at, f"mark {word!r} of {name!r}")) for word, at in marks],
    )


def _span(name: str, given: Any) -> Span:
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) not in (3, 4):
        raise TypeError(
            f"A span of row {name!r} must be a kind, a start and an end, such as "
            f'("compute", 0, 1), perhaps with a label, not {of_type(given)}.'
        )
    kind, label = str(given[0]), str(given[3]) if len(given) == 4 else ""
    what = f"{kind!r} of row {name!r}"
    start, end = _time(given[1], what), _time(given[2], what)
    if end < start:
        raise ValueError(f"{what} ends before it starts: from {start:g} to {end:g}.")
    return Span(kind, start, end, label)


def _time(value: Any, what: str) -> float:
    try:
        time = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"The times of {what} must be numbers, not {of_type(value)}.") from None
    if not math.isfinite(time):
        raise ValueError(f"The times of {what} must be finite, not {value}.")
    return time
