"""How long a lesson is: words, lines of code, minutes; and whether its pages say so."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cells import FENCE, PREDICT, is_folded
from nbformat import NotebookNode
from setup_cell import address_in

WORDS, FOLDED, CELLS, LINES = 4_000, 1_500, 65, 600
"""A lesson has at most so many words in view, words folded, cells, and lines of code."""
WORDS_A_MINUTE, LINES_A_MINUTE = 200, 4
"""How fast one reads prose and code. A prediction takes a minute."""

HINT = re.compile(r"<details>.*?</details>", re.DOTALL)
MINUTES = re.compile(r"\bAbout (\d+) minutes? to read\b")
TO_RUN = re.compile(r"(?<=to read, )[^.,]+(?= to run\b)")
SPANS = (15, "10 seconds"), (25, "20 seconds"), (45, "half a minute"), (90, "a minute")
"""Up to how many seconds a lesson takes to run, and how it says so."""


@dataclass(frozen=True)
class Reading:
    """What there is to read in a lesson; the set-up cell and empty lines do not count.

    Attributes:
        words: Those of the prose in view.
        folded: Those of the prose below `<details>`.
        cells: Of either kind.
        lines: Those of the code, in view or folded.
        minutes: The time it takes to read what is in view, to 5 minutes.
    """

    words: int
    folded: int
    cells: int
    lines: int
    minutes: int


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


def reading(cells: Sequence[NotebookNode]) -> Reading:
    """Returns what there is to read in a lesson."""
    words = folded = lines = lines_in_view = predictions = 0
    for cell in cells:
        if cell.cell_type == "markdown":
            in_view = HINT.sub("", cell.source)
            words += count_words(in_view)
            folded += count_words("\n".join(HINT.findall(cell.source)))
            lines_in_view += sum(count_lines(found[2]) for found in FENCE.finditer(in_view))
            predictions += len(PREDICT.findall(cell.source))
        elif address_in(cell.source) is None:
            lines += count_lines(cell.source)
            lines_in_view += 0 if is_folded(cell) else count_lines(cell.source)
    minutes = words / WORDS_A_MINUTE + lines_in_view / LINES_A_MINUTE + predictions
    return Reading(words, folded, len(cells), lines, max(5 * round(minutes / 5), 5))


def problems(cells: Sequence[NotebookNode]) -> Iterator[tuple[int, str]]:
    """Yields what is too long in a lesson, and a time to read that is not the right one."""
    found = reading(cells)
    for count, limit, name in (
        (found.words, WORDS, "words in view"),
        (found.folded, FOLDED, "folded words"),
        (found.cells, CELLS, "cells"),
        (found.lines, LINES, "lines of code"),
    ):
        if count > limit:
            yield 0, f"{count:,} {name}: at most {limit:,}; two stories are two lessons"
    if (said := stated(cells)) not in (None, found.minutes):
        yield 0, f"About {said} minutes to read: it takes {found.minutes}"


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


def pages(minutes: dict[str, int], start: str, readme: str) -> Iterator[str]:
    """Yields where the start page or README.md say other times than the lessons do.

    Args:
        minutes: What the lessons say, by the names of their files.
        start: The text of the start page.
        readme: That of README.md, whose rows link to the files and end with the minutes.
    """
    span = f"A lesson takes {min(minutes.values())} to {max(minutes.values())} minutes to read"
    if span not in " ".join(start.split()):
        yield f"the start page should say: {span}"
    for name, value in minutes.items():
        row = re.search(rf"\]\(notebooks/{re.escape(name)}\).*\| (\d+) min \|", readme)
        if row is None or int(row[1]) != value:
            yield f"README.md should say {value} min in the row of {name}, as its first cell does"
