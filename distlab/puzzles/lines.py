"""How a rank talks to the keeper: one call, one answer, and the line that it comes from."""

import functools
import gc
import itertools
import linecache
import reprlib
import socket
import sys
import threading
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from distlab.puzzles import messages
from distlab.puzzles.handles import Tensor
from distlab.puzzles.incoming import Incoming
from distlab.puzzles.messages import (
    MOST_LETTERS,
    Call,
    Described,
    Done,
    Gift,
    Hello,
    SolverLine,
    Welcome,
)

OWN = str(Path(__file__).parent)
"""Where distlab's own lines of the puzzles are."""
MOST_GIVEN = 200_000
"""Tensors or sizes that a call may have."""
_SHORT = reprlib.Repr()
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxset = _SHORT.maxdict = 2
_SHORT.maxother, _SHORT.maxstring = 80, 40


class CheckOverError(BaseException):
    """The check is over for this rank: it leaves the solver's function."""


class Line:
    """The connection of a rank to the keeper.

    Args:
        port: Where the keeper listens.
        token: What admits the ranks of this size.
        rank: Which this is.
    """

    def __init__(self, port: int, token: str, rank: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._incoming = Incoming(self._socket)
        self._dropped: list[int] = []
        self._one_at_a_time = threading.Lock()  # the rank, and what watches it
        self._one_call = threading.RLock()  # a thread's call and its answer, then the next thread's
        self.waits: Callable[[], None] = lambda: None
        """Called when a call begins."""
        self.goes_on: Callable[[], None] = lambda: None
        """Called when a call has its answer."""
        messages.send(self._socket, Hello(token, rank))

    def say(self, message: msgspec.Struct) -> None:
        """Tell the keeper something that has no answer."""
        with self._one_at_a_time:
            messages.send(self._socket, message)

    def welcome(self) -> Welcome:
        """Wait until all ranks are there."""
        heard = messages.to_rank.decode(self._incoming.wait())
        if not isinstance(heard, Welcome):
            raise CheckOverError
        return heard

    def handles(self, gift: Gift, what: str) -> Any:
        """Handles for what the puzzle gives under one name."""
        if gift.single:
            return self._handle(gift.tensors[0], what)
        keys = range(len(gift.tensors)) if gift.keys is None else gift.keys
        made = {
            key: self._handle(told, f"{what}[{key}]")
            for key, told in zip(keys, gift.tensors, strict=True)
        }
        return list(made.values()) if gift.keys is None else made

    def _handle(self, told: Described, what: str) -> Tensor:
        shape = None if told.shape is None else tuple(told.shape)
        return Tensor(told.number, shape, what, self._ask, self._dropped)

    def _ask(self, tensor: Tensor) -> tuple[int, ...]:
        (told,) = self._exchange("shape", (tensor,), "", 0, [], None)
        assert told.shape is not None
        return tuple(told.shape)

    def call(
        self,
        kind: str,
        tensors: Sequence[Tensor],
        name: str,
        number: int,
        sizes: list[int],
        group: Sequence[int] | None,
        what: str,
    ) -> list[Tensor]:
        """Have the keeper carry out a call; return handles for the tensors that it gives."""
        for tensor in tensors:
            if not isinstance(tensor, Tensor):
                raise TypeError(f"me.{kind} takes tensors, not {kind_of(tensor)}.")
        told = self._exchange(kind, tensors, name, number, sizes, group)
        return [self._handle(each, what) for each in told]

    def _exchange(
        self,
        kind: str,
        tensors: Sequence[Tensor],
        name: str,
        number: int,
        sizes: list[int],
        group: Sequence[int] | None,
    ) -> list[Described]:
        if len(tensors) > MOST_GIVEN or len(sizes) > MOST_GIVEN:
            raise ValueError(f"me.{kind} is given more than {MOST_GIVEN:,} tensors or sizes.")
        where = place_of(sys._getframe(2))
        members = None if group is None else list(group)
        with self._one_call:
            gc.collect()  # tensors in a circle of references are free, too, and at once
            numbers = [tensor._number for tensor in tensors]
            dropped = [self._dropped.pop() for _ in range(len(self._dropped))]
            self.waits()
            self.say(Call(kind, where, numbers, name, number, sizes, members, dropped))
            heard = messages.to_rank.decode(self._incoming.wait())
            if not isinstance(heard, Done):
                raise CheckOverError
            self.goes_on()
            return heard.tensors


def kind_of(value: object) -> str:
    """A value in words, for an error: its type and how it looks, `...` where much is left out."""
    if value is None:
        return "None"
    shown = " ".join(_SHORT.repr(value).split())
    return shown if isinstance(value, Tensor) else f"{type(value).__name__} {shown}"


def place_of(frame: types.FrameType | None) -> SolverLine:
    """The line of the solver's that is under way: of a long call the first."""
    while frame is not None and frame.f_code.co_filename.startswith(OWN):
        frame = frame.f_back
    if frame is None:
        return SolverLine("unknown", 0, "")
    code = frame.f_code
    start = next(itertools.islice(code.co_positions(), frame.f_lasti // 2, None), (None,))[0]
    return place_at(code.co_filename, start or frame.f_lineno)


@functools.cache
def place_at(file: str, line: int | None) -> SolverLine:
    """A line by the name of its file and its number; None where code has no numbers of lines."""
    if line is None:
        return SolverLine(Path(file).name, 0, "")
    text = linecache.getline(file, line).strip()
    return SolverLine(Path(file).name[:MOST_LETTERS], line, text[:MOST_LETTERS])
