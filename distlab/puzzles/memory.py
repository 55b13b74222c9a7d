"""What each rank holds when: storages with a beginning and an end in logical time."""

from collections import Counter
from dataclasses import dataclass

from distlab.puzzles.messages import SolverLine


@dataclass(eq=False)
class Storage:
    """Memory of a rank.

    Attributes:
        rank: Whose.
        size: In bytes; None as long as a message's size is not known.
        since: When it was taken.
        what: What is in it, in a word or two.
        place: Where the solver called for it; None for what the puzzle gives.
        until: When the rank let go of it; None if it never did.
        kept: Whether it is a result.
    """

    rank: int
    size: int | None
    since: float
    what: str
    place: SolverLine | None = None
    until: float | None = None
    kept: bool = False
    _needed: float = 0.0

    def let_go(self, now: float) -> None:
        """The rank holds no handle of it any more."""
        self.until = now

    def needed_until(self, time: float) -> None:
        """Bytes are sent from it, or come into it, until a time: it can't be used anew before."""
        self._needed = max(self._needed, time)

    @property
    def end(self) -> float | None:
        """When its bytes are free again; None for never."""
        if self.until is None or self.kept:
            return None
        return max(self.until, self._needed)


class RankMemory:
    """All that one rank has held."""

    def __init__(self) -> None:
        self.storages: list[Storage] = []

    def curve(self) -> list[tuple[float, int]]:
        """Moments, and the bytes that were held from each on."""
        changes: Counter[float] = Counter()
        for storage in self.storages:
            if storage.end is None or storage.end > storage.since:
                changes[storage.since] += storage.size or 0
                if storage.end is not None:
                    changes[storage.end] -= storage.size or 0
        total, steps = 0, []
        for time in sorted(changes):
            if changes[time]:
                total += changes[time]
                steps.append((time, total))
        return steps or [(0.0, 0)]

    @property
    def unsized(self) -> int:
        """How many buffers there are for messages that nobody has sent: their size is not known."""
        return sum(storage.size is None for storage in self.storages)

    def peak(self) -> tuple[int, float]:
        """The most bytes that were held at a time, and since when."""
        time, most = max(self.curve(), key=lambda step: step[1])
        return most, time

    def held_at(self, time: float, most: int = 4) -> str:
        """What was held at a time, the largest first: `16,384 of given weights, ...`."""
        sizes: Counter[str] = Counter()
        for storage in self.storages:
            if storage.since <= time and (storage.end is None or storage.end > time):
                where = f" ({storage.place.short})" if storage.place else ""
                sizes[f"{storage.what}{where}"] += storage.size or 0
        largest = sizes.most_common()
        words = [f"{size:,} of {what}" for what, size in largest[:most]]
        if rest := sum(size for _, size in largest[most:]):
            words.append(f"{rest:,} of others")
        return ", ".join(words)
