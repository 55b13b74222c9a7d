"""Prints the scores of all solutions of the puzzles: `python tests/_puzzle_table.py`."""

import test_puzzles
from test_puzzles import BETTER, NAIVE, REFERENCES

from distlab import puzzles

HEADS = ("puzzle", "solution", "ranks", "time", "of", "memory", "of", "sent", "of", "stars")


def rows():
    """One row for each solution and number of ranks."""
    tried = [(number, solve, "reference") for number, solve in REFERENCES.items()]
    tried += [(number, solve, "naive") for number, solve, _ in NAIVE]
    tried += [(number, solve, "better") for number, solve in BETTER]
    for number, solve, kind in sorted(tried, key=lambda each: each[0]):
        result = puzzles.check(number, solve)
        over = test_puzzles.missed(number, result)
        for size, score in result.scores.items():
            budget = puzzles.PUZZLES[number].budgets[size]
            cells = []
            for name in ("time", "memory", "sent"):
                value, limit = getattr(score, name), getattr(budget, name)
                cells += [f"{value:,.10g}{'!' if value > limit else ''}", f"{limit:,.10g}"]
            name = f"{solve.__name__} ({kind})"
            yield [str(number), name, str(size), *cells, "-" if over else str(result.stars)]


if __name__ == "__main__":
    print(f"| {' | '.join(HEADS)} |")
    print(f"|{' --- |' * len(HEADS)}")
    for row in rows():
        print(f"| {' | '.join(row)} |")
