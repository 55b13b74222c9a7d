"""One run of a solution: all ranks of one size, what they call, and how it ends.

What happens is settled by the order of each rank's calls alone, never by which rank is faster in
real time: a call that can't be carried out yet waits, and when no rank can go on the run is over.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from distlab.puzzles.arithmetic import OPERATIONS, Rounding, WrongCallError
from distlab.puzzles.clock import Clocks, latest
from distlab.puzzles.exchange import Exchange
from distlab.puzzles.messages import Call, Described, Gift, Outcome, Place, Score
from distlab.puzzles.tasks import Task, verdict
from distlab.puzzles.tensors import Tensor, Tensors

MOST_CALLS = 20_000
"""What a rank may call at most: a loop that never ends does not run for ever."""


@dataclass
class Seat:
    """One rank as the keeper sees it.

    Attributes:
        state: `running` in the solver's code, `waiting` in a call, `returned` or `failed`.
        call: The call that it waits in, or else its last.
        why: What was wrong, if it has failed.
        when: The logical time of that.
    """

    state: str = "running"
    call: Call | None = None
    why: str = ""
    when: float = 0.0
    calls: int = 0
    kept: dict[str, tuple[Place, list[Tensor]]] = field(default_factory=dict)


class World:
    """The ranks of one size.

    Args:
        task: What they are given, and what has to come out.
        size: How many there are.
        allowed: The methods of `me` and the operations that the puzzle allows.
        generator: For rounding.
        answer: Called with a rank and the new tensors, or None, when its call is carried out or
            its part is over.
    """

    def __init__(
        self,
        task: Task,
        size: int,
        allowed: frozenset[str],
        generator: np.random.Generator,
        answer: Callable[[int, list[Described] | None], None],
    ) -> None:
        self.size = size
        self.seats = [Seat() for _ in range(size)]
        self._task = task
        self._allowed = allowed
        self._answer = answer
        self._round = Rounding(generator)
        self._clocks = Clocks(size)
        self._tensors = Tensors(size)
        self._exchange = Exchange(size, self._clocks, self._tensors, self._round)

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
        seat.state, seat.call, seat.calls = "waiting", call, seat.calls + 1
        self._tensors.drop(rank, call.dropped, self._clocks.ranks[rank].now.time)
        if seat.calls > MOST_CALLS:
            self.fail(rank, f"It has made {MOST_CALLS:,} calls. Is there a loop that never ends?")
        self._go_on()

    def on_return(self, rank: int) -> None:
        """The solver's function has returned in a rank."""
        if self.seats[rank].state == "running":
            self.seats[rank].state = "returned"
            self._go_on()

    def fail(self, rank: int, why: str, place: Place | None = None) -> None:
        """Something is wrong in a rank. The others go on as far as they can without it."""
        seat = self.seats[rank]
        if seat.state in ("failed", "returned"):
            return
        if place is None and seat.call is not None:
            place = seat.call.place
        seat.state = "failed"
        seat.why = f"{place}\n{why}" if place else why
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
            if call.kind not in self._allowed and call.kind not in ("keep", "free", "shape"):
                raise WrongCallError(f"This puzzle does not allow me.{call.kind}.")
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
        seat.state = "running"
        self._answer(rank, [tensor.described() for tensor in made])
        return True

    def _carry_out(self, rank: int, call: Call, operands: list[Tensor]) -> list[Tensor]:
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
                return self._compute(rank, call, operands)
            case "add":
                return [self._add(rank, call, operands)]
            case "split":
                return self._split(rank, call, operands[0])
            case "join":
                return [self._join(rank, call, operands)]
            case "send":
                self._exchange.send(rank, call, operands[0])
                return []
        return self._exchange.collective(rank, call, operands)

    def _results(
        self,
        rank: int,
        call: Call,
        what: str,
        arrays: list[np.ndarray],
        reused: list[Tensor],
    ) -> list[Tensor]:
        """Make tensors, some of which take the places of others, at the time that it is now."""
        now = self._clocks.ranks[rank].now
        for tensor in reused:
            self._tensors.release(
                tensor, now.time, f"{what} ({call.place.short}) has taken its place"
            )
        return [
            self._tensors.new(rank, what, now.time, call.place, values, now) for values in arrays
        ]

    def _compute(self, rank: int, call: Call, operands: list[Tensor]) -> list[Tensor]:
        if call.name not in self._allowed:
            offered = ", ".join(name for name in OPERATIONS if name in self._allowed)
            raise WrongCallError(
                f"This puzzle has no operation {call.name!r}. It has: {offered or 'none'}."
            )
        operation = OPERATIONS[call.name]
        lengths = operation.lengths([tensor.shape or () for tensor in operands])
        reused = operands[: operation.reused]
        if len(set(reused)) < len(reused) or set(reused) & set(operands[operation.reused :]):
            raise WrongCallError(f"{operation}: the same tensor is given twice.")
        before = self._clocks.ranks[rank].now
        with np.errstate(all="ignore"):
            arrays = operation.apply([tensor.there()[0] for tensor in operands], self._round)
        made = self._results(rank, call, call.name, arrays, reused)
        done = self._clocks.ranks[rank].compute(
            call.name, operation.flops(lengths), before, call.place
        )
        for tensor in made:
            tensor.ready = done
        return made

    def _add(self, rank: int, call: Call, operands: list[Tensor]) -> Tensor:
        one, other = operands
        if one.shape != other.shape:
            raise WrongCallError(
                f"add: the tensors have the shapes {one.shape} and {other.shape}; "
                "give two of the same shape."
            )
        if one is other:
            raise WrongCallError("add: the same tensor is given twice.")
        clock = self._clocks.ranks[rank]
        with np.errstate(all="ignore"):
            total = self._round(one.there()[0] + other.there()[0])
        made = self._results(rank, call, "add", [total], [one])
        made[0].ready = clock.compute("add", total[0].size, clock.now, call.place)
        return made[0]

    def _split(self, rank: int, call: Call, tensor: Tensor) -> list[Tensor]:
        rows = (tensor.shape or (0,))[0]
        sizes = call.sizes
        if len(sizes) == 1:
            if sizes[0] < 1 or rows % sizes[0]:
                raise WrongCallError(
                    f"split: {rows} rows do not divide into {sizes[0]} equal parts."
                )
            sizes = [rows // sizes[0]] * sizes[0]
        elif sum(sizes) != rows or min(sizes, default=-1) < 0:
            raise WrongCallError(
                f"split: parts of {sizes} rows are not the {rows} rows of the tensor."
            )
        arrays = np.split(tensor.there()[0], np.cumsum(sizes)[:-1], axis=1)
        return self._results(rank, call, f"part of {tensor.what}", arrays, [tensor])

    def _join(self, rank: int, call: Call, operands: list[Tensor]) -> Tensor:
        shapes = [tensor.shape or () for tensor in operands]
        if len({shape[1:] for shape in shapes}) != 1:
            raise WrongCallError(
                f"join: the tensors have the shapes {', '.join(map(str, shapes))}; "
                "give tensors that differ in the number of rows alone."
            )
        whole = np.concatenate([tensor.there()[0] for tensor in operands], axis=1)
        return self._results(rank, call, "join", [whole], operands)[0]

    def _keep(self, seat: Seat, call: Call, operands: list[Tensor]) -> list[Tensor]:
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
        wrong = self._first_failure() or self._exchange.stuck(self.seats)
        if not wrong:
            wrong = verdict(self._task, [seat.kept for seat in self.seats])
        time, path = self._clocks.path()
        peaks = [memory.peak() for memory in self._tensors.memories]
        fullest = max(range(self.size), key=lambda rank: peaks[rank][0])
        held = self._tensors.memories[fullest].held_at(peaks[fullest][1])
        finished = all(seat.state == "returned" for seat in self.seats)
        return Outcome(
            size=self.size,
            wrong=wrong,
            score=Score(time, peaks[fullest][0], max(self._exchange.sent)) if finished else None,
            spans=[clock.spans for clock in self._clocks.ranks],
            held=[memory.curve() for memory in self._tensors.memories],
            path=path,
            fullest=f"rank {fullest} at {peaks[fullest][1]:.4g} ticks: {held}",
        )

    def _first_failure(self) -> str:
        """What was wrong first in logical time, and in which ranks."""
        failed = [
            (seat.when, rank) for rank, seat in enumerate(self.seats) if seat.state == "failed"
        ]
        if not failed:
            return ""
        first = self.seats[min(failed)[1]].why
        alike = [
            rank
            for _, rank in sorted(failed, key=lambda one: one[1])
            if self.seats[rank].why == first
        ]
        if len(alike) == self.size > 1:
            who = "Every rank"
        else:
            who = f"Rank{'s' * (len(alike) > 1)} {', '.join(map(str, alike))}"
        return f"{who}, {first}"


def counted(words: list[str]) -> str:
    """Words and how often each occurs, most frequent first."""
    return ", ".join(f"{count} x {word}" for word, count in Counter(words).most_common())
