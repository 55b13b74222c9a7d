"""Whether a function gives on several ranks, or devices, what it gives on one."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Unpack

from distlab.errors import check_count, of_type
from distlab.launching.launch import Options, run
from distlab.tables import aligned


class Difference(NamedTuple):
    """How far one leaf of a result is from what it should be, on the rank where it is farthest.

    `absolute` is the largest difference of two numbers, infinite where only one of them is a
    number, `scale` the largest number that there should be, `times` what one number explains, or
    words.
    """

    leaf: str
    where: str
    absolute: float
    scale: float
    times: str


class Comparison:
    """What `compare` has found: `differences`, in the order of the tree; a table as text."""

    def __init__(self, first: str, differences: list[Difference]) -> None:
        self.first, self.differences = first, differences

    @property
    def same(self) -> bool:
        """Whether `raise_if_different` would raise nothing."""
        return not self._beyond()

    def raise_if_different(self, rtol: float = 1e-4, atol: float = 1e-6) -> None:
        """Raise an AssertionError if a leaf differs by more than `atol + rtol * scale`."""
        if found := self._beyond(rtol, atol):
            raise AssertionError(self._told(found))

    def _beyond(self, rtol: float = 1e-4, atol: float = 1e-6) -> list[Difference]:
        return [each for each in self.differences if not each.absolute <= atol + rtol * each.scale]

    def __repr__(self) -> str:
        return self._told(self._beyond())

    def _told(self, found: list[Difference]) -> str:
        head, shown = f"The same as on {self.first}.", found or self.differences
        if found:
            head = f"Not the same as on {self.first}: {found[0].leaf} on {found[0].where}"
            head += f", {found[0].times}." if found[0].times else "."
        rows: list[tuple[str, ...]] = [("leaf", "on", "difference", "of at most", "")]
        rows += [(e.leaf, e.where, f"{e.absolute:.3g}", f"{e.scale:.3g}", e.times) for e in shown]
        more = f"\nand {len(rows) - 13} more" * (len(rows) > 13)
        return f"{head}\n{aligned(rows[:13], right=(2, 3))}{more}"


def compare(
    function: Callable[..., Any],
    nprocs: Sequence[int] = (1, 2, 4),
    framework: str | None = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    devices: Sequence[int] | None = None,
    **options: Unpack[Options],
) -> Comparison:
    """Run a function on several numbers of ranks, and compare what each rank returns.

    Each is compared with rank 0 of the first number. Most is found by `{"loss": ..., "gradient":
    ..., "weights": ...}`, with one gradient and the weights after three steps: the loss alone is
    right in many a training that goes wrong. Begin with constants, give every size the same global
    batch, and return what should be equal on all ranks, not a rank's own part.

    Args:
        function: What each rank calls. It returns a tree (dictionaries, lists, tuples) of numbers,
            arrays or tensors of any framework. DTensors, and JAX arrays of several processes, are
            gathered after the call, so leave their group as it is.
        nprocs: How many ranks, one size after the other.
        framework: As in `launch`.
        args: As in `launch`.
        kwargs: As in `launch`.
        options: `env`, `timeout` and the others of `launch`.
        devices: Compare one process on so many virtual devices instead (JAX, TensorFlow).

    Raises:
        TypeError: If the function returns something else.
        ValueError: If there are fewer than two sizes.
        Exception: All that `run` raises.

    Example:
        >>> import os, distlab
        >>> def total():  # each rank adds up its part
        ...     rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        ...     return {"sum": sum(range(rank, 9, size))}
        >>> distlab.compare(total, (1, 3))
        Not the same as on 1 rank: ['sum'] on rank 0 of 3, 0.25 times as large.
        leaf     on           difference  of at most
        ['sum']  rank 0 of 3          27          36  0.25 times as large
    """
    if not callable(function):
        raise TypeError(f"function is {of_type(function)}: give a function")
    name, sizes = ("nprocs", nprocs) if devices is None else ("devices", devices)
    if len(sizes) < 2:
        raise ValueError(f"{name}={sizes!r}: give two sizes or more, such as (1, 2)")

    @functools.wraps(function)
    def leaves(*args: Any, **kwargs: Any) -> dict[str, Any]:
        return dict(_leaves("", function(*args, **kwargs)))

    found, noun = {}, "rank" if devices is None else "device"
    for size in sizes:
        check_count(size, name, 1)
        own: Options = options if devices is None else {**options, "devices_per_rank": size}
        ranks = run(leaves, 1 if devices else size, framework, args, kwargs, quiet=True, **own)
        found[f"{size} {noun}{'s' * (size > 1)}"] = ranks
    first, (standard, *_) = next(iter(found.items()))
    paths = dict.fromkeys(path for ranks in found.values() for rank in ranks for path in rank)
    differences = []
    for path in paths:
        for where, ranks in found.items():
            all_ranks = [_difference(path, where, standard, rank) for rank in ranks]
            worst = max(all_ranks, key=lambda each: each.absolute)
            if any(each != worst for each in all_ranks):
                worst = worst._replace(where=f"rank {all_ranks.index(worst)} of {len(ranks)}")
            if where != first or worst.absolute:
                differences.append(worst)
    return Comparison(first, differences)


def _leaves(path: str, tree: Any) -> Iterator[tuple[str, Any]]:
    """The leaves of a tree by their paths, as arrays of float64 or complex128."""
    if isinstance(tree, Mapping | list | tuple):
        for key, value in tree.items() if isinstance(tree, Mapping) else enumerate(tree):
            yield from _leaves(f"{path}[{key!r}]", value)
        return
    import numpy as np

    if hasattr(tree, "full_tensor"):  # a DTensor of PyTorch's
        tree = tree.full_tensor()
    if type(tree).__module__.startswith("keras."):
        tree = tree.value
    if hasattr(tree, "detach"):
        tree = tree.detach().cpu()
        tree = (tree.double() if tree.is_floating_point() else tree).numpy()
    if not getattr(tree, "is_fully_addressable", True):
        from jax.experimental.multihost_utils import process_allgather

        tree = process_allgather(tree, tiled=True)
    array = np.asarray(tree)
    if array.dtype.kind in "OSU":
        raise TypeError(f"{path or 'the result'} is {of_type(tree)}: return numbers or arrays")
    yield path or "result", array.astype(complex if array.dtype.kind == "c" else float)


def _difference(
    path: str, where: str, of_first: dict[str, Any], of_rank: dict[str, Any]
) -> Difference:
    """How far a leaf of a rank is from that of the first size."""
    import numpy as np

    if path not in of_first or path not in of_rank:
        return Difference(path, where, np.inf, 0.0, "missing" if path in of_first else "new")
    right, seen = of_first[path], of_rank[path]
    if right.shape != seen.shape:
        return Difference(path, where, np.inf, 0.0, f"{seen.shape} instead of {right.shape}")
    if (np.isnan(right) != np.isnan(seen)).any():
        return Difference(
            path,
            where,
            np.inf,
            0.0,
            f"{np.isnan(seen).sum()} NaN instead of {np.isnan(right).sum()}",
        )
    right, seen = right[~np.isnan(right)], seen[~np.isnan(seen)]
    gap = np.abs(np.subtract(seen, right, where=seen != right, out=np.zeros_like(seen)))
    absolute, scale = float(gap.max(initial=0.0)), float(np.abs(right).max(initial=0.0))
    times = ""
    if 0 < scale < np.inf and absolute > 0.01 * scale:
        ratio = (np.vdot(right, seen) / np.vdot(right, right)).real
        if np.abs(seen - ratio * right).max() <= 1e-3 * scale:
            times = f"{ratio:.4g} times as large"
    return Difference(path, where, absolute, scale, times)
