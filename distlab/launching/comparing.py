"""Whether a function gives on several ranks, or devices, what it gives on one."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from distlab.errors import brief, check_count, of_type
from distlab.launching.launch import Options, run
from distlab.launching.leaves import Difference, difference, gathered
from distlab.tables import aligned

_TOGETHER = {
    "the ranks' parts, joined, are right": "gather them, if every rank should have all",
    "the ranks' mean is right": "average it, if every rank should have it",
    "the ranks' sum is right": "add it up, if every rank should have it",
}
"""Words that explain a difference, which then may be no reason to look further, and a cure."""
_PARTS, _MEAN, _SUM = _TOGETHER
_DIFFER = "The ranks differ from each other: average what should be equal, such as gradients"


@dataclass(frozen=True, repr=False)
class Comparison:
    """What `compare` has found: `differences`, in the order of the tree. Its text is a table."""

    first: str
    differences: list[Difference]

    @property
    def same(self) -> bool:
        """Whether `raise_if_different` would raise nothing."""
        return not self.wrong()

    def wrong(self, rtol: float = 1e-4, atol: float = 1e-6) -> list[Difference]:
        """Return the differences larger than `atol + rtol * scale`."""
        return [each for each in self.differences if _is_wrong(each, rtol, atol)]

    def raise_if_different(self, rtol: float = 1e-4, atol: float = 1e-6) -> None:
        """Raise an AssertionError, with the table, if there are such."""
        if found := self.wrong(rtol, atol):
            raise AssertionError(self._told(found))

    def __repr__(self) -> str:
        return self._told(self.wrong())

    def _told(self, found: list[Difference]) -> str:
        head, shown = f"The same as on {self.first}.", found or self.differences
        if found:
            # a rank's own part is no fault, what all have alike and wrong is one
            first = min(found, key=lambda d: (d.words in _TOGETHER, d.where.startswith("rank ")))
            cure = _TOGETHER.get(first.words)
            why = f", {first.words}" * bool(first.words)
            why = f".\nBut {first.words}: {cure}" if cure else why
            if not first.words and first.where.startswith("rank "):
                why = f".\n{_DIFFER}"
            head = f"Not the same as on {self.first}: {first.leaf} on {first.where}{why}."
        rows: list[tuple[str, ...]] = [("what", "on", "seen", "right", "off by", "relative", "")]
        for leaf, where, seen, right, absolute, scale, words, place in shown[:12]:
            relative = f"{absolute / scale:.2g}" if scale else ""
            numbers = f"{seen:.5g}", f"{right:.5g}", f"{absolute:.2g}", relative
            only_words = words and absolute == math.inf  # no numbers, or another shape
            at = f"at {list(place)}" if found and place and not words else ""
            rows.append((leaf, where, *(("",) * 4 if only_words else numbers), words or at))
        if not any(row[2] for row in rows[1:]):  # no numbers
            rows = [(*row[:2], *row[6:]) for row in rows]
        more = f"\nand {len(shown) - 12} more" * (len(shown) > 12)
        return f"{head}\n{aligned(rows, right=range(2, len(rows[0]) - 1))}{more}"


def _is_wrong(found: Difference, rtol: float = 1e-4, atol: float = 1e-6) -> bool:
    return not found.absolute <= atol + rtol * found.scale


def _right_together(path: str, right: Any, ranks: Sequence[Mapping[str, Any]]) -> str:
    """Whether ranks that differ have what one has if they are taken together, in words."""
    own = [tree[path][0] for tree in ranks if path in tree]
    shapes = {each.shape for each in own}
    if right is None or len(own) < 2:
        return ""
    if right.ndim and all(shapes) and {shape[1:] for shape in shapes} == {right.shape[1:]}:
        joined = np.concatenate(own)
        # one after the other, or in turns, as `x[rank::size]` takes them
        places = [np.arange(len(each)) * len(own) + rank for rank, each in enumerate(own)]
        both = joined, joined[np.argsort(np.concatenate(places))]
        if any(not _is_wrong(difference(path, "", right, whole)) for whole in both):
            return _PARTS
    if shapes != {right.shape}:
        return ""
    for words, whole in ((_MEAN, sum(own) / len(own)), (_SUM, sum(own))):
        if not _is_wrong(difference(path, "", right, whole)):
            return words
    return ""


@brief
def compare(
    function: Callable[..., Any],
    nprocs: Sequence[int] | int = (1, 2, 4),
    framework: str | None = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    devices: Sequence[int] | int | None = None,
    **options: Unpack[Options],
) -> Comparison:
    """Run a function on several numbers of ranks, and compare what each rank returns.

    All are compared with rank 0 of the first number. Return `{"loss": ..., "gradient": ...,
    "weights": ...}`, with one gradient and the weights after three steps, to find most: in many a
    training that goes wrong the loss alone is right. Begin with constants, give every size the
    same global batch, and return what should be equal on all ranks, not a rank's own part. In the
    table a difference is `relative` to the largest number of its array.

    Args:
        function: What each rank calls. It returns a tree (dictionaries, lists, tuples) of numbers,
            arrays, tensors or variables of any framework. What is sharded over ranks is gathered
            after the call, so leave their group as it is; where devices hold copies of one array,
            or replicas of a TensorFlow strategy a value each, all of them are compared.
        nprocs: How many ranks, one size after the other; 4 alone means (1, 4).
        framework: As in `launch`.
        args: As in `launch`.
        kwargs: As in `launch`.
        devices: Compare one process on so many virtual devices instead (JAX, TensorFlow).
        options: `env`, `timeout` and the others of `launch`.

    Raises:
        ValueError: If there are fewer than two sizes, or the function returns nothing.
        RankError: If the function fails, or returns something that is not such a tree.
        Exception: All else that `run` raises.

    Example:
        >>> import os, distlab
        >>> def total():  # each rank adds up its part, and none asks the others
        ...     rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        ...     return {"sum": sum(range(rank, 9, size))}
        >>> distlab.compare(total, (1, 3))
        Not the same as on 1 rank: ['sum'] on rank 0 of 3.
        But the ranks' sum is right: add it up, if every rank should have it.
        what     on           seen  right  off by  relative
        ['sum']  rank 0 of 3     9     36      27      0.75  the ranks' sum is right
    """
    if not callable(function):
        raise TypeError(f"function is {of_type(function)}: give a function")
    name, sizes = ("nprocs", nprocs) if devices is None else ("devices", devices)
    if isinstance(sizes, int):
        sizes = sorted({1, sizes})
    if not isinstance(sizes, Sequence) or isinstance(sizes, str):
        raise TypeError(f"{name} is {of_type(sizes)}: give the sizes to compare, such as (1, 4)")
    if len(sizes) < 2:
        raise ValueError(f"{name}={sizes!r}: give two sizes or more, such as (1, 2)")

    @functools.wraps(function)
    def on_rank(*args: Any, **kwargs: Any) -> dict[str, Any]:
        return gathered(function(*args, **kwargs))

    found, noun = {}, "rank" if devices is None else "device"
    for size in sizes:
        check_count(size, name, 1)
        own: Options = options if devices is None else {**options, "devices_per_rank": size}
        ranks = run(on_rank, 1 if devices else size, framework, args, kwargs, quiet=True, **own)
        found[f"{size} {noun}{'s' * (size > 1)}"] = ranks
    first, (standard, *_) = next(iter(found.items()))
    paths = dict.fromkeys(path for ranks in found.values() for rank in ranks for path in rank)
    if not paths:
        raise ValueError("the function returns nothing to compare: return its loss, for one")
    differences = []
    for path in paths:
        right = standard.get(path, [None])[0]
        for where, ranks in found.items():
            told = {
                (rank, copy): difference(path, where, right, value)
                for rank, tree in enumerate(ranks)
                for copy, value in enumerate(tree.get(path, [None]))
            }
            (rank, copy), worst = max(told.items(), key=lambda each: each[1].absolute)
            differ = any(repr(each) != repr(worst) for each in told.values())
            # how many examples a rank has had, for one, is the same on all, but no cause
            count = not np.ndim(right) and np.floor(worst.right.real) == worst.right
            if differ or worst.absolute == math.inf or (worst.absolute and count):
                worst = worst._replace(words=_right_together(path, right, ranks) or worst.words)
            if differ:
                of = f"rank {rank} of {len(ranks)}" if len(ranks) > 1 else f"copy {copy} on {where}"
                worst = worst._replace(where=of)
            if where != first or worst.absolute:
                differences.append(worst)
    return Comparison(first, differences)
