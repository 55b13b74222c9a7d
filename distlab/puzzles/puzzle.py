"""What a puzzle is: its words, what it allows, and what it holds solutions to."""

from collections.abc import Mapping
from dataclasses import dataclass

from distlab.puzzles.messages import Score

MOVES = ("add", "split", "join")
BLOCK = (
    "forward",
    "linear",
    "loss",
    "linear_backward",
    "backward",
    "backward_input",
    "backward_weight",
    "update",
)
COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather")


@dataclass(frozen=True)
class Puzzle:
    """One puzzle.

    Attributes:
        number: From 1 to 11.
        title: A few words.
        sentence: What is to be done.
        given: What `me` has besides rank and size, by name, in words.
        results: What has to be kept, by name, in words.
        calls: The methods of `me` that it allows, besides `keep` and `free`.
        operations: What `me.compute` does.
        stub: A solution that runs, and fails.
        hints: Three of them, each saying more than the one before.
        budgets: What a solution may take, by the number of ranks.
        reference: What the reference takes, by the number of ranks.

    Example:
        >>> from distlab import puzzles
        >>> puzzles.PUZZLES[1].title
        'All-reduce from sends'
    """

    number: int
    title: str
    sentence: str
    given: Mapping[str, str]
    results: Mapping[str, str]
    calls: tuple[str, ...]
    operations: tuple[str, ...]
    stub: str
    hints: tuple[str, str, str]
    budgets: Mapping[int, Score]
    reference: Mapping[int, Score]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers of ranks with which it is checked."""
        return tuple(self.budgets)
