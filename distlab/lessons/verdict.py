"""What the check of an exercise prints: that the answer is right, or what is still missing."""

import re
import sys
from collections.abc import Callable

from distlab.errors import JobTimeoutError, RankError, RankFailure, name_ranks
from distlab.phrases import said

__all__ = ["verdict"]

WAITING = "the ranks wait for each other, or for a message that nobody sends."


def verdict(check: Callable[[], str | None]) -> None:
    """Prints `Right.`, or `Not yet:` and what a check has found.

    Whatever the reader's code raises counts as found, in the kernel and on ranks.

    Args:
        check: Returns what is wrong with the answer, in a sentence, or nothing.

    Example:
        >>> verdict(lambda: "the sum is too small.")
        Not yet: the sum is too small.
        >>> verdict(lambda: "")
        Right.
    """
    try:
        problem = check()
    except RankError as error:
        first, waits = error.failures[0], isinstance(error, JobTimeoutError)
        problem = f"{first.name} raises {first.what.splitlines()[0]}"
        if waits or "gloo" in first.what:
            problem = f"{WAITING}{_places([*error.failures, *error.others])}"
    except Exception as error:  # noqa: BLE001 - it is the reader's
        lines = str(error).splitlines()
        problem = f"it raises {type(error).__name__}: {lines[0] if lines else ''}"
    sys.stdout.write(said(f"Not yet: {problem}" if problem else "Right.") + "\n")


def _places(ranks: list[RankFailure]) -> str:
    """In which line of a notebook each rank waits, on a line of its own; empty if in none."""
    at: dict[str, list[RankFailure]] = {}
    for each in ranks:
        lines = re.findall(r"Cell In\[\d+\], line \d+", each.traceback)
        if lines:  # an error's traceback ends there, a stack begins there
            line = lines[-1 if each.traceback.startswith("Traceback") else 0]
            at.setdefault(line, []).append(each)
    words = "; ".join(f"{name_ranks(group)} at {line}" for line, group in at.items())
    return f"\n{words[:1].upper()}{words[1:]}." if words else ""
