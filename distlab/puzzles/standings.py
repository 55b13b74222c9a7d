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
        stars: Its stars; None before the first check.
        text: The solution, as text that runs again.
        checks: How many there were.
    """

    stars: int | None = None
    text: str = ""
    checks: int = 0


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
            text: The solution, as text that runs again.
        """
        standing = self._standings.setdefault(number, _Standing())
        standing.checks += 1
        if standing.stars is None or result.stars > standing.stars or not standing.text:
            standing.stars = result.stars
            standing.text = text if result.passed else ""
        if self._display is not None:
            self._display.update(self._bundle(), raw=True)

    def text_of(self, number: int) -> str:
        """The best solution of a puzzle so far, as text.

        Raises:
            LookupError: If none has passed.
        """
        text = self._standings.get(number, _Standing()).text
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
