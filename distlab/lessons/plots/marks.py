"""Where the words of a timeline's marks go: above their bars, none across another mark."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from distlab.lessons.plots.rows import TimelineRow
from distlab.lessons.plots.style import figure_of, width_of

LEVEL = 0.36  # height of a line of words, where a row has 1
SIZE = 8.5
GAP = 4  # pixels between a tick and its word


def room_for_words(axes: Axes, rows: Sequence[TimelineRow], first: float, last: float) -> float:
    """Where the axis has to end so that every word fits to the right of its tick."""
    width = axes.get_window_extent().width
    ends = [last]
    for row in rows:
        for mark in row.marks:
            share = min(_width(axes, mark.word) / width, 0.9)
            ends.append(first + (mark.at - first) / (1 - share))
            ends.append(first + (last - first) * share)
    return max(ends)


def level_of_words(axes: Axes, rows: Sequence[TimelineRow]) -> list[list[int]]:
    """For each mark of each row, how many lines above the bar its word is.

    Words go to the right of their ticks. The last mark is the lowest, so that no tick on its way
    up to its word crosses another word.
    """
    first, last = axes.get_xlim()
    pixel = (last - first) / axes.get_window_extent().width
    found = []
    for row in rows:
        starts: list[float] = []  # for each level, where the word that was put there last begins
        levels = [0] * len(row.marks)
        for i in sorted(range(len(row.marks)), key=lambda i: row.marks[i].at, reverse=True):
            end = row.marks[i].at + _width(axes, row.marks[i].word) * pixel
            # A tick of a higher level passes all lower ones, so the level must clear what is there.
            blocked = [level for level, start in enumerate(starts) if start < end]
            level = blocked[-1] + 1 if blocked else 0
            starts[level:] = [row.marks[i].at]
            levels[i] = level
        found.append(levels)
    return found


def _width(axes: Axes, word: str) -> float:
    return width_of(figure_of(axes), word, SIZE) + 2 * GAP
