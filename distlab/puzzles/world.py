"""One run of a solution: what its ranks may call, what that takes, and how it ends."""

import functools
import gc
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import cloudpickle
import numpy as np
import threadpoolctl

from distlab.puzzles import operations, wrong
from distlab.puzzles.clock import Clocks, latest
from distlab.puzzles.exchange import COLLECTIVES, Exchange
from distlab.puzzles.me import Me, Tensor
from distlab.puzzles.memory import Held, Place, RankMemory
from distlab.puzzles.operations import MOST_BYTES, OPERATIONS, Array, WrongCallError
from distlab.puzzles.puzzle import Puzzle, Score, Task
from distlab.puzzles.turns import RunOverError, Seat, Turns

MOST_CALLS = 1_000
"""What a rank may call at most: a loop that never ends does not run for ever."""
MOST_TIMES = 50
"""How many times the budget of ticks a rank may compute, likewise."""


class World:
    """The ranks of one size.

    Args:
        puzzle: Says what is allowed.
        size: How many ranks there are.
        task: What they are given, and what has to come out.
        exact: Before each call, look for tensors that nobody can reach any more but that hold each
            other, and free them. It takes time, and few programs need it.

    Attributes:
        wrong: The first thing that was wrong; empty if the results are right.
        score: What it took; None if it did not come to its end.
        path: The chain of events that took the time, first one first.
        fullest: What filled the memory of the fullest rank when it was fullest.
    """

    def __init__(self, puzzle: Puzzle, size: int, task: Task, *, exact: bool = False) -> None:
        self.size = size
        self.task = task
        self.seats = [Seat(rank) for rank in range(size)]
        self.clocks = Clocks(size)
        self.exchange = Exchange(self.clocks)
        self.memories = [RankMemory() for _ in range(size)]
        self._turns = Turns(self.seats, lambda rank: self.clocks.ranks[rank].now.time)
        self._puzzle = puzzle
        self._exact = exact

    def run(self, solution: Callable[[], Callable[[Me], Any]]) -> None:
        """Run a solution to its end, or until no rank can go on.

        Args:
            solution: Gives each rank its own copy of the function.
        """

        def solve(seat: Seat) -> None:
            given = self.task.of_rank(seat.rank, functools.partial(self._gift, seat))
            caller = functools.partial(self._call, seat)
            solution()(Me(caller, seat.rank, self.size, given))

        self._turns.run(solve)

    def _gift(self, seat: Seat, name: str, what: str, array: Array) -> Tensor:
        held = Held(seat.rank, f"given {name}", 0.0)
        held.fill(array.astype(np.float32), self.clocks.ranks[seat.rank].now)
        return self._handle(seat, held, what)

    def _handle(self, seat: Seat, held: Held, what: str) -> Tensor:
        self.memories[seat.rank].tensors.append(held)
        return Tensor(held, what, functools.partial(self._shape, seat), seat.dropped.append)

    def _shape(self, seat: Seat, tensor: Tensor) -> None:
        self._call(seat, "shape", (tensor,))

    # Calls.

    def _call(
        self,
        seat: Seat,
        kind: str,
        tensors: Sequence[Tensor],
        name: str = "",
        number: int = 0,
        sizes: Sequence[int] = (),
        group: list[int] | None = None,
    ) -> list[Tensor]:
        """Carry out a call of a rank, whose lines are not counted meanwhile."""
        if threading.current_thread() is not seat.thread:
            raise RuntimeError("me works in the thread that runs solve, and only while it runs.")
        sys.settrace(None)
        try:
            if self._turns.stopped or seat.state == "failed":
                raise RunOverError
            seat.place = Place.of(sys._getframe(1))
            seat.call, seat.operands = name or kind, [tensor._held for tensor in tensors]
            seat.calls += 1
            if self._exact:
                gc.collect()
            while seat.dropped:
                now = self.clocks.ranks[seat.rank].now.time
                seat.dropped.popleft().let_go(now, "no variable held it")
            self._check(seat, kind, name)
            made = self._carry_out(seat, seat.place, kind, name, number, sizes, group)
            self._count(seat, made)
        except WrongCallError as error:
            self._turns.fail(seat, str(error), seat.place)
            raise RunOverError from None
        finally:
            sys.settrace(seat.trace)
        return [self._handle(seat, held, name or kind) for held in made]

    def _check(self, seat: Seat, kind: str, name: str) -> None:
        """Refuse a call that this puzzle does not have, one too many, and tensors that are gone."""
        now, budget = self.clocks.ranks[seat.rank].now.time, self._puzzle.budgets[self.size]
        if seat.calls > MOST_CALLS:
            raise WrongCallError(
                f"It has made {MOST_CALLS:,} calls. Is there a loop that never ends?"
            )
        if now > MOST_TIMES * budget.time:
            raise WrongCallError(
                f"It is at tick {now:,.0f}, more than {MOST_TIMES} times the budget. Is there a "
                "loop that never ends?"
            )
        allowed = self._puzzle.operations
        if kind == "compute" and name not in allowed:
            offered = ", ".join(each for each in OPERATIONS if each in allowed)
            raise WrongCallError(
                f"This puzzle has no operation {name!r}. It has: {offered or 'none'}."
            )
        if kind not in (*self._puzzle.calls, "compute", "keep", "free", "shape"):
            raise WrongCallError(f"This puzzle does not allow me.{kind}.")
        for held in seat.operands:
            if held.rank != seat.rank:
                raise WrongCallError(
                    f"This tensor is rank {held.rank}'s, not rank {seat.rank}'s: "
                    "only send and the collectives bring its numbers here."
                )
            if held.gone:
                raise WrongCallError(f"This tensor is not there any more: {held.gone}.")

    def _carry_out(
        self,
        seat: Seat,
        place: Place,
        kind: str,
        name: str,
        number: int,
        sizes: Sequence[int],
        group: list[int] | None,
    ) -> list[Held]:
        rank, operands, clock = seat.rank, seat.operands, self.clocks.ranks[seat.rank]
        if kind == "shape":
            self._turns.wait(seat, lambda: operands[0].shape is not None)
            return []
        if kind == "keep":
            self._keep(seat, name, place)
            return []
        if kind == "receive":
            return [self.exchange.receive(rank, place, number)]
        self._turns.wait(seat, lambda: all(held.ready for held in operands))
        if len(set(operands)) < len(operands) and kind != "compute":
            raise WrongCallError(f"{kind}: the same tensor is given twice.")
        if kind == "free":
            for held in operands:
                held.let_go(clock.now.time, f"it was freed ({place.short})")
            return []
        clock.wait(latest(clock.now, *(held.ready for held in operands if held.ready)), place)
        if kind == "send":
            self.exchange.send(rank, place, operands[0], number)
            return []
        if kind in COLLECTIVES:
            return self.exchange.collective(rank, place, kind, operands, group)
        return self._local(seat, place, kind, name, number, sizes)

    def _local(
        self, seat: Seat, place: Place, kind: str, name: str, number: int, sizes: Sequence[int]
    ) -> list[Held]:
        """Carry out what needs no other rank. Results may take the places of operands."""
        operands, clock = seat.operands, self.clocks.ranks[seat.rank]
        arrays = [held.there() for held in operands]
        local = operations.local(kind, name, arrays, number, sizes)
        now, reused = clock.now.time, operands[: local.reused]
        if len(set(reused)) < len(reused) or set(reused) & set(operands[local.reused :]):
            raise WrongCallError(f"{OPERATIONS[name]}: the same tensor is given twice.")
        for held in reused:
            held.let_go(now, f"{name or kind} ({place.short}) has taken its place")
        what = name or kind
        if kind == "split":
            what = f"{operands[0].what.removesuffix(' in parts')} in parts"
        ready = clock.compute(what, local.flops, place)
        made = [Held(seat.rank, what, now, place) for _ in local.arrays]
        for held, array in zip(made, local.arrays, strict=True):
            held.fill(array, ready)
        return made

    def _count(self, seat: Seat, made: Sequence[Held]) -> None:
        """Refuse so much that the memory of this process would not do."""
        new = sum(held.size for held in made)
        seat.grown += new
        if seat.grown > MOST_BYTES:
            seat.grown = self.memories[seat.rank].now() + new
        if seat.grown > MOST_BYTES:
            raise WrongCallError(
                f"It holds {seat.grown:,} bytes; a check has room for {MOST_BYTES:,}."
            )

    def _keep(self, seat: Seat, name: str, place: Place) -> None:
        wanted = self.task.expected[0]
        if name not in wanted:
            raise WrongCallError(
                f"keep: this puzzle wants no {name!r}. It wants: {', '.join(wanted)}."
            )
        if name in seat.kept:
            raise WrongCallError(
                f"keep: {name!r} was kept before, in {seat.kept[name][0].short}. Keep each result "
                "once."
            )
        for held in seat.operands:
            held.kept = True
        seat.kept[name] = (place, seat.operands)

    # The end.

    def conclude(self) -> None:
        """Say how the run has come to its end, once it is over."""
        told = wrong.first_failure(self.seats) or wrong.stuck(self)
        self.wrong = told or wrong.verdict(self.task, [seat.kept for seat in self.seats])
        time, self.path = self.clocks.path()
        peaks = [memory.peak() for memory in self.memories]
        rank = max(range(self.size), key=lambda rank: peaks[rank][0])
        held = self.memories[rank].held_at(peaks[rank][1])
        self.fullest = f"rank {rank} at {peaks[rank][1]:.4g} ticks: {held}"
        returned = all(seat.state == "returned" for seat in self.seats)
        finished = returned and all(each.is_message for each in self.exchange.open)
        self.score = Score(time, peaks[rank][0], max(self.exchange.sent)) if finished else None

    @property
    def endless(self) -> bool:
        """Whether a rank was ended that would not have come to an end."""
        return self._turns.endless

    @property
    def waiting(self) -> dict[int, float]:
        """The ranks that wait for ever, and since when."""
        waiting = [seat.rank for seat in self.seats if seat.state == "waiting"]
        return {rank: self.clocks.ranks[rank].now.time for rank in waiting}


