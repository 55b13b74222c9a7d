"""What a solver's function is called with in a rank: `me`."""

import difflib
import gc
import itertools
import operator
import os
import traceback
import types
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, SupportsIndex

from distlab.protocol import functions
from distlab.puzzles.handles import Tensor
from distlab.puzzles.lines import MOST_GIVEN, CheckOverError, Line, kind_of, place_at
from distlab.puzzles.messages import Failed, SolveReturned, Welcome
from distlab.puzzles.watching import SilenceWatch, is_solvers

_MOST_NUMBER = 10**9
_MOST_NAME = 200
_MOST_WORDS = 4_000


class Me:
    """A rank, as the solver's function sees it.

    What the puzzle gives stands beside these as attributes: `me.weights`, say. `receive` and the
    collectives return at once, and the bytes come while the rank computes; whatever is called with
    such a tensor waits until it is there.

    Attributes:
        rank: Which rank this is, from 0.
        size: How many ranks there are.

    Example:
        A ring: every rank sends to the next.

        >>> def solve(me):
        ...     me.send((me.rank + 1) % me.size, me.gradient)
        ...     me.keep("sum", me.receive((me.rank - 1) % me.size))
    """

    def __init__(self, line: Line, rank: int, welcome: Welcome) -> None:
        self.rank = rank
        self.size = welcome.size
        self._line = line
        self._given = (*welcome.gifts, *welcome.facts)
        for name, value in welcome.facts.items():
            setattr(self, name, value)
        for name, gift in welcome.gifts.items():
            setattr(self, name, line.handles(gift, f"me.{name}"))

    def __repr__(self) -> str:
        return f"<rank {self.rank} of {self.size}>"

    def __getattr__(self, name: str) -> NoReturn:
        given = self.__dict__.get("_given", ())
        if name in given:
            words = f"me.{name} is not there any more: it was deleted."
        else:
            calls = [each for each in vars(Me) if not each.startswith("_")]
            near = difflib.get_close_matches(name, [*given, *calls], 1)
            offered = ", ".join(f"me.{each}" for each in given)
            words = f"me has no attribute {name!r}. " + (
                f"Did you mean me.{near[0]}?" if near else f"This puzzle gives: {offered}."
            )
        raise AttributeError(words, name=name, obj=self)

    def __setattr__(self, name: str, value: object) -> None:
        if name in ("rank", "size") and name in self.__dict__:
            raise AttributeError(f"me.{name} cannot be changed.")
        super().__setattr__(name, value)

    def compute(self, operation: str, *tensors: Tensor) -> Any:
        """Carry out an operation of the puzzle.

        Args:
            operation: Its name.
            *tensors: What it takes.

        Returns:
            A tensor, or a tuple of tensors if it gives several.
        """
        operation = _name("compute", "an operation", operation)
        made = self._call("compute", tensors, name=operation, what=operation)
        return made[0] if len(made) == 1 else tuple(made)

    def add(self, tensor: Tensor, other: Tensor) -> Tensor:
        """Add two tensors, 1 FLOP per number. The sum takes the place of the first.

        Returns:
            The sum.
        """
        return self._call("add", (tensor, other))[0]

    def split(self, tensor: Tensor, parts: int | Sequence[int]) -> list[Tensor]:
        """Divide a tensor by rows: into equal parts, or by a list of row counts. Gives a list.

        Args:
            tensor: The tensor.
            parts: How many equal parts, or the rows of each part.

        Returns:
            The parts, which take the place of the tensor. That takes no time.
        """
        single = isinstance(parts, SupportsIndex)
        if not isinstance(parts, SupportsIndex | Iterable):
            raise TypeError(
                f"me.split takes a number of parts, or a list of rows, not {kind_of(parts)}."
            )
        sizes = [
            _whole("split", size, "whole numbers")
            for size in (
                [parts]
                if isinstance(parts, SupportsIndex)
                else itertools.islice(parts, MOST_GIVEN + 1)
            )
        ]
        if not single and len(sizes) == 1:
            return self._call("split", (tensor,), sizes=[*sizes, 0])[:1]
        return self._call("split", (tensor,), sizes=sizes)

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """Make one tensor of a list, one below the other. It takes their place.

        Returns:
            One tensor with the rows of all. That takes no time.
        """
        return self._call("join", _several("join", parts))[0]

    def send(self, to: int, tensor: Tensor) -> None:
        """Begin to send a tensor to another rank. It stays yours.

        Args:
            to: The other rank.
            tensor: What to send; its bytes count as held until they have arrived.
        """
        self._call("send", (tensor,), number=_whole("send", to))

    def receive(self, source: int) -> Tensor:
        """Begin to receive the next tensor that another rank sends to this one.

        Args:
            source: The other rank.

        Returns:
            A tensor that is on its way; its bytes count as held from now on.
        """
        return self._call("receive", (), number=_whole("receive", source))[0]

    def all_reduce(self, tensor: Tensor, group: Sequence[int] | None = None) -> Tensor:
        """Begin to sum a tensor over ranks. The sum takes its place.

        Args:
            tensor: This rank's summand.
            group: The ranks that take part; all, if not given.

        Returns:
            The sum, on its way.
        """
        return self._call("all_reduce", (tensor,), group=group)[0]

    def reduce_scatter(self, tensor: Tensor, group: Sequence[int] | None = None) -> Tensor:
        """Begin to sum a tensor over ranks; each gets an equal part of the rows.

        Args:
            tensor: This rank's summand.
            group: The ranks that take part; all, if not given.

        Returns:
            This rank's part of the sum, on its way.
        """
        return self._call("reduce_scatter", (tensor,), group=group)[0]

    def all_gather(self, tensor: Tensor, group: Sequence[int] | None = None) -> Tensor:
        """Begin to collect the tensors of all ranks, one below the other, by rank.

        Args:
            tensor: This rank's part; all have the same shape.
            group: The ranks that take part; all, if not given.

        Returns:
            All parts, one below the other, on their way.
        """
        return self._call("all_gather", (tensor,), group=group)[0]

    def all_to_all(
        self, parts: Sequence[Tensor], group: Sequence[int] | None = None
    ) -> list[Tensor]:
        """Begin to send parts[r] to each rank r. Gives a list of what each rank sent here.

        Args:
            parts: One for each rank, in the order of the ranks. They are gone afterwards.
            group: The ranks that take part; all, if not given.

        Returns:
            What each rank has sent to this one, on its way.
        """
        return self._call("all_to_all", _several("all_to_all", parts), group=group)

    def keep(self, name: str, tensors: Tensor | Sequence[Tensor] | None = None) -> None:
        """Hand in a result. It counts as held to the end.

        Args:
            name: What the puzzle calls it.
            tensors: A tensor, or a list of tensors.
        """
        name = _name("keep", "a result", name)
        if tensors is None:
            raise TypeError(f"me.keep takes a name and a tensor or a list: me.keep({name!r}, ...).")
        several = (tensors,) if isinstance(tensors, Tensor) else _several("keep", tensors)
        self._call("keep", several, name=name)

    def free(self, *tensors: Tensor) -> None:
        """Let go of tensors, whatever variables still hold them."""
        self._call("free", tensors)

    def _call(
        self,
        kind: str,
        tensors: Sequence[Tensor],
        *,
        name: str = "",
        number: int = 0,
        sizes: Sequence[int] = (),
        group: Sequence[int] | None = None,
        what: str = "",
    ) -> list[Tensor]:
        if group is not None:
            if isinstance(group, str | Tensor) or not isinstance(group, Iterable):
                raise TypeError(f"me.{kind} takes group as a list of ranks, not {kind_of(group)}.")
            most = self.size + 1  # one too many is told by the keeper
            group = [_whole(kind, rank) for rank in itertools.islice(group, most)]
        return self._line.call(kind, tensors, name, number, list(sizes), group, what or kind)


