"""One run of a solution: what its ranks may call, what that takes, and how it ends."""

import functools
import gc
import math
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import cloudpickle
import numpy as np
import threadpoolctl

from distlab.puzzles import memory, operations, wrong
from distlab.puzzles.clock import Clocks
from distlab.puzzles.exchange import COLLECTIVES, Exchange
from distlab.puzzles.me import Me, Tensor
from distlab.puzzles.memory import HeldTensor, Place, latest
from distlab.puzzles.operations import OPERATIONS, Array, WrongCallError
from distlab.puzzles.puzzle import Puzzle, Score
from distlab.puzzles.turns import RunOverError, Seat, Turns

MOST_CALLS = 1_000
"""What a rank may call at most: a loop that never ends does not run for ever."""
MOST_TIMES = 50
"""How many times the budget of ticks a rank may compute, likewise."""
MOST_MADE = 10_000_000
"""Bytes that a rank may make in all, so that the memory of this process will do."""


class World:
    """The ranks of one size.

    Args:
        puzzle: Says what is allowed, what ranks are given, and what has to come out.
        size: How many ranks there are.

    Attributes:
        wrong: The first thing that was wrong; empty if the results are right.
        score: What it took; None if it did not come to its end.
        path: The chain of events that took the time, first one first.
        fullest: What filled the memory of the fullest rank when it was fullest.
    """

    def __init__(self, puzzle: Puzzle, size: int) -> None:
        self.size = size
        self.seats = [Seat(rank) for rank in range(size)]
        self.clocks = Clocks(size)
        self.exchange = Exchange(self.clocks)
        self.tensors: list[list[HeldTensor]] = [[] for _ in range(size)]
        self._turns = Turns(self.seats, lambda rank: self.clocks.ranks[rank].now.time)
        self._puzzle, self._task = puzzle, puzzle.task(size)

    def run(self, solution: Callable[[], Callable[[Me], Any]]) -> None:
        """Run a solution to its end, or until no rank can go on, and say how it ended.

        Args:
            solution: Gives each rank its own copy of the function.
        """

        def solve(seat: Seat) -> None:
            given = self._task.of_rank(seat.rank, functools.partial(self._gift, seat))
            caller = functools.partial(self._call, seat)
            solution()(Me(caller, seat.rank, self.size, given))

        self._turns.run(solve)
        told = wrong.first_failure(self.seats)
        told = told or wrong.stuck(self.seats, self.clocks, [*self.exchange.open])
        self.wrong = told or wrong.verdict(self._task, [seat.kept for seat in self.seats])
        time, self.path = self.clocks.path()
        peaks = [max(memory.curve(own), key=lambda step: step[1]) for own in self.tensors]
        rank = max(range(self.size), key=lambda rank: peaks[rank][1])
        since, most = peaks[rank]
        held = memory.held_at(self.tensors[rank], since)
        self.fullest = f"rank {rank} at {since:.4g} ticks: {held}"
        returned = all(seat.state == "returned" for seat in self.seats)
        finished = returned and all(each.is_message for each in self.exchange.open)
        self.score = Score(time, most, max(self.exchange.sent)) if finished else None

    def _gift(self, seat: Seat, name: str, what: str, array: Array) -> Tensor:
        held = HeldTensor(seat.rank, f"given {name}", 0.0)
        held.fill(array.astype(np.float32), self.clocks.ranks[seat.rank].now)
        return self._handle(seat, held, what)

    def _handle(self, seat: Seat, held: HeldTensor, what: str) -> Tensor:
        self.tensors[seat.rank].append(held)
        return Tensor(held, what, functools.partial(self._shape, seat), seat.dropped.append)

    def _shape(self, seat: Seat, tensor: Tensor) -> None:
        self._call(seat, "shape", (tensor,), None)

    # Calls.

    def _call(self, seat: Seat, kind: str, tensors: Sequence[Tensor], detail: Any) -> list[Tensor]:
        """Carry out a call of a rank."""
        if threading.current_thread() is not seat.thread:
            raise RuntimeError("me works in the thread that runs solve, and only while it runs.")
        if self._turns.stopped or seat.state == "failed":
            raise RunOverError
        place, name = Place.of(sys._getframe(1)), detail if kind == "compute" else kind
        seat.place, seat.call, seat.operands = place, name, [tensor._held for tensor in tensors]
        seat.calls += 1
        sys.settrace(None)  # which makes distlab's own lines slow
        try:
            while seat.dropped:
                now = self.clocks.ranks[seat.rank].now.time
                seat.dropped.popleft().let_go(now, "no variable held it")
            self._check(seat, kind, name)
            made = self._carry_out(seat, place, kind, detail)
            seat.made += sum(held.size for held in made)
            if seat.made > MOST_MADE:
                raise WrongCallError(
                    f"It has made {seat.made:,} bytes; a check has room for {MOST_MADE:,}. Is "
                    "there a loop that never ends?"
                )
        except WrongCallError as error:
            self._turns.fail(seat, str(error), place)
            raise RunOverError from None
        finally:
            sys.settrace(seat.trace)
        return [self._handle(seat, held, name) for held in made]

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

    def _carry_out(self, seat: Seat, place: Place, kind: str, detail: Any) -> list[HeldTensor]:
        rank, operands, clock = seat.rank, seat.operands, self.clocks.ranks[seat.rank]
        if kind == "shape":
            self._turns.wait(seat, lambda: operands[0].shape is not None)
            return []
        if kind == "keep":
            self._keep(seat, detail, place)
            return []
        if kind == "receive":
            return [self.exchange.receive(rank, place, detail)]
        self._turns.wait(seat, lambda: all(held.ready for held in operands))
        if len(set(operands)) < len(operands) and kind != "compute":
            raise WrongCallError(f"{kind}: the same tensor is given twice.")
        if kind == "free":
            for held in operands:
                held.let_go(clock.now.time, f"it was freed ({place.short})")
            return []
        clock.wait(latest(clock.now, *(held.ready for held in operands if held.ready)), place)
        if kind == "send":
            self.exchange.send(rank, place, operands[0], detail)
            return []
        if kind in COLLECTIVES:
            return self.exchange.collective(rank, place, kind, operands, detail)
        return self._local(seat, place, kind, detail)

    def _local(self, seat: Seat, place: Place, kind: str, detail: Any) -> list[HeldTensor]:
        """Carry out what needs no other rank. Results may take the places of operands."""
        operands, clock, what = seat.operands, self.clocks.ranks[seat.rank], seat.call
        local = operations.local(kind, [held.there() for held in operands], detail)
        now, reused = clock.now.time, operands[: local.reused]
        if len(set(reused)) < len(reused) or set(reused) & set(operands[local.reused :]):
            raise WrongCallError(f"{OPERATIONS[what]}: the same tensor is given twice.")
        for held in reused:
            held.let_go(now, f"{what} ({place.short}) has taken its place")
        if kind == "split":
            what = f"{operands[0].what.removesuffix(' in parts')} in parts"
        ready = clock.compute(what, local.flops, place)
        made = [HeldTensor(seat.rank, what, now, place) for _ in local.arrays]
        for held, array in zip(made, local.arrays, strict=True):
            held.fill(array, ready)
        return made

    def _keep(self, seat: Seat, name: str, place: Place) -> None:
        wanted = self._task.expected[0]
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
            held.until = math.inf
        seat.kept[name] = (place, seat.operands)

    @property
    def endless(self) -> bool:
        """Whether a rank was ended that would not have come to an end."""
        return self._turns.endless


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
        enabled = gc.isenabled()
        gc.disable()  # it would find tensors that hold each other when the machine likes
        try:
            for size in puzzle.budgets:
                runs.append(World(puzzle, size))
                runs[-1].run(lambda: cloudpickle.loads(packed))
                if runs[-1].endless:
                    break
        finally:
            if enabled:
                gc.enable()
    return runs


_one_at_a_time = threading.Lock()


@functools.cache
def _numpy_threads() -> threadpoolctl.ThreadpoolController:
    return threadpoolctl.ThreadpoolController()
