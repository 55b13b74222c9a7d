"""One run of a solution: all ranks of one size, what they call, and how it ends.

What happens is settled by the order of each rank's calls alone, never by which rank is faster in
real time: a call that can't be carried out yet waits, and when no rank can go on the run is over.
"""

import math
from collections.abc import Callable, Collection

import numpy as np

from distlab.puzzles.arithmetic import Rounding, WrongCallError
from distlab.puzzles.clock import Clocks, latest
from distlab.puzzles.exchange import Exchange
from distlab.puzzles.local import MOST_HELD, Local
from distlab.puzzles.messages import Call, Described, Gift, Outcome, Score, SolverLine
from distlab.puzzles.seats import Seat, first_failure
from distlab.puzzles.stuck import stuck
from distlab.puzzles.tasks import PuzzleTask, verdict
from distlab.puzzles.tensors import HeldTensor, Tensors

MOST_CALLS = 1_000
"""What a rank may call at most: a loop that never ends does not run for ever."""
MOST_TENSORS = 10_000
"""What a rank may make at most, likewise."""
MOST_TIMES = 50
"""How many times the budget of ticks a rank may compute, likewise."""
_MOST_WORDS = 10_000
_ALWAYS = ("keep", "free", "shape")
_OPERANDS = {"add": 2, "receive": 0} | dict.fromkeys(
    ("shape", "split", "send", "all_reduce", "reduce_scatter", "all_gather"), 1
)


