"""What a check shows: passed, or the first thing that was wrong; scores; pictures."""

from collections import defaultdict
from collections.abc import Sequence
from html import escape

from distlab.puzzles import pictures
from distlab.puzzles.messages import Outcome, Score, Step
from distlab.puzzles.pictures import amount
from distlab.puzzles.puzzle import Puzzle
from distlab.runtime.logs import Head
from distlab.text_tables import aligned

_MEASURES = {"time": "ticks", "memory": "bytes of memory", "sent": "bytes sent"}
_TRANSFERS = {"send": "sending others first", "message": "messages"}
_MOST_PRINTED = 20
_LONGEST = 2_000
"""Letters of a line that a rank has printed."""


class Result:
    """What came of a check. As the last line of a cell it shows itself.

    Args:
        puzzle: Which.
        outcomes: How the ranks of each size fared.
        printed: What they have printed.

    Attributes:
        stars: 0 if it is wrong or over budget, else 1 to 3.
        scores: What it took, by the number of ranks; without those that did not come to an end.
        message: In words: passed, or what was wrong first.
        unwritten: Why a solution that has passed cannot be given as text; empty if it can.
    """

    def __init__(
        self, puzzle: Puzzle, outcomes: Sequence[Outcome], printed: dict[int, list[Head]]
    ) -> None:
        self._puzzle = puzzle
        self._outcomes = outcomes
        self._printed = printed
        self.scores = {one.size: one.score for one in outcomes if one.score is not None}
        self._wrong = next((one for one in outcomes if one.wrong), None)
        self._over = [] if self._wrong else _over(puzzle, self.scores)
        self.stars = 0 if self._wrong or self._over else stars(puzzle, self.scores)
        self.message = self._words()
        self.unwritten = ""

    @property
    def passed(self) -> bool:
        """Whether the results are right, within all budgets."""
        return self.stars > 0

    def _words(self) -> str:
        if self._wrong:
            others = [one.size for one in self._outcomes if not one.wrong]
            right = (
                f"\nWith {others[0]} ranks it is right."
                if others and others[0] < self._wrong.size
                else ""
            )
            return f"With {self._wrong.size} ranks: {self._wrong.wrong}{right}"
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
        told = []
        for wanted in ("time", "memory"):
            sizes = [size for size, name in missed if name == wanted]
            if sizes:
                outcome = next(one for one in self._outcomes if one.size == sizes[-1])
                told.append(
                    f"With {outcome.size} ranks the ticks are {chain(outcome.path)}."
                    if wanted == "time"
                    else f"With {outcome.size} ranks most was held by {outcome.fullest}."
                )
        return told

    def _missing(self) -> list[str]:
        """What the next star takes."""
        if self.stars >= 2:
            return [] if self.stars == 3 else ["A third star is for less than the reference."]
        worse, missed = [], []
        for size, score in self.scores.items():
            for name, unit in _MEASURES.items():
                more = getattr(score, name) - getattr(self._puzzle.reference[size], name)
                if more > 0:
                    unit = unit.removesuffix("s") if more == 1 else unit
                    worse.append(f"{amount(more)} {unit} with {size} ranks")
                    missed.append((size, name))
        return [f"More than the reference: {', '.join(worse)}.", *self._why(missed)]

    def __repr__(self) -> str:
        rows = [
            [
                "ranks",
                "time",
                "of",
                "reference",
                "memory",
                "of",
                "reference",
                "sent",
                "of",
                "reference",
            ]
        ]
        for size in self.scores:
            row = [str(size)]
            for name in _MEASURES:
                limits = (self.scores, self._puzzle.budgets, self._puzzle.reference)
                row += [amount(getattr(each[size], name)) for each in limits]
            rows.append(row)
        table = [aligned(rows, right=range(len(rows[0])))] if self.scores else []
        heading = f"Puzzle {self._puzzle.number}, {self._puzzle.title}"
        return "\n".join([heading, self.message, *self._note(), *table, *self._prints()])

    def _note(self) -> list[str]:
        """That there is no text of the solution, if so."""
        why = self.unwritten
        return [f"solution_text cannot give this solution: {why}."] if why else []

    def _repr_html_(self) -> str:
        mark, colour = ("✓", "#0a9e74") if self.passed else ("✗", "#e0421e")
        first, _, rest = "\n".join([self.message, *self._note()]).partition("\n")
        shown = self._wrong or self._outcomes[-1]
        parts = [
            f"<div><b>Puzzle {self._puzzle.number}, {escape(self._puzzle.title)}</b><br/>"
            f'<b style="color:{colour}">{mark} {escape(first)}</b></div>'
        ]
        if rest:
            parts.append(f'<pre style="white-space:pre-wrap">{escape(rest)}</pre>')
        if self.scores and not self._wrong:
            parts.append(f"<div>{pictures.bars(self._puzzle, self.scores)}</div>")
        parts.append(f"<div>With {shown.size} ranks:</div><div>{self._timeline(shown)}</div>")
        if prints := self._prints():
            parts.append(f'<pre style="white-space:pre-wrap">{escape(chr(10).join(prints))}</pre>')
        return "".join(parts)

    def _timeline(self, shown: Outcome) -> str:
        return pictures.timeline(shown, self._puzzle.budgets[shown.size].memory)

    def _prints(self) -> list[str]:
        """What ranks have printed, of the run that is shown: of each its first lines."""
        size = (self._wrong or self._outcomes[-1]).size
        printed = [head.text.splitlines() for head in self._printed[size]]
        if not any(printed):
            return []
        # Few lines of one rank leave room for more of the others.
        room, shares = _MOST_PRINTED, [0] * len(printed)
        while room and any(len(p) > share for p, share in zip(printed, shares, strict=True)):
            for rank, lines in enumerate(printed):
                if room and len(lines) > shares[rank]:
                    shares[rank], room = shares[rank] + 1, room - 1
        told = [f"Printed with {size} ranks:"]
        for rank, lines in enumerate(printed):
            told += [f"[{rank}] {line[:_LONGEST]}" for line in lines[: shares[rank]]]
            left, (_, read, unread) = len(lines) - shares[rank], self._printed[size][rank]
            if unread:
                told.append(f"[{rank}] ... and more, {unread:,} bytes after the first {read:,}")
            elif left:
                told.append(f"[{rank}] ... and {left:,} more line{'s' * (left > 1)}")
        return told


