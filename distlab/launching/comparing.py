"""Whether a function gives on several ranks, or devices, what it gives on one."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Unpack

from distlab.errors import check_count, of_type
from distlab.launching.launch import Options, run
from distlab.tables import aligned


class Difference(NamedTuple):
    """One leaf of a result where it is farthest from what it should be.

    `seen` and `right` are the two numbers there, `absolute` is their difference (infinite if only
    one is a number, or the leaf has another shape), `scale` the largest number that there should
    be, and `words` the ratio, where one explains all numbers of the leaf, or what else is wrong.
    """

    leaf: str
    where: str
    seen: complex
    right: complex
    absolute: float
    scale: float
    words: str


class Comparison:
    """What `compare` has found: `differences`, in the order of the tree. Its text is a table."""

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
            head += f", {found[0].words}." if found[0].words else "."
        rows: list[tuple[str, ...]] = [("leaf", "on", "seen", "right", "off by", "relative", "")]
        for leaf, where, seen, right, absolute, scale, words in shown[:12]:
            relative = f"{absolute / scale:.2g}" if scale else ""
            rows += [
                (leaf, where, f"{seen:.5g}", f"{right:.5g}", f"{absolute:.2g}", relative, words)
            ]
        more = f"\nand {len(shown) - 12} more" * (len(shown) > 12)
        return f"{head}\n{aligned(rows, right=(2, 3, 4, 5))}{more}"


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

    All are compared with rank 0 of the first number. Return `{"loss": ..., "gradient": ...,
    "weights": ...}`, with one gradient and the weights after three steps, to find most: in many a
    training that goes wrong the loss alone is right. Begin with constants, give every size the
    same global batch, and return what should be equal on all ranks, not a rank's own part.

    Args:
        function: What each rank calls. It returns a tree (dictionaries, lists, tuples) of numbers,
            arrays, tensors or variables of any framework. What is sharded over ranks is gathered
            after the call, so leave their group as it is; where devices hold copies of one array,
            or replicas of a TensorFlow strategy a value each, all of them are compared.
        nprocs: How many ranks, one size after the other.
        framework: As in `launch`.
        args: As in `launch`.
        kwargs: As in `launch`.
        devices: Compare one process on so many virtual devices instead (JAX, TensorFlow).
        options: `env`, `timeout` and the others of `launch`.

    Raises:
        TypeError: If the function returns something else.
        ValueError: If there are fewer than two sizes.
        Exception: All that `run` raises.

    Example:
        >>> import os, distlab
        >>> def total():  # each rank adds up its part, and none asks the others
        ...     rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        ...     return {"sum": sum(range(rank, 9, size))}
        >>> distlab.compare(total, (1, 3))
        Not the same as on 1 rank: ['sum'] on rank 0 of 3, 0.25 times as large.
        leaf     on           seen  right  off by  relative
        ['sum']  rank 0 of 3     9     36      27      0.75  0.25 times as large
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
    differences = []
    for path in dict.fromkeys(path for ranks in found.values() for rank in ranks for path in rank):
        right = standard.get(path, [None])[0]
        for where, ranks in found.items():
            told = {
                (rank, copy): _difference(path, where, right, value)
                for rank, tree in enumerate(ranks)
                for copy, value in enumerate(tree.get(path, [None]))
            }
            (rank, copy), worst = max(told.items(), key=lambda each: each[1].absolute)
            if any(repr(each) != repr(worst) for each in told.values()):
                of = f"rank {rank} of {len(ranks)}" if len(ranks) > 1 else f"copy {copy} on {where}"
                worst = worst._replace(where=of)
            if where != first or worst.absolute:
                differences.append(worst)
    return Comparison(first, differences)


def _leaves(path: str, tree: Any) -> Iterator[tuple[str, list[Any]]]:
    """The leaves of a tree by their paths: all copies that this rank has, as NumPy arrays."""
    if isinstance(tree, Mapping | list | tuple):
        for key, value in tree.items() if isinstance(tree, Mapping) else enumerate(tree):
            yield from _leaves(f"{path}[{key!r}]", value)
        return
    import numpy as np

    arrays = [np.asarray(copy) for copy in _copies(tree)]
    if any(array.dtype.kind in "OSU" for array in arrays):
        raise TypeError(f"{path or 'the result'} is {of_type(tree)}: return numbers or arrays")
    kinds = [complex if array.dtype.kind == "c" else float for array in arrays]
    yield path or "result", [each.astype(kind) for each, kind in zip(arrays, kinds, strict=True)]


def _copies(leaf: Any) -> Sequence[Any]:
    """The whole of an array, once for each device or replica that has one of its own."""
    if type(leaf).__module__.startswith("keras.") and hasattr(leaf, "value"):
        leaf = leaf.value
    if hasattr(leaf, "full_tensor"):  # a DTensor of PyTorch's
        leaf = leaf.full_tensor()
    if hasattr(leaf, "detach"):
        leaf = leaf.detach().cpu()
        return [leaf.double().numpy() if leaf.is_floating_point() else leaf.numpy()]
    if hasattr(leaf, "addressable_shards"):
        return _copies_of_jax(leaf)
    if type(leaf).__module__.startswith("tensorflow."):
        return _copies_of_tensorflow(leaf)
    return [leaf]


def _copies_of_jax(array: Any) -> Sequence[Any]:
    import numpy as np

    if not (array.is_fully_addressable or array.is_fully_replicated):
        from jax.experimental.multihost_utils import process_allgather

        return [process_allgather(array, tiled=True)]
    copies: dict[int, Any] = {}
    for shard in array.addressable_shards:
        whole = copies.setdefault(shard.replica_id, np.empty(array.shape, array.dtype))
        whole[shard.index] = shard.data
    return list(copies.values())


def _copies_of_tensorflow(value: Any) -> Sequence[Any]:
    import tensorflow as tf

    dtensor = tf.experimental.dtensor
    if isinstance(value, tf.distribute.DistributedValues):
        partial = tf.VariableSynchronization.ON_READ  # what replicas hold adds up to its value
        whole = getattr(value, "synchronization", None) is partial
        return [value.read_value()] if whole else value.values
    try:
        layout = dtensor.fetch_layout(tf.convert_to_tensor(value))
    except (ValueError, tf.errors.InvalidArgumentError):  # no DTensor
        return [value]
    replicated = dtensor.Layout.replicated(layout.mesh, layout.rank)
    return dtensor.unpack(dtensor.relayout(value, replicated))


def _difference(path: str, where: str, right: Any, seen: Any) -> Difference:
    """How far an array is from another; None stands for none."""
    import numpy as np

    def odd(words: str) -> Difference:
        return Difference(path, where, np.nan, np.nan, np.inf, 0.0, words)

    if right is None and seen is None:
        return Difference(path, where, np.nan, np.nan, 0.0, 0.0, "")
    if right is None or seen is None:
        return odd("missing" if seen is None else "new")
    if right.shape != seen.shape:
        return odd(f"{seen.shape} instead of {right.shape}")
    right, seen = right.ravel(), seen.ravel()
    if not right.size:
        return Difference(path, where, np.nan, np.nan, 0.0, 0.0, "")
    same = (seen == right) | (np.isnan(seen) & np.isnan(right))
    gap = np.abs(np.subtract(seen, right, where=~same, out=np.zeros_like(seen)))
    gap[np.isnan(gap)] = np.inf
    worst, scale = gap.argmax(), float(np.abs(right[np.isfinite(right)]).max(initial=0.0))
    words = ""
    if scale and 0.01 * scale < gap[worst] < np.inf and np.isfinite(right).all():
        ratio = (np.vdot(right, seen) / np.vdot(right, right)).real
        if np.abs(seen - ratio * right).max() <= 1e-3 * scale:
            words = f"{ratio:.4g} times as large"
    return Difference(path, where, seen[worst], right[worst], float(gap[worst]), scale, words)
