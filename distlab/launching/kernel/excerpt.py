"""What a notebook shows of ranks that print a lot: the first lines of each, and the last.

A page with a hundred thousand lines is slow, and Jupyter drops messages that come too fast.
"""

from collections import deque
from dataclasses import dataclass, field

LINES = 800
"""How many lines of all ranks together a notebook shows at most, half of them the first."""
MOST = 100
"""How many first and how many last lines of one rank."""
WIDTH = 4000
"""How many characters of a line."""


@dataclass
class _Rank:
    count: int = 0
    last: deque[str] = field(default_factory=deque)


class Excerpt:
    """Chooses which lines to show.

    Args:
        ranks: How many ranks print.

    Example:
        >>> excerpt = Excerpt(ranks=1)
        >>> shown = excerpt.first(0, [str(n) for n in range(1000)])
        >>> len(shown), shown[-1]
        (100, '99')
        >>> left_out, last = excerpt.last(0)
        >>> left_out, len(last), last[-1]
        (800, 100, '999')
    """

    def __init__(self, ranks: int) -> None:
        self._each = min(MOST, max(10, LINES // 2 // ranks))
        self._ranks = [_Rank(last=deque(maxlen=self._each)) for _ in range(ranks)]

    def first(self, rank: int, lines: list[str]) -> list[str]:
        """Those of a rank's new lines that are to be shown now; the others count."""
        state = self._ranks[rank]
        room = max(0, self._each - state.count)
        state.count += len(lines)
        shown, rest = lines[:room], lines[room:]
        state.last.extend(map(_cut, rest[-self._each :]))
        return list(map(_cut, shown))

    def last(self, rank: int) -> tuple[int, list[str]]:
        """How many lines of a rank are left out, and those to be shown after them."""
        state = self._ranks[rank]
        left_out = max(0, state.count - self._each) - len(state.last)
        return left_out, list(state.last)


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else f"{line[:WIDTH]}… ({len(line):,} characters)"
