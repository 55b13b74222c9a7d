"""What a solution is called with in each rank: `me`, and the tensors that it gives."""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, SupportsIndex

from distlab.errors import did_you_mean, of_type


class Tensor:
    """A tensor of this rank: a shape and a name, but no numbers for Python to compute with.

    What no variable holds any more is free.

    Args:
        held: What the run knows of it: `what` it is, and its `shape`, or None as long as that is
            not known.
        call: Carries out calls: here `shape`, to wait for it.
        dropped: Called with `held` when nobody has the tensor any more.
    """

    __slots__ = ("_call", "_dropped", "_held")

    def __init__(self, held: Any, call: "Call", dropped: Callable[[Any], object]) -> None:
        self._held, self._call, self._dropped = held, call, dropped

    def __del__(self) -> None:
        self._dropped(self._held)

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns. Of what is received: once it is there."""
        if self._held.shape is None:
            self._call("shape", (self,), None)
        shape: tuple[int, ...] = self._held.shape
        return shape

    def __repr__(self) -> str:
        shape = self._held.shape
        words = "on its way" if shape is None else f"shape {shape}"
        return f"<tensor from {self._held.what}, {words}>"

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(
            f"{self!r} is one handle and holds no numbers: use me.add, me.split, me.join or "
            "me.compute."
        )

    __add__ = __radd__ = __iadd__ = __sub__ = __mul__ = __rmul__ = __matmul__ = __truediv__ = (
        _refuse
    )
    __getitem__ = __setitem__ = __float__ = __int__ = __array__ = _refuse
    __iter__ = __copy__ = __deepcopy__ = _refuse


Call = Callable[[str, Sequence[Tensor], Any], list[Tensor]]
"""Carries out the calls of one rank, in a check or between processes.

It takes which call, its tensors, and what else it was given: the name of an operation or a result,
the other rank, the parts of a split, or the group of a collective.
"""


class Me:
    """A rank, as a solution sees it.

    What the puzzle gives stands beside these as attributes: `me.weights`, say. `receive` and the
    collectives return at once, and the bytes come while the rank computes; whatever is called with
    such a tensor waits until it is there. `group` names the ranks that take part in a collective,
    if not all do.

    Attributes:
        rank: Which rank this is, from 0.
        size: How many ranks there are.

    Example:
        A ring: every rank sends to the next.

        >>> def solve(me):
        ...     me.send((me.rank + 1) % me.size, me.gradient)
        ...     me.keep("sum", me.receive((me.rank - 1) % me.size))
    """

    def __init__(self, caller: Call, rank: int, size: int, given: Mapping[str, Any]) -> None:
        self.rank = rank
        self.size = size
        self._caller = caller
        vars(self).update(given)

    def __getattr__(self, name: str) -> NoReturn:
        offered = [each for each in (*vars(self), *vars(Me)) if not each.startswith("_")]
        words = did_you_mean(name, offered) or f" It has: {', '.join(offered)}."
        raise AttributeError(f"me has no attribute {name!r}.{words}", name=name, obj=self)

    def compute(self, operation: str, *tensors: Tensor) -> Any:
        """Carry out an operation of the puzzle: gives a tensor, or a tuple of several."""
        made = self._call("compute", tensors, operation)
        return made[0] if len(made) == 1 else tuple(made)

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        """Add two tensors, 1 FLOP per number. The sum takes the place of the first."""
        return self._call("add", (a, b))[0]

    def split(self, x: Tensor, parts: int | Sequence[int]) -> list[Tensor]:
        """Divide a tensor by rows: into equal parts, or by a list of row counts. Gives a list.

        The parts take the place of the tensor. That takes no time.
        """
        if isinstance(parts, SupportsIndex):
            return self._call("split", (x,), _whole("split", parts, "whole numbers"))
        if not isinstance(parts, list | tuple):
            raise TypeError(
                f"me.split takes a number of parts, or a list of rows, not {of_type(parts)}."
            )
        return self._call("split", (x,), [_whole("split", n, "whole numbers") for n in parts])

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """Make one tensor of a list, one below the other. It takes their place, and no time."""
        return self._call("join", _several("join", parts))[0]

    def send(self, to: int, x: Tensor) -> None:
        """Begin to send a tensor to another rank. It stays yours.

        Its bytes count as held until they have arrived.
        """
        self._call("send", (x,), _whole("send", to))

    def receive(self, source: int) -> Tensor:
        """Begin to receive the next tensor that another rank sends to this one.

        The tensor is on its way; its bytes count as held from now on.
        """
        return self._call("receive", (), _whole("receive", source))[0]

    def all_reduce(self, x: Tensor, group: Sequence[int] | None = None) -> Tensor:
        """Begin to sum a tensor over ranks. The sum takes its place."""
        return self._call("all_reduce", (x,), _ranks("all_reduce", group))[0]

    def reduce_scatter(self, x: Tensor, group: Sequence[int] | None = None) -> Tensor:
        """Begin to sum a tensor over ranks; each gets an equal part of the rows."""
        return self._call("reduce_scatter", (x,), _ranks("reduce_scatter", group))[0]

    def all_gather(self, x: Tensor, group: Sequence[int] | None = None) -> Tensor:
        """Begin to collect the tensors of all ranks, one below the other, by rank."""
        return self._call("all_gather", (x,), _ranks("all_gather", group))[0]

    def all_to_all(
        self, parts: Sequence[Tensor], group: Sequence[int] | None = None
    ) -> list[Tensor]:
        """Begin to send parts[r] to each rank r. Gives a list of what each rank sent here.

        The parts are in the order of the ranks, as what comes is. They are gone afterwards.
        """
        several = _several("all_to_all", parts)
        return self._call("all_to_all", several, _ranks("all_to_all", group))

    def keep(self, name: str, tensors: Tensor | Sequence[Tensor]) -> None:
        """Hand in a result, a tensor or a list of them. It counts as held to the end."""
        several = (tensors,) if isinstance(tensors, Tensor) else _several("keep", tensors)
        self._call("keep", several, name)

    def free(self, *x: Tensor) -> None:
        """Let go of tensors, whatever variables still hold them."""
        self._call("free", x)

    def _call(self, kind: str, tensors: Sequence[Tensor], detail: Any = None) -> list[Tensor]:
        for tensor in tensors:
            if not isinstance(tensor, Tensor):
                raise TypeError(f"me.{kind} takes tensors, not {of_type(tensor)}.")
        return self._caller(kind, tensors, detail)


def _whole(kind: str, value: object, what: str = "ranks as whole numbers") -> int:
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise TypeError(f"me.{kind} takes {what}, not {of_type(value)}.")
    return operator.index(value)


def _ranks(kind: str, group: Sequence[int] | None) -> list[int] | None:
    return None if group is None else [_whole(kind, rank) for rank in group]


def _several(kind: str, tensors: object) -> Sequence[Tensor]:
    if not isinstance(tensors, list | tuple) or not tensors:
        raise TypeError(f"me.{kind} takes a list of tensors, not {of_type(tensors)}.")
    return tensors
