"""What each rank holds when, in logical time."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from distlab.puzzles.clock import Event
from distlab.puzzles.lines import Place
from distlab.puzzles.operations import BYTES_PER_NUMBER, Array


@dataclass(eq=False)
class HeldTensor:
    """A tensor of one rank, also when the rank has let go of it.

    Attributes:
        rank: Whose it is.
        what: Where it comes from, in a word or two.
        since: When its memory was taken.
        place: Where the solver called for it; None for what the puzzle gives.
        values: Its numbers; None as long as they are on their way.
        ready: The event that has brought them.
        shape: None as long as it is not known.
        until: When the rank let go of it; None if it never did.
        gone: Why it is not there any more, in words.
        needed: Bytes leave it, or come into it, until then: it can't be used anew before.
    """

    rank: int
    what: str
    since: float
    place: Place | None = None
    values: Array | None = None
    ready: Event | None = None
    shape: tuple[int, ...] | None = None
    until: float | None = None
    gone: str = ""
    needed: float = 0.0

    @property
    def size(self) -> int:
        """Its bytes; 0 as long as its shape is not known."""
        return 0 if self.shape is None else BYTES_PER_NUMBER * math.prod(self.shape)

    @property
    def end(self) -> float:
        """When its bytes are free again; infinite for never."""
        return math.inf if self.until is None else max(self.until, self.needed)

    def there(self) -> Array:
        """Its numbers, which have come."""
        assert self.values is not None
        return self.values

    def fill(self, values: Array, ready: Event) -> None:
        """Its numbers have come."""
        self.values, self.ready, self.shape = values, ready, values.shape

    def let_go(self, now: float, why: str) -> None:
        """The rank lets go of it, for a reason that is told if it uses it again."""
        if self.until is None:
            self.until, self.gone = now, why


def curve(tensors: Sequence[HeldTensor]) -> list[tuple[float, int]]:
    """Moments, and the bytes that were held from each on."""
    changes: Counter[float] = Counter()
    for held in tensors:
        if held.end > held.since:
            changes[held.since] += held.size
            changes[held.end] -= held.size
    total, steps = 0, []
    for time in sorted(changes):
        if changes[time] and time < math.inf:
            total += changes[time]
            steps.append((time, total))
    return steps or [(0.0, 0)]


def held_at(tensors: Sequence[HeldTensor], time: float, most: int = 4) -> str:
    """What was held at a time, the largest first: `16,384 of given weights, ...`."""
    sizes: Counter[str] = Counter()
    for held in tensors:
        if held.since <= time < held.end:
            where = f" ({held.place.short})" if held.place else ""
            sizes[f"{held.what}{where}"] += held.size
    largest = sizes.most_common()
    words = [f"{size:,} of {what}" for what, size in largest[:most]]
    if rest := sum(size for _, size in largest[most:]):
        words.append(f"{rest:,} of others")
    return ", ".join(words)
