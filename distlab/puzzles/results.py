"""What a check shows: passed, or the first thing that was wrong; scores, pictures, stars."""

from collections import defaultdict
from collections.abc import Sequence
from html import escape
from typing import Any

from distlab.errors import notebook_shell
from distlab.puzzles import pictures
from distlab.puzzles.account import ClockEvent, amount, shares
from distlab.puzzles.puzzle import Puzzle
from distlab.puzzles.world import World
from distlab.tables import aligned, html_table

_MEASURES = {"time": "ticks", "memory": "bytes of memory", "sent": "bytes sent"}


class Result:
    """What came of a check. As the last line of a cell it shows itself.

    Args:
        puzzle: Which.
        runs: How the ranks of each size fared.

    Attributes:
        stars: 0 if it is wrong or over budget, else 1 to 3.
        scores: What it took, by the number of ranks; without those that did not come to an end.
        message: In words: passed, or what was wrong first.
    """

    def __init__(self, puzzle: Puzzle, runs: Sequence[World]) -> None:
        self._puzzle = puzzle
        self._runs = runs
        self.scores = {one.size: one.score for one in runs if one.score is not None}
        self._wrong = next((one for one in runs if one.wrong), None)
        self._over = [] if self._wrong else self._worse(puzzle.budgets)
        self.stars = 0 if self._wrong or self._over else self._earned()
        self.message = self._words()

    @property
    def passed(self) -> bool:
        """Whether the results are right, within all budgets."""
        return self.stars > 0

    def _worse(self, limits: Any) -> list[tuple[int, str]]:
        """With which number of ranks, and in what, it takes more than it may."""
        return [
            (size, name)
            for name in _MEASURES
            for size, score in self.scores.items()
            if getattr(score, name) > getattr(limits[size], name)
        ]

    def _earned(self) -> int:
        if self._worse(self._puzzle.reference):
            return 1
        return 2 if self.scores == self._puzzle.reference else 3

    def _words(self) -> str:
        if self._wrong:
            first = self._runs[0]
            also = "" if first.wrong else f"\nWith {first.size} ranks it is right."
            return f"With {self._wrong.size} ranks: {self._wrong.wrong}{also}"
        if self._over:
            lines = ["The results are right, but over budget:"]
            for size, name in self._over:
                value, budget = (
                    getattr(s[size], name) for s in (self.scores, self._puzzle.budgets)
                )
                lines.append(
                    f"  with {size} ranks {amount(value)} {_MEASURES[name]} of {amount(budget)}"
                )
            return "\n".join([*lines, *self._why(self._over)])
        return "\n".join([f"Passed: {'★' * self.stars}{'☆' * (3 - self.stars)}", *self._missing()])

    def _why(self, missed: list[tuple[int, str]]) -> list[str]:
        """What took the time, or the memory, where it was too much."""
        runs, told = {run.size: run for run in self._runs}, []
        last = {name: size for size, name in missed}
        if size := last.get("time"):
            told.append(f"With {size} ranks the ticks are {chain(runs[size].end)}.")
        if size := last.get("memory"):
            told.append(f"With {size} ranks most was held by {runs[size].fullest}.")
        return told

    def _missing(self) -> list[str]:
        """What the next star takes."""
        if self.stars >= 2:
            return [] if self.stars == 3 else ["A third star is for less than the reference."]
        worse = []
        missed = sorted(self._worse(self._puzzle.reference), key=lambda pair: pair[0])
        for size, name in missed:
            more = getattr(self.scores[size], name) - getattr(self._puzzle.reference[size], name)
            unit = _MEASURES[name].removesuffix("s") if more == 1 else _MEASURES[name]
            worse.append(f"{amount(more)} {unit} with {size} ranks")
        return [f"More than the reference: {', '.join(worse)}.", *self._why(missed)]

    def _table(self) -> list[list[str]]:
        """Each score, its budget, and the reference."""
        rows = [["ranks", *(head for name in _MEASURES for head in (name, "of", "reference"))]]
        for size, score in self.scores.items():
            limits = (score, self._puzzle.budgets[size], self._puzzle.reference[size])
            cells = [amount(getattr(each, name)) for name in _MEASURES for each in limits]
            rows.append([str(size), *cells])
        return rows

    def __repr__(self) -> str:
        rows = self._table()
        table = [aligned(rows, right=range(len(rows[0])))] if self.scores else []
        return "\n".join([self._puzzle.name, self.message, *table])

    def _repr_html_(self) -> str:
        mark, colour = ("✓", pictures.GREEN) if self.passed else ("✗", pictures.RED)
        first, _, rest = self.message.partition("\n")
        shown = self._wrong or self._runs[-1]
        parts = [
            f"<div><b>{escape(self._puzzle.name)}</b><br/>"
            f'<b style="color:{colour}">{mark} {escape(first)}</b></div>'
        ]
        if rest:
            parts.append(f'<pre style="white-space:pre-wrap">{escape(rest)}</pre>')
        if self.scores and not self._wrong:
            heads, *rows = self._table()
            parts.append(html_table(heads, rows, right=range(len(heads))))
        budget = self._puzzle.budgets[shown.size].memory
        picture = pictures.timeline(shown.spans, shown.curves, budget)
        parts.append(f"<div>With {shown.size} ranks:</div><div>{picture}</div>")
        return "".join(parts)


def chain(end: ClockEvent) -> str:
    """What the time until an event came from, in words, that of one kind and line together."""
    times: defaultdict[str, float] = defaultdict(float)
    for step in end.chain():
        times[f"{step.what} (line {step.line})"] += step.end - step.start
    return shares(times, "for", 5)


class StarTable:
    """The stars of puzzles. As the last line of a cell it shows itself.

    In a notebook the cell that has shown it last shows every change.

    Args:
        puzzles: Which.
    """

    def __init__(self, puzzles: Sequence[Puzzle]) -> None:
        self._stars: dict[str, int | None] = {puzzle.name: None for puzzle in puzzles}
        self._display: Any = None

    def take(self, puzzle: Puzzle, result: Result) -> None:
        """Take note of a check."""
        self._stars[puzzle.name] = max(result.stars, self._stars.get(puzzle.name) or 0)
        if self._display is not None:
            self._display.update(self._bundle(), raw=True)

    def _rows(self) -> list[list[str]]:
        rows = []
        for name, stars in self._stars.items():
            rows.append([name, "" if stars is None else "★" * stars + "☆" * (3 - stars)])
        won = sum(stars or 0 for stars in self._stars.values())
        return [*rows, ["all", f"{won} of {3 * len(rows)}"]]

    def __repr__(self) -> str:
        return aligned([["puzzle", "stars"], *self._rows()])

    def _bundle(self) -> dict[str, str]:
        html = html_table(["puzzle", "stars"], self._rows(), last_bold=True)
        return {"text/plain": repr(self), "text/html": html}

    def _ipython_display_(self) -> None:
        if notebook_shell() is None:
            raise NotImplementedError  # IPython shows the text
        from IPython.display import display

        self._display = display(  # type: ignore[no-untyped-call]
            self._bundle(), raw=True, display_id=True
        )
