"""One run of a solution: what its ranks may call, what that takes, and how it ends."""

import functools
import gc
import io
import math
import pickle
import sys
import threading
import traceback
import types
from collections.abc import Callable, Sequence
from typing import Any

import cloudpickle
import numpy as np
import threadpoolctl

from distlab.puzzles import account, operations, wrong
from distlab.puzzles.account import FLOPS, ClockEvent, HeldTensor, latest
from distlab.puzzles.exchange import COLLECTIVES, Exchange
from distlab.puzzles.lines import Place
from distlab.puzzles.me import Me, Tensor
from distlab.puzzles.operations import OPERATIONS, Array, WrongCallError
from distlab.puzzles.puzzle import Puzzle, Score
from distlab.puzzles.turns import LINES_OF_A_CALL, RunOverError, Seat, Turns

MOST_MADE = 10_000_000
"""Bytes that a rank may make in all, so that the memory of this process will do."""


class World:
    """A run of a solution to its end, or until no rank can go on.

    Args:
        puzzle: Says what is allowed, what ranks are given, and what has to come out.
        size: How many ranks there are.
        solution: Gives each rank its own copy of the function.

    Attributes:
        wrong: The first thing that was wrong; empty if the results are right.
        score: What it took; None if it did not come to its end.
        end: What ended last, with the chain of events that took the time.
        spans: What each rank did when, for the picture.
        curves: What each rank held when.
        fullest: What filled the memory of the fullest rank when it was fullest.
    """

    def __init__(
        self, puzzle: Puzzle, size: int, solution: Callable[[], Callable[[Me], Any]]
    ) -> None:
        self.size = size
        self._seats = seats = [Seat(rank) for rank in range(size)]
        self._exchange = Exchange([seat.clock for seat in seats])
        self._turns = Turns(seats)
        self._puzzle, self._task = puzzle, puzzle.task(size)
        self._turns.run(lambda seat: solution()(self._me(seat)))
        self.wrong = wrong.first_failure(seats) or wrong.stuck(seats, self._exchange)
        if not self.wrong:
            self.wrong = wrong.verdict(
                self._task,
                [{name: [h.values for h in own] for name, own in s.kept.items()} for s in seats],
                [seat.places for seat in seats],
            )
        lanes = ("receive", "compute")
        self.end = latest(*(seat.clock.last[lane] for lane in lanes for seat in seats))
        for seat in seats:
            if seat.state == "waiting":
                seat.clock.wait(ClockEvent(end=math.inf))
        self.spans = [seat.clock.spans for seat in seats]
        self.curves = [account.curve(seat.tensors) for seat in seats]
        peaks = [max(curve, key=lambda step: step[1]) for curve in self.curves]
        rank = max(range(size), key=lambda rank: peaks[rank][1])
        since, most = peaks[rank]
        held = account.held_at(seats[rank].tensors, since)
        self.fullest = f"rank {rank} at {since:.4g} ticks: {held}"
        finished = not self._exchange.open and all(seat.state == "returned" for seat in seats)
        self.score = Score(self.end.end, most, max(self._exchange.sent)) if finished else None

    def _me(self, seat: Seat) -> Me:
        given = self._task.of_rank(seat.rank, functools.partial(self._gift, seat))
        return Me(functools.partial(self._call, seat), seat.rank, self.size, given)

    def _gift(self, seat: Seat, name: str, array: Array) -> Tensor:
        held = HeldTensor(seat.rank, f"given {name}", 0.0)
        held.fill(array.astype(np.float32), seat.clock.now)
        return self._handle(seat, held)

    def _handle(self, seat: Seat, held: HeldTensor) -> Tensor:
        seat.tensors.append(held)
        seat.made += held.size
        return Tensor(held, functools.partial(self._call, seat), seat.dropped.append)

    # Calls.

    def _call(self, seat: Seat, kind: str, tensors: Sequence[Tensor], detail: Any) -> list[Tensor]:
        """Carry out a call of a rank."""
        if threading.current_thread() is not seat.thread:
            raise RuntimeError("me works in the thread that runs solve, and only while it runs.")
        seat.calls += 1
        seat.most_lines -= LINES_OF_A_CALL
        if self._turns.stopped or seat.state == "failed":
            raise RunOverError
        while seat.dropped:
            seat.dropped.popleft().let_go(seat.clock.now.end, "no variable held it")
        sys.settrace(None)  # these lines are not the solver's
        try:
            seat.place = Place.innermost(traceback.walk_stack(sys._getframe(1)))
            seat.call = detail if kind == "compute" else kind
            seat.operands = [tensor._held for tensor in tensors]
            self._check(seat, kind)
            made = self._carry_out(seat, kind, detail)
        except WrongCallError as error:
            self._turns.fail(seat, str(error), seat.place)
            raise RunOverError from None
        finally:
            sys.settrace(seat.trace)
        return [self._handle(seat, held) for held in made]

    def _check(self, seat: Seat, kind: str) -> None:
        """Refuse a call that this puzzle does not have, one too many, and tensors that are gone."""
        if seat.made > MOST_MADE:
            raise WrongCallError(
                f"It has made more than {MOST_MADE:,} bytes. Is there a loop that never ends?"
            )
        allowed = self._puzzle.operations
        if kind == "compute" and seat.call not in allowed:
            offered = ", ".join(each for each in OPERATIONS if each in allowed)
            raise WrongCallError(
                f"This puzzle has no operation {seat.call!r}. It has: {offered or 'none'}."
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

    def _carry_out(self, seat: Seat, kind: str, detail: Any) -> list[HeldTensor]:
        operands, clock, place = seat.operands, seat.clock, seat.place
        if kind == "shape":
            self._turns.wait(seat, lambda: operands[0].shape is not None)
            return []
        if kind == "keep":
            self._keep(seat, detail)
            return []
        self._turns.wait(seat, lambda: all(held.ready for held in operands))
        if len(set(operands)) < len(operands) and kind in COLLECTIVES:
            raise WrongCallError(f"{kind}: the same tensor is given twice.")
        if kind == "free":
            for held in operands:
                held.let_go(clock.now.end, f"it was freed ({place.short})")
            return []
        clock.wait(latest(clock.now, *(held.ready for held in operands if held.ready)))
        if kind in ("send", "receive", *COLLECTIVES):
            return self._exchange.begin(seat.rank, place, kind, operands, detail)
        return self._local(seat, kind, detail)

    def _local(self, seat: Seat, kind: str, detail: Any) -> list[HeldTensor]:
        """Carry out what needs no other rank. Results may take the places of operands."""
        operands, clock, what, place = seat.operands, seat.clock, seat.call, seat.place
        values = [held.values for held in operands]
        arrays, flops, reused = operations.local(kind, values, detail)
        now, given_up = clock.now, operands[:reused]
        if len(set(given_up)) < reused or set(given_up) & set(operands[reused:]):
            raise WrongCallError(f"{what}: the same tensor is given twice.")
        for held in given_up:
            held.let_go(now.end, f"{what} ({place.short}) has taken its place")
        if kind == "split":
            what = f"{operands[0].what.removesuffix(' in parts')} in parts"
        ready = now
        if flops:
            ready = clock.occupy(now.then(flops / FLOPS, what, place.line), "compute")
        made = [HeldTensor(seat.rank, what, now.end, place) for _ in arrays]
        for held, array in zip(made, arrays, strict=True):
            held.fill(array, ready)
        return made

    def _keep(self, seat: Seat, name: str) -> None:
        wanted = [*self._task.expected[0]]
        if name not in wanted:
            raise WrongCallError(f"keep: this puzzle wants {', '.join(wanted)}, not {name!r}.")
        if name in seat.kept:
            raise WrongCallError(f"keep: {name!r} was kept before, in {seat.places[name].short}.")
        for held in seat.operands:
            held.until = math.inf
        seat.kept[name], seat.places[name] = seat.operands, seat.place


def carry_out(puzzle: Puzzle, solve: Callable[[Me], Any]) -> list[World]:
    """Run a solution with each number of ranks, until it does not come to its end with one.

    Raises:
        TypeError: If no copies can be made of the function.
    """
    copy = _copies(solve)
    runs: list[World] = []
    with threadpoolctl.threadpool_limits(1, "blas"):  # more are slower here
        enabled = gc.isenabled()
        gc.disable()  # it would find tensors that hold each other when the machine likes
        try:
            for size in puzzle.budgets:
                runs.append(World(puzzle, size, copy))
                if runs[-1].score is None:
                    break
        finally:
            if enabled:
                gc.enable()
    return runs


def _copies(solve: Callable[[Me], Any]) -> Callable[[], Callable[[Me], Any]]:
    """Gives copies of a function, and of what it refers to, on call.

    They share its code, which pickling would part from the name of its file.

    Raises:
        TypeError: If no copies can be made of it.
    """
    codes: list[types.CodeType] = []

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def persistent_id(self, value: object) -> int | None:
            if not isinstance(value, types.CodeType):
                return None
            codes.append(value)
            return len(codes) - 1

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, index: int) -> types.CodeType:
            return codes[index]

    packed = io.BytesIO()
    try:
        Pickler(packed).dump(solve)
    except Exception as error:  # noqa: BLE001 - pickling raises what it likes
        raise TypeError(
            f"Each rank gets a copy of the solution, and that can't be made: {error}."
        ) from None
    return lambda: Unpickler(io.BytesIO(packed.getvalue())).load()
