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

from distlab.puzzles import operations, wrong
from distlab.puzzles.exchange import COLLECTIVES, carried_out
from distlab.puzzles.me import Me, Tensor
from distlab.puzzles.operations import Array
from distlab.puzzles.puzzle import Puzzle, Task, tensors

_SECONDS = 60.0
_HERE = "127.0.0.1"


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
    from distlab import run

    task = puzzle.task(size)
    key = secrets.token_bytes(32)
    with Listener((_HERE, 0), backlog=size, authkey=key) as meeting:
        threading.Thread(target=_introduce, args=(meeting, size), daemon=True).start()
        told = (solve, task.given, meeting.address, key)
        kept: list[dict[str, list[Array]]] = run(_rank, size, args=told, timeout=_SECONDS)
    words, difference = _compared(task, kept)
    heading = f"{puzzle.name}, in {size} processes"
    message = f"{heading}: {words or 'the same as in one process.'}"
    return RealResult(kept, not words, difference, message)


def _compared(task: Task, kept: Sequence[dict[str, list[Array]]]) -> tuple[str, float]:
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


def _introduce(meeting: Listener, size: int) -> None:
    """Tell each rank the addresses of all."""
    with suppress(OSError, EOFError):  # a rank has failed: the job says so
        guests = [meeting.accept() for _ in range(size)]
        addresses = dict(guest.recv() for guest in guests)
        for guest in guests:
            guest.send(addresses)


def _rank(
    solve: Callable[[Me], Any],
    given: Sequence[dict[str, Any]],
    meeting: tuple[str, int],
    key: bytes,
) -> dict[str, list[Array]]:
    """Be one rank; return what it has kept."""
    rank = int(os.environ["RANK"])
    process = _Process(rank, len(given), _Post(rank, len(given), meeting, key))
    solve(Me(process, rank, len(given), Task(given, []).of_rank(rank, process.gift)))
    return process.kept


class _Post:
    """The connections of a process with all others, and what has come through them."""

    def __init__(self, rank: int, size: int, meeting: tuple[str, int], key: bytes) -> None:
        self._arrived: dict[tuple[int, Any], Array] = {}
        self._gone: set[int] = set()
        self._news = threading.Condition()
        self._others: dict[int, Connection[Any, Any]] = {}
        with Listener((_HERE, 0), backlog=size, authkey=key) as own:
            with Client(meeting, authkey=key) as host:
                host.send((rank, own.address))
                addresses = host.recv()
            for other in range(rank):
                self._others[other] = Client(addresses[other], authkey=key)
                self._others[other].send(rank)
            for _ in range(rank + 1, size):
                guest = own.accept()
                self._others[guest.recv()] = guest
        for other in self._others:
            threading.Thread(target=self._read, args=(other,), daemon=True).start()

    def _read(self, other: int) -> None:
        with suppress(OSError, EOFError):  # it has ended
            while True:
                label, array = self._others[other].recv()
                with self._news:
                    self._arrived[other, label] = array
                    self._news.notify_all()
        with self._news:
            self._gone.add(other)
            self._news.notify_all()

    def send(self, to: int, label: Any, array: Array) -> None:
        """Send an array; the other process finds it under the label."""
        self._others[to].send((label, array))

    def take(self, source: int, label: Any) -> Array:
        """Wait for what another process has sent under a label."""
        with self._news:
            self._news.wait_for(lambda: (source, label) in self._arrived or source in self._gone)
            if (source, label) not in self._arrived:
                raise RuntimeError(f"Rank {source} has ended without what this rank waits for.")
            return self._arrived.pop((source, label))


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

    def __init__(self, rank: int, size: int, post: _Post) -> None:
        self.kept: dict[str, list[Array]] = {}
        self._rank, self._size, self._post = rank, size, post
        self._times: Counter[Any] = Counter()

    def gift(self, _: str, what: str, array: Array) -> Tensor:
        """A tensor of numbers that are there."""
        return self._tensor(functools.partial(_itself, array.astype(np.float32)), what)

    def _tensor(self, get: Callable[[], Array], what: str) -> Tensor:
        return Tensor(_Held(get), what, lambda _: None, lambda _: None)

    def __call__(
        self,
        kind: str,
        tensors: Sequence[Tensor],
        name: str,
        number: int,
        sizes: Sequence[int],
        group: list[int] | None,
    ) -> list[Tensor]:
        if kind == "receive":
            label = self._label(number, self._rank)
            return [self._tensor(lambda: self._post.take(number, label), kind)]
        arrays = [tensor._held.there() for tensor in tensors]
        if kind == "keep":
            self.kept[name] = arrays
        elif kind == "send":
            self._post.send(number, self._label(self._rank, number), arrays[0])
        elif kind in COLLECTIVES:
            return self._collective(kind, arrays, group)
        elif kind != "free":
            made = operations.local(kind, name, arrays, number, sizes).arrays
            return [self._tensor(functools.partial(_itself, array), name or kind) for array in made]
        return []

    def _label(self, *what: Any) -> Any:
        """Messages between two ranks, and collectives of a group, are counted on all sides."""
        self._times[what] += 1
        return what, self._times[what]

    def _collective(self, kind: str, arrays: list[Array], group: list[int] | None) -> list[Tensor]:
        """Send one's own part to all members; put together what they send when it is needed."""
        members = sorted(group) if group is not None else list(range(self._size))
        label = self._label(kind, *members)
        for i, other in enumerate(members):
            if other != self._rank:
                self._post.send(other, label, arrays[i if kind == "all_to_all" else 0])
        index = members.index(self._rank)

        def part(member: int) -> Array:
            if member != self._rank:
                return self._post.take(member, label)
            return arrays[index if kind == "all_to_all" else 0]

        if kind == "all_to_all":
            return [self._tensor(functools.partial(part, member), kind) for member in members]
        return [
            self._tensor(lambda: carried_out(kind, [[part(m)] for m in members], index)[0], kind)
        ]