def _whole(kind: str, value: object, what: str = "ranks as whole numbers") -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"me.{kind} takes {what}, not {kind_of(value)}.")
    number = operator.index(value)
    if abs(number) >= _MOST_NUMBER:
        shown = f"{number:.3e}" if abs(number) < 10**300 else "one of more than 300"
        raise ValueError(f"me.{kind} takes numbers of at most nine digits, not {shown}.")
    return number


def _name(kind: str, of: str, name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"me.{kind} takes the name of {of} first, not {kind_of(name)}.")
    if len(name) > _MOST_NAME:
        raise ValueError(f"me.{kind} takes the name of {of} first, not {len(name):,} letters.")
    return name


def _several(kind: str, tensors: object) -> Sequence[Tensor]:
    if isinstance(tensors, list | tuple) and not tensors:
        raise TypeError(f"me.{kind} takes a list of tensors, not an empty one.")
    if not isinstance(tensors, list | tuple):
        raise TypeError(f"me.{kind} takes a list of tensors, not {kind_of(tensors)}.")
    return tensors


def run(port: int, token: str) -> None:
    """Be one rank of a check.

    Args:
        port: Where the keeper listens.
        token: What admits the ranks of this size.
    """
    rank = int(os.environ["RANK"])
    line = Line(port, token, rank)
    try:
        # No line of the solver's has run yet, and all seats are taken. What exists now is none of
        # the solver's, so that looking for garbage before each call takes no time.
        gc.freeze()
        welcome = line.welcome()
        watch = SilenceWatch(welcome.patience, line.say)
        line.waits, line.goes_on = watch.pause, watch.begin
        watch.begin()
        solve = functions.loads(welcome.solution)[0]
        watch.begin()  # what it took to load it is not the solver's
        solve(Me(line, rank, welcome))
        line.say(SolveReturned())
    except CheckOverError:
        pass
    except BaseException as error:  # noqa: BLE001 - all of them are told
        line.say(_told(error))


def _told(error: BaseException) -> Failed:
    """An error of the solver's function, with the innermost line that is the solver's own."""
    trace = error.__traceback__
    found: types.TracebackType | None = None
    while trace is not None:
        if is_solvers(trace.tb_frame.f_code.co_filename):
            found = trace
        trace = trace.tb_next
    words = _sendable("".join(traceback.format_exception_only(error)).strip())
    place = None
    if found is not None:
        place = place_at(found.tb_frame.f_code.co_filename, found.tb_lineno)
    return Failed(words, place)


def _sendable(text: str) -> str:
    """A text without what has no encoding, shortened in the middle if it is very long."""
    text = text.encode(errors="replace").decode()
    half = _MOST_WORDS // 2
    return text if len(text) <= _MOST_WORDS else f"{text[:half]} ... {text[-half:]}"