class World:
    """The ranks of one size.

    Args:
        task: What they are given, and what has to come out.
        size: How many there are.
        methods: Those of `me` that the puzzle allows.
        operations: What `me.compute` may carry out.
        generator: For rounding.
        answer: Called with a rank and the new tensors, or None, when its call is carried out or
            its part is over.
        most_ticks: How many ticks a rank may be busy at most.
    """

    def __init__(
        self,
        task: PuzzleTask,
        size: int,
        methods: Collection[str],
        operations: Collection[str],
        generator: np.random.Generator,
        answer: Callable[[int, list[Described] | None], None],
        most_ticks: float = math.inf,
    ) -> None:
        self.size = size
        self.seats = [Seat() for _ in range(size)]
        self._task = task
        self._methods = methods
        self._answer = answer
        self._most_ticks = most_ticks
        self._left = False
        self._clocks = Clocks(size)
        self._tensors = Tensors(size)
        about = Rounding(generator)
        self._local = Local(self._clocks, self._tensors, operations, about)
        self._exchange = Exchange(size, self._clocks, self._tensors, about)

    def given(self, rank: int) -> dict[str, Gift]:
        """Make the tensors that a rank begins with."""
        told = {}
        for name, values in self._task.given[rank].items():
            keys = list(values) if isinstance(values, dict) else None
            arrays = values.values() if isinstance(values, dict) else values
            single = isinstance(values, np.ndarray)
            made = [
                self._tensors.new(rank, f"given {name}", 0.0, values=array).described()
                for array in ([values] if isinstance(values, np.ndarray) else arrays)
            ]
            told[name] = Gift(made, keys, single)
        return told

    # What ranks say.

    def on_call(self, rank: int, call: Call) -> None:
        """A rank calls a method of `me`."""
        seat = self.seats[rank]
        if seat.state in ("failed", "returned"):
            self._answer(rank, None)
            return
        if seat.state == "waiting":
            self.fail(rank, "me was called here while a call in a different thread was under way.")
            return
        seat.state, seat.call, seat.calls = "waiting", call, seat.calls + 1
        now = self._clocks.ranks[rank].now.time
        self._tensors.drop(rank, call.dropped, now)
        if seat.calls > MOST_CALLS:
            self.fail(rank, f"It has made {MOST_CALLS:,} calls. Is there a loop that never ends?")
        elif now > self._most_ticks:
            self.fail(
                rank,
                f"It is at tick {now:,.0f}, more than {MOST_TIMES} times the budget. Is there a "
                "loop that never ends?",
            )
        self._go_on()

    def on_return(self, rank: int) -> None:
        """The solver's function has returned in a rank."""
        if self.seats[rank].state == "running":
            self.seats[rank].state = "returned"
            self._go_on()

    def leave(self, rank: int) -> None:
        """The process of a rank has ended. When one has, the others are stopped."""
        seat = self.seats[rank]
        if seat.state in ("failed", "returned"):
            return
        if self._left:
            self.fail(rank, "This rank was stopped, since another one had left.")
            seat.when = math.inf
        else:
            self.fail(rank, "The rank has left: its process ended before solve returned.")
        self._left = True

    def fail(self, rank: int, why: str, place: SolverLine | None = None) -> None:
        """Something is wrong in a rank. The others go on as far as they can without it."""
        seat = self.seats[rank]
        if seat.state in ("failed", "returned"):
            return
        if place is None and seat.call is not None:
            place = seat.call.place
        seat.state = "failed"
        why = f", {place}\n{why}" if place else f": {why}"
        seat.why = _shortened(why)
        seat.when = self._clocks.ranks[rank].now.time
        self._answer(rank, None)

    @property
    def over(self) -> bool:
        """Whether no rank can go on."""
        return all(seat.state != "running" for seat in self.seats)

    def running(self) -> list[int]:
        """The ranks that are in the solver's code."""
        return [rank for rank, seat in enumerate(self.seats) if seat.state == "running"]

    # Carrying out.

    def _go_on(self) -> None:
        """Carry out the calls that wait, as far as that is possible."""
        again = True
        while again:
            again = False
            for rank, seat in enumerate(self.seats):
                if seat.state == "waiting" and seat.call is not None:
                    again = self._try(rank, seat, seat.call) or again

    def _try(self, rank: int, seat: Seat, call: Call) -> bool:
        """Carry out a call if all that it needs is there; say whether it was, or has failed."""
        try:
            self._check(call)
            operands = [self._tensors.get(rank, number) for number in call.tensors]
            if call.kind == "shape":
                if operands[0].shape is None:
                    return False
                made = [operands[0]]
            elif call.kind == "keep":
                made = self._keep(seat, call, operands)
            elif call.kind == "receive":
                made = [self._exchange.receive(rank, call)]
            elif any(tensor.ready is None for tensor in operands):
                return False
            else:
                made = self._carry_out(rank, call, operands)
        except WrongCallError as error:
            self.fail(rank, str(error))
            return True
        except Exception as error:  # noqa: BLE001 - told to the solver; the other ranks go on
            self.fail(rank, f"{call.kind} cannot be carried out: {error!r:.200}")
            return True
        if self._too_much(rank, seat, made):
            return True
        seat.state = "running"
        self._answer(rank, [tensor.described() for tensor in made])
        return True

    def _too_much(self, rank: int, seat: Seat, made: list[HeldTensor]) -> bool:
        """Fail a rank that makes so much that the memory of this process would not do."""
        seat.made += len(made)
        seat.grown += sum(tensor.size for tensor in made)
        if seat.made > MOST_TENSORS:
            self.fail(rank, f"It has made {seat.made:,} tensors; {MOST_TENSORS:,} are allowed.")
        elif seat.grown > MOST_HELD:
            seat.grown = self._tensors.held_by(rank, self._exchange.leaving(rank))
            if seat.grown > MOST_HELD:
                self.fail(
                    rank, f"It holds {seat.grown:,} bytes; a check has room for {MOST_HELD:,}."
                )
        return seat.state == "failed"

    def _check(self, call: Call) -> None:
        """Refuse what is no method of this puzzle's, or has too few tensors or too many."""
        if call.kind not in self._methods and call.kind not in _ALWAYS:
            raise WrongCallError(f"This puzzle does not allow me.{call.kind}.")
        given, wanted = len(call.tensors), _OPERANDS.get(call.kind)
        if wanted is not None and given != wanted:
            raise WrongCallError(
                f"me.{call.kind} takes {wanted} tensor{'s' * (wanted != 1)}, not {given}."
            )

    def _carry_out(self, rank: int, call: Call, operands: list[HeldTensor]) -> list[HeldTensor]:
        if len(set(call.tensors)) < len(operands) and call.kind not in ("compute", "add"):
            raise WrongCallError(f"{call.kind}: the same tensor is given twice.")
        clock = self._clocks.ranks[rank]
        if call.kind == "free":
            for tensor in operands:
                self._tensors.release(tensor, clock.now.time, f"it was freed ({call.place.short})")
            return []
        clock.wait(latest(clock.now, *(tensor.there()[1] for tensor in operands)), call.place)
        match call.kind:
            case "compute":
                return self._local.compute(rank, call, operands)
            case "add":
                return [self._local.add(rank, call, operands)]
            case "split":
                return self._local.split(rank, call, operands[0])
            case "join":
                return [self._local.join(rank, call, operands)]
            case "send":
                self._exchange.send(rank, call, operands[0])
                return []
        return self._exchange.collective(rank, call, operands)

    def _keep(self, seat: Seat, call: Call, operands: list[HeldTensor]) -> list[HeldTensor]:
        wanted = self._task.expected[0]
        if call.name not in wanted:
            raise WrongCallError(
                f"keep: this puzzle wants no {call.name!r}. It wants: {', '.join(wanted)}."
            )
        if call.name in seat.kept:
            raise WrongCallError(
                f"keep: {call.name!r} was kept before, in "
                f"{seat.kept[call.name][0].short}. Keep each result once."
            )
        for tensor in operands:
            tensor.storage.kept = True
        seat.kept[call.name] = (call.place, operands)
        return []

    # The end.

    def outcome(self) -> Outcome:
        """How the run has come to its end, once it is over."""
        wrong = first_failure(self.seats) or stuck(
            self._exchange, self._clocks, self._tensors, self.seats
        )
        over = not self._exchange.open_meetings
        if not wrong:
            wrong = verdict(self._task, [seat.kept for seat in self.seats])
        time, path = self._clocks.path()
        peaks = [memory.peak() for memory in self._tensors.memories]
        fullest = max(range(self.size), key=lambda rank: peaks[rank][0])
        held = self._tensors.memories[fullest].held_at(peaks[fullest][1])
        finished = over and all(seat.state == "returned" for seat in self.seats)
        return Outcome(
            size=self.size,
            wrong=_shortened(wrong),
            score=Score(time, peaks[fullest][0], max(self._exchange.sent)) if finished else None,
            spans=[
                sorted(clock.spans, key=lambda s: (s.start, s.lane, s.end, s.what))
                for clock in self._clocks.ranks
            ],
            held=[memory.curve() for memory in self._tensors.memories],
            path=path,
            stuck={
                rank: self._clocks.ranks[rank].now.time
                for rank, seat in enumerate(self.seats)
                if seat.state == "waiting"
            },
            unsized=[memory.unsized for memory in self._tensors.memories],
            fullest=f"rank {fullest} at {peaks[fullest][1]:.4g} ticks: {held}",
        )


def _shortened(words: str) -> str:
    """Words that fit into a message, whatever a rank has called itself, its file or its line."""
    return words if len(words) <= _MOST_WORDS else f"{words[:_MOST_WORDS]} ..."
