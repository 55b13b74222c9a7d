"""What each rank holds when, in logical time, and the lines of the solver that called for it."""

import linecache
import math
import re
import types
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Optional

from distlab.puzzles.operations import BYTES_PER_NUMBER, Array

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
        """The line of the solver's that is under way."""
        while frame is not None and frame.f_code.co_filename.startswith(OWN):
            frame = frame.f_back
        return cls.at(frame.f_code.co_filename, frame.f_lineno) if frame else cls("unknown", 0, "")


@dataclass(eq=False)
class ClockEvent:
    """Something that took time, and what it began after."""

    rank: int
    kind: str
    what: str
    line: int
    start: float
    end: float
    before: Optional["ClockEvent"]


class Moment(NamedTuple):
    """A time, and the event that ended then."""

    time: float = 0.0
    event: ClockEvent | None = None


def latest(*moments: Moment) -> Moment:
    """The last of some moments; of those at the same time the first given."""
    return max(moments, key=lambda moment: moment.time)


@dataclass(eq=False)
class HeldTensor:
    """A tensor of one rank, also when the rank has let go of it.

    Attributes:
        rank: Whose it is.
        what: Where it comes from, in a word or two.
        since: When its memory was taken.
        place: Where the solver called for it; None for what the puzzle gives.
        values: Its numbers; None as long as they are on their way.
        ready: Since when they are there.
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
    ready: Moment | None = None
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

    def fill(self, values: Array, ready: Moment) -> None:
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
