"""How long a lesson is: words, lines of code, minutes."""

import re
from collections.abc import Iterator, Sequence

from cells import FENCE, PREDICT, is_folded
from nbformat import NotebookNode
from setup_cell import address_in

LIMITS = {"words in view": 4_000, "folded words": 1_500, "cells": 65, "lines of code": 600}
"""What a lesson has at most; words in view are also those of fenced code. Its set-up cell and
empty lines do not count."""
WORDS_A_MINUTE, LINES_A_MINUTE = 200, 4
"""How fast one reads prose and code. A prediction takes a minute."""

HINT = re.compile(r"<details>.*?</details>", re.DOTALL)
MINUTES = re.compile(r"\bAbout (\d+) minutes? to read\b")
TO_RUN = re.compile(r"(?<=to read, )[^.,]+(?= to run\b)")
SPANS = (15, "10 seconds"), (25, "20 seconds"), (45, "half a minute"), (90, "a minute")
"""Up to how many seconds a lesson takes to run, and how it says so."""


def count_words(source: str) -> int:
    """Returns how many words a text has, without fenced code, tags and targets of links.

    Example:
        >>> count_words("Read `x = 1` on [a page](page.md).")
        6
    """
    plain = re.sub(r"\]\([^)]*\)|<[^>]+>", " ", FENCE.sub("", source))
    return len(re.findall(r"\S*\w\S*|`[^`\s]+`", plain))


def count_lines(code: str) -> int:
    """Returns how many lines of a text are not empty."""
    return sum(bool(line.strip()) for line in code.splitlines())


def reading(cells: Sequence[NotebookNode]) -> tuple[dict[str, int], int]:
    """Returns how much a lesson has of what is limited, and the minutes to read what is in view."""
    words = shown = folded = lines = lines_in_view = predictions = 0
    for cell in cells:
        if cell.cell_type == "markdown":
            in_view = HINT.sub("", cell.source)
            words += count_words(in_view)
            shown += len(in_view.split())
            folded += count_words("\n".join(HINT.findall(cell.source)))
            lines_in_view += sum(count_lines(found[2]) for found in FENCE.finditer(in_view))
            predictions += len(PREDICT.findall(cell.source))
        elif address_in(cell.source) is None:
            lines += count_lines(cell.source)
            lines_in_view += 0 if is_folded(cell) else count_lines(cell.source)
    minutes = words / WORDS_A_MINUTE + lines_in_view / LINES_A_MINUTE + predictions
    counts = dict(zip(LIMITS, (shown, folded, len(cells), lines), strict=True))
    return counts, max(5 * round(minutes / 5), 5)


def problems(cells: Sequence[NotebookNode]) -> Iterator[tuple[int, str]]:
    """Yields what is too long in a lesson, and a time to read that is not the right one."""
    counts, minutes = reading(cells)
    for name, count in counts.items():
        if count > LIMITS[name]:
            yield 0, f"{count:,} {name}: at most {LIMITS[name]:,}; two stories are two lessons"
    if (said := stated(cells)) not in (None, minutes):
        yield 0, f"About {said} minutes to read: it takes {minutes}"


def stated(cells: Sequence[NotebookNode]) -> int | None:
    """Returns the minutes that a lesson's first cell says."""
    said = MINUTES.search(cells[0].source)
    return int(said[1]) if said else None


def to_run(seconds: float) -> str:
    """Returns how a lesson says how long it takes to run.

    Example:
        >>> to_run(31.4), to_run(127)
        ('half a minute', '2 minutes')
    """
    return next((words for most, words in SPANS if seconds <= most), f"{seconds / 60:.0f} minutes")
