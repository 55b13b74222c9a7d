"""A solution in real processes: one for each rank, which send each other real messages."""

import functools
import os
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

import numpy as np

from distlab.launching.launch import run
from distlab.ports import HOST
from distlab.puzzles import operations, wrong
from distlab.puzzles.exchange import COLLECTIVES, carried_out
from distlab.puzzles.me import Me, Tensor
from distlab.puzzles.operations import Array
from distlab.puzzles.puzzle import Instance, Puzzle, tensors

_SECONDS = 60.0


@dataclass(frozen=True, repr=False)
class RealResult:
    """What real processes have made of a puzzle.

    Attributes:
        kept: What each rank has kept, by name.
        right: Whether that is right.
        difference: The largest difference from what one process gets.
        message: In words.
    """

    kept: list[dict[str, list[Array]]]
    right: bool
    difference: float
    message: str

    def __repr__(self) -> str:
        return self.message


def carry_out(puzzle: Puzzle, solve: Callable[[Me], Any], size: int) -> RealResult:
    """Run a solution in processes, and compare what they keep."""
    task, key = puzzle.task(size), secrets.token_bytes(32)
    with Listener((HOST, 0), backlog=size, authkey=key) as door:
        threading.Thread(target=_Post().open, args=(door, size), daemon=True).start()
        told = (solve, task.given, door.address, key)
        kept: list[dict[str, list[Array]]] = run(_rank, size, args=told, timeout=_SECONDS)
    words, difference = _compared(task, kept)
    heading = f"{puzzle.name}, in {size} processes"
    message = f"{heading}: {words or 'the same as in one process.'}"
    return RealResult(kept, not words, difference, message)


def _compared(task: Instance, kept: Sequence[dict[str, list[Array]]]) -> tuple[str, float]:
    """What is wrong, in words, and the largest difference."""
    difference = 0.0
    for rank, results in enumerate(kept):
        for name, right in task.expected[rank].items():
            if name not in results:
                return f'rank {rank} has returned without me.keep("{name}", ...).', np.inf
            for one, other in zip(results[name], tensors(right), strict=False):
                if one.shape == other.shape:
                    difference = max(difference, float(np.abs(one - other).max(initial=0.0)))
            if words := wrong.compare(task, rank, name, results[name]):
                return words, difference
    return "", difference


class _Post:
    """Passes on what ranks send each other: each leaves it here, and takes what is for it."""

    def __init__(self) -> None:
        self._left: dict[Any, Array] = {}
        self._gone: set[int] = set()
        self._news = threading.Condition()

    def open(self, door: Listener, size: int) -> None:
        """Serve each rank that comes, in a thread of its own."""
        with suppress(OSError, EOFError):  # a rank has failed: the job says so
            for _ in range(size):
                threading.Thread(target=self._serve, args=(door.accept(),), daemon=True).start()

    def _serve(self, guest: "Connection[Any, Any]") -> None:
        rank = guest.recv()
        with guest, suppress(OSError, EOFError):  # it has ended
            while True:
                key, array = guest.recv()
                if array is None:
                    guest.send(self._take(key))
                else:
                    with self._news:
                        self._left[key] = array
                        self._news.notify_all()
        with self._news:
            self._gone.add(rank)
            self._news.notify_all()

    def _take(self, key: Any) -> Array | None:
        """Wait for something; None if its sender has ended without it."""
        with self._news:
            self._news.wait_for(lambda: key in self._left or key[0] in self._gone)
            return self._left.pop(key, None)


def _rank(
    solve: Callable[[Me], Any],
    given: Sequence[dict[str, Any]],
    door: tuple[str, int],
    key: bytes,
) -> dict[str, list[Array]]:
    """Be one rank; return what it has kept."""
    rank = int(os.environ["RANK"])
    with Client(door, authkey=key) as post:
        post.send(rank)
        process = _Process(rank, len(given), post)
        solve(Me(process, rank, len(given), Instance(given, []).of_rank(rank, process.gift)))
    return process.kept


class _Held:
    """A tensor whose numbers may still be on their way."""

    def __init__(self, get: Callable[[], Array]) -> None:
        self._get = get
        self._values: Array | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.there().shape

    def there(self) -> Array:
        """Its numbers, once they have come."""
        if self._values is None:
            self._values = self._get()
        return self._values


def _itself(array: Array) -> Array:
    return array


class _Process:
    """Carries out the calls of one rank, with messages to the other processes."""

    def __init__(self, rank: int, size: int, post: "Connection[Any, Any]") -> None:
        self.kept: dict[str, list[Array]] = {}
        self._rank, self._size, self._post = rank, size, post
        self._times: Counter[Any] = Counter()

    def gift(self, _: str, what: str, array: Array) -> Tensor:
        """A tensor of numbers that are there."""
        return self._tensor(functools.partial(_itself, array.astype(np.float32)), what)

    def _tensor(self, get: Callable[[], Array], what: str) -> Tensor:
        return Tensor(_Held(get), what, lambda _: None, lambda _: None)

    def __call__(self, kind: str, tensors: Sequence[Tensor], detail: Any) -> list[Tensor]:
        if kind == "receive":
            label = self._label(detail, self._rank)
            return [self._tensor(lambda: self._take(detail, label), kind)]
        arrays = [tensor._held.there() for tensor in tensors]
        if kind == "keep":
            self.kept[detail] = arrays
        elif kind == "send":
            self._send(detail, self._label(self._rank, detail), arrays[0])
        elif kind in COLLECTIVES:
            return self._collective(kind, arrays, detail)
        elif kind != "free":
            made = operations.local(kind, arrays, detail).arrays
            return [self._tensor(functools.partial(_itself, array), kind) for array in made]
        return []

    def _label(self, *what: Any) -> Any:
        """Messages between two ranks, and collectives of a group, are counted on all sides."""
        self._times[what] += 1
        return what, self._times[what]

    def _send(self, to: int, label: Any, array: Array) -> None:
        self._post.send(((self._rank, to, label), array))

    def _take(self, source: int, label: Any) -> Array:
        self._post.send(((source, self._rank, label), None))
        array: Array | None = self._post.recv()
        if array is None:
            raise RuntimeError(f"Rank {source} has ended without what this rank waits for.")
        return array

    def _collective(self, kind: str, arrays: list[Array], group: list[int] | None) -> list[Tensor]:
        """Send one's own part to all members; put together what they send when it is needed."""
        members = sorted(group) if group is not None else list(range(self._size))
        label, index = self._label(kind, *members), members.index(self._rank)
        for i, other in enumerate(members):
            self._send(other, label, arrays[i if kind == "all_to_all" else 0])
        take = [functools.partial(self._take, member, label) for member in members]
        if kind == "all_to_all":
            return [self._tensor(each, kind) for each in take]
        return [self._tensor(lambda: carried_out(kind, [[get()] for get in take], index)[0], kind)]
