"""Eleven tasks about moving data between ranks, with budgets, and tasks of your own.

    show        the task of a puzzle: start and goal, what it allows, budgets
    check       run a solution: passed, or what was wrong first; scores, pictures
    on_ranks    run a solution in real processes, and compare what they keep
    stars       a table of all puzzles, which keeps itself up to date in a notebook
    PUZZLES     the eleven puzzles by number
    Puzzle      a puzzle of your own

A solution is a function of one argument, `me`: a rank with `me.rank`, `me.size`, what the puzzle
gives, and methods to compute, to send and to keep results. A check runs it in this process, with a
thread for each rank, one of which goes on at a time. Time, memory and bytes are counted in logical
units that are the same on any machine.

Example:
    >>> from distlab import puzzles
    >>> def solve(me):
    ...     me.keep("sum", me.gradient)
    >>> puzzles.check(1, solve).passed
    False
"""

from collections.abc import Callable
from typing import Any

from distlab.puzzles import real as _real
from distlab.puzzles import world as _world
from distlab.puzzles.me import Me
from distlab.puzzles.puzzle import Made, Puzzle, Score
from distlab.puzzles.results import Result, StarTable
from distlab.puzzles.tasks import PUZZLES

__all__ = [
    "PUZZLES",
    "Made",
    "Puzzle",
    "Score",
    "check",
    "on_ranks",
    "show",
    "stars",
]

_STARS = StarTable(list(PUZZLES.values()))


def show(puzzle: int | Puzzle) -> Puzzle:
    """Show the task of a puzzle: start and goal, what it allows and costs, its budgets.

    Args:
        puzzle: A number from 1 to 11, or a puzzle of your own.

    Returns:
        The puzzle, which shows itself as the last line of a cell.

    Raises:
        ValueError: If there is no such puzzle.

    Example:
        >>> from distlab import puzzles
        >>> print(str(puzzles.show(1)).splitlines()[0])
        Puzzle 1, All-reduce from sends
    """
    if isinstance(puzzle, Puzzle):
        return puzzle
    if puzzle not in [*PUZZLES]:
        raise ValueError(
            f"There is no puzzle {puzzle!r}, only 1 to {len(PUZZLES)}, and yours: Puzzle(...)."
        )
    return PUZZLES[puzzle]


def check(puzzle: int | Puzzle, solve: Callable[[Me], Any]) -> Result:
    """Run a solution and say whether it is right and how good.

    It runs with each number of ranks for which there is a budget. What the ranks keep is compared
    with the result of one process, to 1e-5. Whatever the function does wrong is in the result, with
    the rank and the line.

    Args:
        puzzle: A number from 1 to 11, or a puzzle of your own.
        solve: The solution: it is called for each rank with `me`. Each rank has its own copy of it,
            and of what it refers to in its notebook.

    Returns:
        The result, which shows itself as the last line of a cell: `passed`, `stars`, `message` and
        `scores` can be asked for.

    Raises:
        TypeError: If no copies can be made of the solution.
        ValueError: If there is no such puzzle.
        KeyboardInterrupt: If it is interrupted; the ranks have ended then.

    Example:
        >>> from distlab import puzzles
        >>> result = puzzles.check(1, lambda me: None)
        >>> print(result.message)
        With 4 ranks: Rank 0 has returned without me.keep("sum", ...).
    """
    found = show(puzzle)
    result = Result(found, _world.carry_out(found, solve))
    _STARS.take(found, result)
    return result


def on_ranks(
    puzzle: int | Puzzle, solve: Callable[[Me], Any], nprocs: int | None = None
) -> _real.RealResult:
    """Run a solution in real processes, one for each rank, that send each other real messages.

    Nothing is counted there. What the ranks keep is compared as in a check.

    Args:
        puzzle: A number from 1 to 11, or a puzzle of your own.
        solve: The solution, as for `check`.
        nprocs: How many ranks; the smaller number with which the puzzle is checked, if not given.

    Returns:
        Whether what the ranks kept is right, and how far it is from what one process gets.

    Raises:
        ValueError: If there is no such puzzle, or it has no data for this number of ranks.
        RankError: If a rank has failed.
        JobTimeoutError: If they have not come to their end in a minute.

    Example:
        >>> from distlab import puzzles
        >>> puzzles.on_ranks(1, lambda me: me.keep("sum", me.all_reduce(me.gradient)), 2).right
        True
    """
    found = show(puzzle)
    return _real.carry_out(found, solve, nprocs or min(found.budgets))


def stars() -> StarTable:
    """The stars of all puzzles in this session, in a table.

    Returns:
        A table that shows itself as the last line of a cell; in a notebook it is kept up to date.

    Example:
        >>> from distlab import puzzles
        >>> str(puzzles.stars()).split()[:2]
        ['puzzle', 'stars']
    """
    return _STARS


def __dir__() -> list[str]:
    """What completion offers."""
    return list(__all__)