def carry_out(puzzle: Puzzle, solve: Callable[[Me], Any]) -> list[World]:
    """Run a solution with each number of ranks, until one of them never ends.

    Raises:
        TypeError: If no copies can be made of the function.
    """
    try:
        packed = cloudpickle.dumps(solve)
    except Exception as error:  # noqa: BLE001 - pickling raises what it likes
        raise TypeError(
            f"Each rank gets a copy of the solution, and that can't be made: {error}. Make what it "
            "needs inside of it."
        ) from None
    runs: list[World] = []
    with _one_at_a_time, _numpy_threads().limit(limits=1):  # more are slower for small tensors
        for size in puzzle.budgets:
            runs.append(_run(puzzle, size, lambda: cloudpickle.loads(packed)))
            if runs[-1].endless:
                break
    return runs


_one_at_a_time = threading.Lock()


@functools.cache
def _numpy_threads() -> threadpoolctl.ThreadpoolController:
    return threadpoolctl.ThreadpoolController()


def _run(puzzle: Puzzle, size: int, solution: Callable[[], Callable[[Me], Any]]) -> World:
    """Run a solution with one number of ranks.

    Tensors that hold each other, as in an object that refers to itself, are found by Python's
    garbage collector at moments that depend on the machine. So it does not work meanwhile. If it
    finds any afterwards the run is done again, and it works before each call.
    """
    task = puzzle.task(size)
    enabled = gc.isenabled()
    gc.disable()
    gc.freeze()  # what exists now is none of the run's: looking through it would take long
    try:
        for exact in (False, True):
            world = World(puzzle, size, task, exact=exact)
            world.run(solution)
            held = sum(len(seat.dropped) for seat in world.seats)
            if exact or not gc.collect() or held == sum(len(seat.dropped) for seat in world.seats):
                break
        world.conclude()
        return world
    finally:
        gc.unfreeze()
        if enabled:
            gc.enable()
