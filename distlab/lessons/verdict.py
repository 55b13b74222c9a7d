"""What the check of an exercise prints: that the answer is right, or what is still missing."""

import sys
from collections.abc import Callable

from distlab.launching.rank_errors import JobTimeoutError, RankError
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
    except JobTimeoutError as error:
        _, where, places = error.headline.partition("Where they were: ")
        problem = f"{WAITING}\n{where}{places}".rstrip()
    except RankError as error:
        first = error.failures[0]
        what, hints = first.what.splitlines()[0], error.headline.splitlines()[1:]
        hints = [hint for hint in hints if "env=" not in hint]  # there is no launch to give it to
        verb = "" if what.startswith(("was ", "exited ")) else "raises "
        known = "\n".join([f"{first.name} {verb}{what}", *hints])
        problem = WAITING if "gloo" in first.what else known
    except Exception as error:  # noqa: BLE001 - it is the reader's
        lines = str(error).splitlines()
        problem = f"it raises {type(error).__name__}: {lines[0] if lines else ''}"
    sys.stdout.write(said(f"Not yet: {problem}" if problem else "Right.") + "\n")
