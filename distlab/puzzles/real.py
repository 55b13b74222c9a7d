"""A solution in real processes: one for each rank, which send each other real messages."""

import functools
import os
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection, Listener, wait
from typing import Any

import numpy as np

from distlab.launching.launch import run
from distlab.ports import HOST
from distlab.puzzles import operations, wrong
from distlab.puzzles.account import ClockEvent, HeldTensor
from distlab.puzzles.exchange import COLLECTIVES, carried_out
from distlab.puzzles.me import Me, Tensor
from distlab.puzzles.operations import Array
from distlab.puzzles.puzzle import Instance, Puzzle, tensors

_SECONDS = 60.0


@dataclass(frozen=True, repr=False)
class RealResult:
    """What real processes have made of a puzzle.

    Attributes:
        right: Whether what the ranks have kept is right.
        difference: The largest difference from what one process gets.
        message: In words.
    """

    right: bool
    difference: float
    message: str

    def __repr__(self) -> str:
        return self.message


def carry_out(puzzle: Puzzle, solve: Callable[[Me], Any], size: int) -> RealResult:
    """Run a solution in processes, and compare what they keep."""
    task, key = puzzle.task(size), secrets.token_bytes(32)
    with Listener((HOST, 0), backlog=size, authkey=key) as door:
        threading.Thread(target=_keep_post, args=(door, size), daemon=True).start()
        told = (solve, task.given, door.address, key)
        kept: list[dict[str, list[Array]]] = run(_rank, size, args=told, timeout=_SECONDS)
    words, differences = wrong.verdict(task, kept), [0.0]
    for right, results in zip(task.expected, kept, strict=True):
        for name, wanted in right.items():
            for one, other in zip(results.get(name, []), tensors(wanted), strict=False):
                if one.shape == other.shape:
                    differences.append(float(np.abs(one - other).max(initial=0.0)))
    heading = f"{puzzle.name}, in {size} processes"
    message = f"{heading}: {words or 'the same as in one process.'}"
    return RealResult(not words, max(differences), message)


def _keep_post(door: Listener, size: int) -> None:
    """Keep what ranks send, each thing until it is asked for, until all ranks have ended."""
    known: dict[Any, Any] = {}  # by what it is called: what was sent, or who asks for it
    with suppress(OSError, EOFError):  # a rank has failed to start: the job says so
        there = [door.accept() for _ in range(size)]
        while there:
            for guest in wait(there):
                assert isinstance(guest, Connection)
                try:
                    label, array = guest.recv()
                except (OSError, EOFError):
                    there.remove(guest)
                    continue
                if label not in known:
                    known[label] = guest if array is None else array
                elif array is None:
                    guest.send(known.pop(label))
                else:
                    with suppress(OSError):  # that one has ended
                        known.pop(label).send(array)


def _rank(
    solve: Callable[[Me], Any],
    given: Sequence[dict[str, Any]],
    door: tuple[str, int],
    key: bytes,
) -> dict[str, list[Array]]:
    """Be one rank; return what it has kept."""
    rank = int(os.environ["RANK"])
    with Client(door, authkey=key) as post:
        process = _Process(rank, len(given), post)
        solve(Me(process, rank, len(given), Instance(given, []).of_rank(rank, process.gift)))
    return process.kept


class _Process:
    """Carries out the calls of one rank, with messages to the other processes."""

    def __init__(self, rank: int, size: int, post: "Connection[Any, Any]") -> None:
        self.kept: dict[str, list[Array]] = {}
        self._rank, self._size, self._post = rank, size, post
        self._times: Counter[Any] = Counter()
        self._coming: dict[HeldTensor, Callable[[], Array]] = {}

    def gift(self, name: str, array: Array) -> Tensor:
        """A tensor of numbers that are there."""
        return self._tensor(lambda: array.astype(np.float32), f"given {name}")

    def _tensor(self, get: Callable[[], Array], what: str) -> Tensor:
        """A tensor whose numbers are got when they are needed."""
        held = HeldTensor(self._rank, what, 0.0)
        self._coming[held] = get
        return Tensor(held, self, lambda held: self._coming.pop(held, None))

    def __call__(self, kind: str, tensors: Sequence[Tensor], detail: Any) -> list[Tensor]:
        if kind == "receive":
            label = self._label(detail, self._rank)
            return [self._tensor(functools.partial(self._take, label), kind)]
        for held in (tensor._held for tensor in tensors):
            if held in self._coming:
                held.fill(self._coming.pop(held)(), ClockEvent())
        arrays = [tensor._held.values for tensor in tensors]
        if kind == "keep":
            self.kept[detail] = arrays
        elif kind == "send":
            self._post.send((self._label(self._rank, detail), arrays[0]))
        elif kind in COLLECTIVES:
            return self._collective(kind, arrays, detail)
        elif kind not in ("free", "shape"):
            made, *_ = operations.local(kind, arrays, detail)
            return [self._tensor(functools.partial(np.asarray, array), kind) for array in made]
        return []

    def _take(self, label: Any) -> Array:
        """What another rank sends, once it has come."""
        self._post.send((label, None))
        return self._post.recv()  # type: ignore[no-any-return]

    def _label(self, *what: Any) -> Any:
        """Messages between two ranks, and collectives of a group, are counted on all sides."""
        self._times[what] += 1
        return what, self._times[what]

    def _collective(self, kind: str, arrays: list[Array], group: list[int] | None) -> list[Tensor]:
        """Send one's own part to all members; put together what they send when it is needed."""
        members = sorted(group) if group is not None else list(range(self._size))
        label, index = self._label(kind, *members), members.index(self._rank)
        for i, other in enumerate(members):
            part = arrays[i if kind == "all_to_all" else 0]
            self._post.send(((self._rank, other, label), part))
        take = [functools.partial(self._take, (each, self._rank, label)) for each in members]
        if kind == "all_to_all":
            return [self._tensor(each, kind) for each in take]
        return [self._tensor(lambda: carried_out(kind, [[get()] for get in take], index)[0], kind)]
