"""Which function draws which puzzle's data."""

from collections.abc import Callable

from distlab.puzzles import exchanges, models, training
from distlab.puzzles.tasks import PuzzleTask, RandomData

TASKS: dict[int, Callable[[RandomData, int], PuzzleTask]] = {
    1: exchanges.all_reduce,
    2: training.accumulation,
    3: training.overlap,
    4: training.zero2,
    5: training.zero3,
    6: models.column_row,
    7: models.pipeline,
    8: training.recompute,
    9: exchanges.ring_attention,
    10: exchanges.experts,
    11: models.two_two_two,
}
"""By the number of the puzzle: draws what ranks are given, for a number of ranks."""
