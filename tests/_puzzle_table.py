"""Prints the scores of all solutions of the puzzles: `python tests/_puzzle_table.py`."""

from collections.abc import Callable, Iterator

import _puzzle_solutions as s

from distlab import puzzles

SOLUTIONS: dict[int, tuple[Callable, list[Callable], Callable]] = {
    1: (s.ring, [s.everybody_to_everybody, s.to_the_first_and_back], s.halving_and_doubling),
    2: (s.accumulate, [s.whole_batch, s.reduce_each_piece], s.accumulate_with_overlap),
    3: (s.overlap, [s.whole_batch], s.without_target(s.overlap)),
    4: (s.zero2, [s.zero1, s.all_reduce_then_slice], s.without_target(s.zero2)),
    5: (s.zero3, [s.gather_all_first, s.gather_when_needed], s.without_target(s.zero3)),
    6: (s.column_row, [s.gather_weights], s.dx_first),
    7: (s.one_forward_one_backward, [s.gpipe, s.one_at_a_time], s.inputs_first),
    8: (s.recompute, [s.whole_batch, s.recompute_from_the_start], s.recompute_but_the_last),
    9: (s.ring_attention, [s.gather_keys, s.ring_without_overlap], s.one_message),
    10: (
        s.weights_to_tokens,
        [s.tokens_to_experts, s.all_experts_everywhere],
        s.own_tokens_first,
    ),
    11: (
        s.three_d,
        [s.three_d_gpipe, s.three_d_one_at_a_time, s.three_d_reduce_each],
        s.three_d_early,
    ),
}
"""For each puzzle the reference, naive solutions, and a better one."""
HEADS = ("puzzle", "solution", "ranks", "time", "of", "memory", "of", "sent", "of", "stars")


def rows(number: int) -> Iterator[list[str]]:
    """The rows of a puzzle: one for each solution and number of ranks."""
    reference, naive, better = SOLUTIONS[number]
    tried = [(reference, "reference"), *((solve, "naive") for solve in naive), (better, "better")]
    for solve, kind in tried:
        result = puzzles.check(number, solve)
        for size, score in result.scores.items():
            cells = []
            for value, limit in zip(score, puzzles.PUZZLES[number].budgets[size], strict=True):
                cells += [f"{value:,.10g}{'!' if value > limit else ''}", f"{limit:,.10g}"]
            name = f"{solve.__name__} ({kind})"
            yield [str(number), name, str(size), *cells, str(result.stars or "-")]


def line(cells: list[str]) -> str:
    """A row as Markdown."""
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print(line(HEADS))
    print(f"|{' --- |' * len(HEADS)}")
    for number in SOLUTIONS:
        for row in rows(number):
            print(line(row))
