"""What a rank and the keeper tell each other, and the keeper and the notebook's process.

Each message is MessagePack with its length, four bytes, in front.
"""

import re
import socket
import struct
from typing import Any

import msgspec

LENGTH = struct.Struct("<I")


_CELL = re.compile(r"Cell In\[\d+\]|\d+\.py")
"""What IPython calls a cell, with a history and without."""


class SolverLine(msgspec.Struct, frozen=True, array_like=True):
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


class Hello(msgspec.Struct, frozen=True, tag=True):
    """The first word of a rank: which one it is, and what the notebook's process has told it."""

    token: str
    rank: int


class Call(msgspec.Struct, frozen=True, tag=True):
    """A rank's call.

    Attributes:
        kind: The method of `me`.
        place: Where the solver called it.
        tensors: The tensors that it was given, by number.
        name: Of an operation or of a result.
        number: Of a rank.
        sizes: Of parts, in rows.
        group: The ranks that take part in a collective, if not all.
        dropped: Tensors that the rank has no handle of any more.
    """

    kind: str
    place: SolverLine
    tensors: list[int] = []
    name: str = ""
    number: int = 0
    sizes: list[int] = []
    group: list[int] | None = None
    dropped: list[int] = []


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The solver's function has raised an error, or called a method with wrong arguments."""

    why: str
    place: SolverLine | None = None


class SolveReturned(msgspec.Struct, frozen=True, tag=True):
    """The solver's function has returned."""


class Described(msgspec.Struct, frozen=True, array_like=True):
    """A tensor as its rank may know it. The shape is None where it is not known yet."""

    number: int
    shape: list[int] | None = None


MOST_LETTERS = 500
"""How much is told of the text of a line, and of the name of its file."""


class Gift(msgspec.Struct, frozen=True):
    """What the puzzle gives a rank under one name.

    Attributes:
        tensors: The tensors.
        keys: By which each is found; None for a list.
        single: Whether it is one tensor, and no list.
    """

    tensors: list[Described]
    keys: list[int] | None = None
    single: bool = False


class Patience(msgspec.Struct, frozen=True, array_like=True):
    """How long a rank may go without a call, in seconds.

    Attributes:
        computing: Of the processor's time, without imports.
        calling: Of the clock's time.
        silent: Of the clock's time, if it does not say itself in which line it is.
        all: How long a run may take, with all its calls, of the clock's time.
    """

    computing: float
    calling: float
    silent: float
    all: float = 120.0


class Welcome(msgspec.Struct, frozen=True, tag=True):
    """All ranks are there: begin.

    Attributes:
        size: How many ranks there are.
        gifts: What the puzzle gives, by name.
        facts: What else the rank is told: numbers, and lists or mappings of them.
        solution: The solver's function, as it was packed.
        patience: How long it may go without a call.
    """

    size: int
    gifts: dict[str, Gift]
    facts: dict[str, Any]
    solution: bytes
    patience: Patience


class Done(msgspec.Struct, frozen=True, tag=True):
    """A call was carried out: these tensors are new."""

    tensors: list[Described] = []


class Ended(msgspec.Struct, frozen=True, tag=True):
    """The check is over for all ranks: something was wrong somewhere."""


class BeginCheck(msgspec.Struct, frozen=True, tag=True):
    """Prepare a check.

    Attributes:
        puzzle: The number of the puzzle.
        solution: The solver's function, packed.
        patience: How long a rank may go without a call.
    """

    puzzle: int
    solution: bytes
    patience: Patience


class Listening(msgspec.Struct, frozen=True, tag=True):
    """Ranks may come: the port of this machine, and for each number of ranks a token."""

    port: int
    tokens: dict[int, str]


class LaneSpan(msgspec.Struct, frozen=True, array_like=True):
    """What a lane of a rank did for a while, in ticks."""

    lane: str
    start: float
    end: float
    what: str
    line: int


class Step(msgspec.Struct, frozen=True, array_like=True):
    """A part of the chain of events that the time of a run comes from."""

    rank: int
    kind: str
    what: str
    line: int
    start: float
    end: float


class Score(msgspec.Struct, frozen=True, order=True):
    """What a solution took, or may take.

    Attributes:
        time: In ticks, until the last rank has come to its end.
        memory: The most bytes that a rank held at a time.
        sent: The bytes that the rank which sends most has sent.

    Example:
        >>> Score(time=60.0, memory=24_576, sent=18_432).sent
        18432
    """

    time: float
    memory: int
    sent: int


class Outcome(msgspec.Struct, frozen=True, tag=True):
    """How the ranks of one size fared.

    Attributes:
        size: How many ranks there were.
        wrong: The first thing that was wrong; empty if the results are right.
        score: What it took; None if it did not come to its end.
        spans: For each rank what it did when.
        held: For each rank moments and the bytes that it held from then on.
        path: The chain of events that took the time, first one first.
        stuck: The ranks that wait for ever, and since when.
        unsized: For each rank how many of its buffers are for messages that were never sent.
        fullest: What filled the memory of the fullest rank when it was fullest.
    """

    size: int
    wrong: str = ""
    score: Score | None = None
    spans: list[list[LaneSpan]] = []
    held: list[list[tuple[float, int]]] = []
    path: list[Step] = []
    stuck: dict[int, float] = {}
    unsized: list[int] = []
    fullest: str = ""


FromRank = Hello | Call | Failed | SolveReturned
ToRank = Welcome | Done | Ended
ToNotebook = Listening | Outcome
from_rank = msgspec.msgpack.Decoder(FromRank)
to_rank = msgspec.msgpack.Decoder(ToRank)
from_notebook = msgspec.msgpack.Decoder(BeginCheck)
to_notebook = msgspec.msgpack.Decoder(ToNotebook)
_encoder = msgspec.msgpack.Encoder()


def send(to: socket.socket, message: msgspec.Struct) -> None:
    """Send one message, all of it.

    Raises:
        OSError: If nobody is there any more.
    """
    data = _encoder.encode(message)
    to.sendall(LENGTH.pack(len(data)) + data)
