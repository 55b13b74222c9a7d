"""The table of stars, which the cells that show it keep up to date."""

from dataclasses import dataclass, field
from typing import Any

from distlab.puzzles.catalogue import PUZZLES
from distlab.puzzles.results import Result
from distlab.shell import notebook_shell
from distlab.text_tables import aligned, html_table


@dataclass
class _Standing:
    """The best result of a puzzle so far.

    Attributes:
        stars: The most stars; None before the first check.
        text: The best solution that can be written, as text that runs again.
        merit: How good that one is; larger is better.
        why: Why the last solution that passed has no text; empty if it has.
        checks: How many there were.
    """

    stars: int | None = None
    text: str = ""
    merit: tuple[float, ...] = ()
    why: str = ""
    checks: int = 0


def merit(result: Result) -> tuple[float, ...]:
    """How good a solution is, to be compared with `>`.

    More stars are better. With as many stars fewer ticks are better, then less memory, then fewer
    bytes sent, each summed over both numbers of ranks.

    Args:
        result: What came of its check.

    Example:
        >>> from distlab import puzzles
        >>> merit(puzzles.check(1, lambda me: None))[0]
        0
    """
    scores = result.scores.values()
    sums = (sum(getattr(each, name) for each in scores) for name in ("time", "memory", "sent"))
    return (result.stars, *(-each for each in sums))


@dataclass(eq=False)
class StarTable:
    """The stars of all puzzles. As the last line of a cell it shows itself.

    In a notebook the cells that have shown it show every change.
    """

    _standings: dict[int, _Standing] = field(default_factory=dict)
    _display: Any = None

    def take(self, result: Result, number: int, text: str) -> None:
        """Take note of a check.

        Args:
            result: What came of it.
            number: Of the puzzle.
            text: The solution, as text that runs again; empty if it has none.
        """
        standing = self._standings.setdefault(number, _Standing())
        standing.checks += 1
        standing.stars = max(result.stars, standing.stars or 0)
        if result.passed:
            standing.why = result.unwritten
            if text and merit(result) > standing.merit:
                standing.text, standing.merit = text, merit(result)
        if self._display is not None:
            self._display.update(self._bundle(), raw=True)

    def text_of(self, number: int) -> str:
        """The best solution of a puzzle so far, as text.

        Raises:
            LookupError: If none has passed, or none of those that have can be written.
        """
        standing = self._standings.get(number, _Standing())
        text = standing.text
        if not text and standing.why:
            raise LookupError(
                f"A solution of puzzle {number} has passed, but cannot be given as text: "
                f"{standing.why}."
            )
        if not text:
            raise LookupError(
                f"No solution of puzzle {number} has passed yet: puzzles.check({number}, solve) "
                "takes note of one that does."
            )
        return text

    def _rows(self) -> list[list[str]]:
        rows = []
        for number, puzzle in PUZZLES.items():
            stars = self._standings.get(number, _Standing()).stars
            mark = "" if stars is None else "★" * stars + "☆" * (3 - stars)
            rows.append([str(number), puzzle.title, mark])
        won = sum(standing.stars or 0 for standing in self._standings.values())
        return [*rows, ["", "all", f"{won} of {3 * len(PUZZLES)}"]]

    def __repr__(self) -> str:
        return aligned([["puzzle", "", "stars"], *self._rows()], right=(0,))

    def _html(self) -> str:
        return html_table(["puzzle", "", "stars"], self._rows(), right=(0,), last_bold=True)

    def _bundle(self) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._html()}

    def _ipython_display_(self) -> None:
        if notebook_shell() is None:
            raise NotImplementedError  # IPython shows the text
        from IPython.display import display

        self._display = display(  # type: ignore[no-untyped-call]
            self._bundle(), raw=True, display_id=True
        )


TABLE = StarTable()
"""The one of this process."""
