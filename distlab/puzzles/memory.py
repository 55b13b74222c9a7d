"""What each rank holds when: tensors with a beginning and an end in logical time."""

import functools
import itertools
import linecache
import math
import re
import types
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Optional

from distlab.puzzles.operations import BYTES_PER_NUMBER, Array

if TYPE_CHECKING:
    from distlab.puzzles.clock import Moment, Transfer

OWN = str(Path(__file__).parent)
"""Where distlab's own lines of the puzzles are."""
_CELL = re.compile(r"Cell In\[\d+\]|\d+\.py")
"""What IPython calls a cell, with a history and without."""


class Place(NamedTuple):
    """A line of the solver's: the name of its file or cell, its number, and its text."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        line = f"line {self.line}: {self.text}" if self.line else ""
        named = "" if _CELL.fullmatch(self.file) else self.file
        return ", ".join(filter(None, (named, line)))

    @property
    def short(self) -> str:
        """The number alone: `line 7`."""
        return f"line {self.line}"

    @classmethod
    def at(cls, file: str, line: int | None) -> "Place":
        """A line by its file and its number; code without numbers of lines has none."""
        text = linecache.getline(file, line).strip() if line else ""
        return cls(Path(file).name, line or 0, text)

    @classmethod
    def of(cls, frame: types.FrameType | None) -> "Place":
        """The line of the solver's that is under way: of a long call the first."""
        while frame is not None and frame.f_code.co_filename.startswith(OWN):
            frame = frame.f_back
        return cls("unknown", 0, "") if frame is None else _place(frame.f_code, frame.f_lasti)


@functools.lru_cache
def _place(code: types.CodeType, instruction: int) -> Place:
    lines = next(itertools.islice(code.co_positions(), instruction // 2, None), (None,))
    return Place.at(code.co_filename, lines[0])


@dataclass(eq=False)
class Held:
    """A tensor of one rank, also when the rank has let go of it.

    Attributes:
        rank: Whose it is.
        what: Where it comes from, in a word or two.
        since: When its memory was taken.
        place: Where the solver called for it; None for what the puzzle gives.
        values: Its numbers; None as long as they are on their way.
        ready: Since when they are there.
        shape: None as long as it is not known.
        coming: What brings it, if it comes from other ranks.
        until: When the rank let go of it; None if it never did.
        gone: Why it is not there any more, in words.
        kept: Whether it is a result.
        leaving: In how many messages and collectives it is still on its way to others.
    """

    rank: int
    what: str
    since: float
    place: Place | None = None
    values: Array | None = None
    ready: Optional["Moment"] = None
    shape: tuple[int, ...] | None = None
    coming: Optional["Transfer"] = None
    until: float | None = None
    gone: str = ""
    kept: bool = False
    leaving: int = 0
    _needed: float = 0.0

    @property
    def size(self) -> int:
        """Its bytes; 0 as long as its shape is not known."""
        return 0 if self.shape is None else BYTES_PER_NUMBER * math.prod(self.shape)

    @property
    def end(self) -> float | None:
        """When its bytes are free again; None for never."""
        if self.until is None or self.kept:
            return None
        return max(self.until, self._needed)

    def there(self) -> Array:
        """Its numbers, which have come."""
        assert self.values is not None
        return self.values

    def fill(self, values: Array, ready: "Moment") -> None:
        """Its numbers have come."""
        self.values, self.ready, self.shape = values, ready, values.shape
        self._forget()

    def let_go(self, now: float, why: str) -> None:
        """The rank lets go of it, for a reason that is told if it uses it again."""
        if self.until is None:
            self.until, self.gone = now, why
            self._forget()

    def has_left(self) -> None:
        """A message or a collective has come to its end that took it to others."""
        self.leaving -= 1
        self._forget()

    def _forget(self) -> None:
        """Free what nobody needs any more: a run may make much more than ranks hold at a time."""
        if self.until is not None and not self.leaving and not self.kept:
            self.values = None

    def needed_until(self, time: float) -> None:
        """Bytes are sent from it, or come into it, until a time: it can't be used anew before."""
        self._needed = max(self._needed, time)


@dataclass
class RankMemory:
    """All that one rank has held."""

    tensors: list[Held] = field(default_factory=list)

    def curve(self) -> list[tuple[float, int]]:
        """Moments, and the bytes that were held from each on."""
        changes: Counter[float] = Counter()
        for held in self.tensors:
            end = held.end
            if end is None or end > held.since:
                changes[held.since] += held.size
                if end is not None:
                    changes[end] -= held.size
        total, steps = 0, []
        for time in sorted(changes):
            if changes[time]:
                total += changes[time]
                steps.append((time, total))
        return steps or [(0.0, 0)]

    def peak(self) -> tuple[int, float]:
        """The most bytes that were held at a time, and since when."""
        time, most = max(self.curve(), key=lambda step: step[1])
        return most, time

    def now(self) -> int:
        """The bytes that are held now, with those that are still on their way to others."""
        return sum(h.size for h in self.tensors if h.until is None or h.kept or h.leaving)

    def held_at(self, time: float, most: int = 4) -> str:
        """What was held at a time, the largest first: `16,384 of given weights, ...`."""
        sizes: Counter[str] = Counter()
        for held in self.tensors:
            if held.since <= time and (held.end is None or held.end > time):
                where = f" ({held.place.short})" if held.place else ""
                sizes[f"{held.what}{where}"] += held.size
        largest = sizes.most_common()
        words = [f"{size:,} of {what}" for what, size in largest[:most]]
        if rest := sum(size for _, size in largest[most:]):
            words.append(f"{rest:,} of others")
        return ", ".join(words)