def _over(puzzle: Puzzle, scores: dict[int, Score]) -> list[tuple[int, str]]:
    """Which budgets a solution misses, with which number of ranks."""
    return [
        (size, name)
        for name in _MEASURES
        for size, score in scores.items()
        if getattr(score, name) > getattr(puzzle.budgets[size], name)
    ]


def stars(puzzle: Puzzle, scores: dict[int, Score]) -> int:
    """The stars of a solution that is right and within the budgets.

    Args:
        puzzle: With the reference.
        scores: What the solution took, by the number of ranks.

    Returns:
        3 if it is better than the reference in something and worse in nothing, 2 if it is worse in
        nothing, else 1.
    """
    pairs = [
        (getattr(score, name), getattr(puzzle.reference[size], name))
        for size, score in scores.items()
        for name in _MEASURES
    ]
    if any(value > reference for value, reference in pairs):
        return 1
    return 3 if any(value < reference for value, reference in pairs) else 2


def chain(path: Sequence[Step]) -> str:
    """The events that the time came from, in words, those of one kind and line together."""
    times: defaultdict[str, float] = defaultdict(float)
    now = 0.0
    for step in path:
        if step.start > now:
            times["waiting for a rank that was behind"] += step.start - now
        what = _TRANSFERS.get(step.kind, step.what)
        times[f"{what} (line {step.line})"] += step.end - max(step.start, now)
        now = max(now, step.end)
    largest = sorted(times.items(), key=lambda item: -item[1])
    words = [f"{amount(spent)} for {what}" for what, spent in largest[:5] if spent > 0]
    rest = sum(spent for _, spent in largest[5:])
    if rest > 0:
        words.append(f"{amount(rest)} for others")
    return ", ".join(words)
