"""Eleven tasks about moving data, on real ranks, with budgets that hold.

    show            the task of a puzzle: start and goal, what it allows, budgets, a stub
    check           run a solution on real ranks: passed, or what was wrong first; scores, pictures
    stars           a table of all puzzles, which keeps itself up to date in a notebook
    hint            one of three hints
    solution_text   the best solution so far, as text that runs again
    PUZZLES         all puzzles by number
    warm_up         start what a check needs, in the background

A solution is a function of one argument, `me`: a rank with `me.rank`, `me.size`, what the puzzle
gives, and methods to compute, to send and to keep results. It runs in processes that hold no
numbers: tensors are handles, and the arrays are in a process that the ranks cannot read. So bytes,
memory and time are counted, in logical units that are the same on any machine.

That stops mistakes and shortcuts. It does not stop code that attacks the processes of its own
user: a solution may change the files of distlab, or the memory of the notebook where the system
allows that, and get any stars. docs/puzzles.md says what is not stopped.

Example:
    >>> from distlab import puzzles
    >>> def solve(me):
    ...     me.keep("sum", me.gradient)
    >>> puzzles.check(1, solve).passed
    False
"""

import inspect as _inspect
import operator as _operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from distlab.public import public as _public
from distlab.puzzles.catalogue import PUZZLES
from distlab.puzzles.messages import Score
from distlab.puzzles.puzzle import Puzzle

if TYPE_CHECKING:
    from distlab.puzzles.ranks import Me
    from distlab.puzzles.results import Result
    from distlab.puzzles.showing import Shown
    from distlab.puzzles.standings import StarTable

__all__ = [
    "PUZZLES",
    "Puzzle",
    "Score",
    "check",
    "hint",
    "show",
    "solution_text",
    "stars",
    "warm_up",
]


@_public
def show(number: int) -> "Shown":
    """Show the task of a puzzle: start and goal, what it allows and costs, its budgets, a stub.

    Args:
        number: From 1 to 11.

    Returns:
        An object that shows itself as the last line of a cell.

    Raises:
        TypeError: If the number is no whole number.
        ValueError: If there is no such puzzle.

    Example:
        >>> from distlab import puzzles
        >>> print(str(puzzles.show(1)).splitlines()[0])
        Puzzle 1, All-reduce from sends
    """
    from distlab.puzzles.showing import Shown

    return Shown(_puzzle(number))


@_public
def check(number: int, solve: "Callable[[Me], Any]") -> "Result":
    """Run a solution on real ranks, with random data, and say whether it is right and how good.

    It runs with two numbers of ranks. The results are compared with those of a serial computation,
    to 1e-5. Whatever the function does wrong is in the result, with the rank and the line. A rank
    that computes for 2 seconds without a call of `me` is stopped, as in a loop that never ends; an
    import may take longer.

    Args:
        number: From 1 to 11.
        solve: The solution: it is called in each rank with `me`.

    Returns:
        The result, which shows itself as the last line of a cell: `passed`, `stars`, `message` and
        `scores` can be asked for.

    Raises:
        TypeError: If the number is no whole number, or the solution cannot be called or sent.
        ValueError: If there is no such puzzle, or the solution with all that it uses is too large.
        KeyboardInterrupt: If it is interrupted; the ranks have ended then.

    Example:
        >>> from distlab import puzzles
        >>> result = puzzles.check(1, lambda me: None)
        >>> print(result.message)
        With 4 ranks: Rank 0 has returned without me.keep("sum", ...).
    """
    from distlab.puzzles import checking, copying
    from distlab.puzzles.results import Result
    from distlab.puzzles.standings import TABLE

    puzzle = _puzzle(number)
    if not callable(solve):
        raise TypeError(f"check() takes a function of one argument, me, not {solve!r:.80}.")
    for waits, words in (
        (_inspect.isgeneratorfunction, "yield in it, so calling it runs none of its lines"),
        (_inspect.isasyncgenfunction, "yield in it, so calling it runs none of its lines"),
        (_inspect.iscoroutinefunction, "async before it, so calling it runs none of its lines"),
    ):
        if waits(solve):
            raise TypeError(f"check() takes an ordinary function. This one has {words}.")
    text, why = "", ""
    try:  # before it runs: it could change its file
        text = copying.as_text(puzzle.number, solve)
    except copying.NoTextError as error:
        why = str(error)
    result = Result(puzzle, *checking.carry_out(puzzle, solve))
    if result.passed:
        result.unwritten = why
    TABLE.take(result, puzzle.number, text if result.passed else "")
    return result


@_public
def stars() -> "StarTable":
    """The stars of all puzzles in this session, in a table.

    Returns:
        A table that shows itself as the last line of a cell; in a notebook it is kept up to date.

    Example:
        >>> from distlab import puzzles
        >>> str(puzzles.stars()).split()[:2]
        ['puzzle', 'stars']
    """
    from distlab.puzzles.standings import TABLE

    return TABLE


@_public
def hint(number: int, which: int) -> str:
    """Return one of the three hints of a puzzle, each of which says more than the one before.

    Args:
        number: From 1 to 11.
        which: 1, 2 or 3.

    Returns:
        The hint.

    Raises:
        TypeError: If one is no whole number.
        ValueError: If there is no such puzzle, or no such hint.

    Example:
        >>> from distlab import puzzles
        >>> puzzles.hint(9, 1)[:40]
        'attend gives a partial result for some r'
    """
    hints = _puzzle(number).hints
    if isinstance(which, bool) or not isinstance(which, int):
        raise TypeError(f"which={which!r}: give 1, 2 or 3.")
    if not 1 <= which <= len(hints):
        raise ValueError(f"which={which}: there are hints 1, 2 and 3.")
    return hints[which - 1]


@_public
def solution_text(number: int) -> str:
    """Return the best solution of a puzzle so far as text that runs again, in a file or a cell.

    It has the imports, functions and values that the solution uses. The best is the one with the
    most stars. Of those with as many it is the one with the fewest ticks, then with the least
    memory, then with the fewest bytes sent, each summed over both numbers of ranks. What cannot be
    written as text, such as a lambda, is left out.

    Args:
        number: From 1 to 11.

    Returns:
        The text.

    Raises:
        TypeError: If the number is no whole number.
        ValueError: If there is no such puzzle.
        LookupError: If no solution has passed in this session, or none that can be written.

    Example:
        >>> from distlab import puzzles
        >>> puzzles.solution_text(11)
        Traceback (most recent call last):
        LookupError: No solution of puzzle 11 has passed yet: ...
    """
    from distlab.puzzles.standings import TABLE

    return TABLE.text_of(_puzzle(number).number)


@_public
def warm_up() -> None:
    """Start what a check needs, in the background, so that the first check is as quick as others.

    Example:
        >>> from distlab import puzzles
        >>> puzzles.warm_up()
    """
    from distlab.puzzles import checking

    checking.warm_up()


def _puzzle(number: Any) -> Puzzle:
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"number={number!r}: give the number of a puzzle, 1 to {len(PUZZLES)}.")
    plain = _operator.index(number)  # of a subclass, whose hash may differ from call to call
    if plain not in PUZZLES:
        raise ValueError(f"number={plain}: there are puzzles 1 to {len(PUZZLES)}.")
    return PUZZLES[plain]


def __dir__() -> list[str]:
    """What completion offers."""
    return list(__all__)
