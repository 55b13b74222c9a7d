"""What `plots.holdings` is given, checked: panels of rows of blocks, and their values as words."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from distlab.errors import of_type


@dataclass(frozen=True)
class Panel:
    """Who holds what at one moment.

    Attributes:
        title: Which moment it is.
        ranks: The ranks' names.
        rows: For each rank the values of its parts; None for a part that it does not hold.
    """

    title: str
    ranks: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    @property
    def parts(self) -> int:
        """How many parts each row has."""
        return len(self.rows[0])


def read_panels(panels: Any) -> list[Panel]:
    """Read what a caller gave for the panels.

    Args:
        panels: A mapping from titles to rows. Rows are a sequence or an array, one element a rank,
            or a mapping from ranks' names; a row is a sequence of parts, or one value.

    Returns:
        The panels.

    Raises:
        TypeError: If they are nothing of the kind.
        ValueError: If there are none, or they do not have the same ranks and parts.
    """
    if not isinstance(panels, Mapping):
        raise TypeError(
            'holdings() takes a dict of panels, such as {"before": [[1, 2], [3, 4]], "after": '
            f"[[4, 6], [4, 6]]}}, not {of_type(panels)}."
        )
    read = [_panel(str(title), rows) for title, rows in panels.items()]
    if not read:
        raise ValueError("holdings() was given no panel.")
    first = read[0]
    for panel in read:
        if panel.ranks != first.ranks:
            raise ValueError(
                f"{first.title!r} has the ranks {list(first.ranks)}, {panel.title!r} has "
                f"{list(panel.ranks)}."
            )
        for rank, row in zip(panel.ranks, panel.rows, strict=True):
            if len(row) != first.parts:
                raise ValueError(
                    f"{rank} of {panel.title!r} has {_parts(len(row))}, {first.ranks[0]} of "
                    f"{first.title!r} has {_parts(first.parts)}: write None for a part that a "
                    "rank does not hold."
                )
    return read


def _parts(count: int) -> str:
    return f"{count} part{'s' * (count != 1)}"


def _panel(title: str, rows: Any) -> Panel:
    if isinstance(rows, Mapping):
        names, rows = [str(name) for name in rows], list(rows.values())
    elif isinstance(rows, Iterable) and not isinstance(rows, str):
        rows = list(rows)
        names = [f"rank {i}" for i in range(len(rows))]
    else:
        raise TypeError(f"{title!r} must be a row for each rank, not {of_type(rows)}.")
    if not rows:
        raise ValueError(f"{title!r} has no ranks.")
    split = tuple(tuple(row) if _is_many(row) else (row,) for row in rows)
    if not split[0]:
        raise ValueError(f"{names[0]} of {title!r} has no part.")
    return Panel(title, tuple(names), split)


def _is_many(value: Any) -> bool:
    if isinstance(value, str) or not isinstance(value, Iterable):
        return False
    return getattr(value, "ndim", 1) > 0


def brief(value: Any) -> str:
    """Write a value in a few characters: `3`, `0.333`, `1e+06`, `1 2 3`, `1 2 ... 9`.

    Example:
        >>> brief(1 / 3), brief(3.0), brief("a0+a1"), brief([1, 2, 3, 4, 5])
        ('0.333', '3', 'a0+a1', '1 2 \N{HORIZONTAL ELLIPSIS} 5')
    """
    if isinstance(value, str):
        return value
    if _is_many(value):
        flat = np.asarray(value).ravel().tolist()
        words = [brief(each) for each in flat]
        if len(words) > 4:
            words = [*words[:2], "\N{HORIZONTAL ELLIPSIS}", words[-1]]
        return " ".join(words)
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value)
    if number.is_integer() and abs(number) < 100_000:
        return str(int(number))
    return f"{number:.3g}"
