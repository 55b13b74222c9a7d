"""What a rank has returned, leaf by leaf as NumPy arrays, and how far one leaf is from another."""

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from distlab.errors import of_type


class Difference(NamedTuple):
    """One leaf of a result where it is farthest from what it should be.

    `seen` and `right` are the two numbers there, `absolute` is their difference (infinite if only
    one is a number, or the leaf has another shape), `scale` the largest number that there should
    be, and `words` the ratio, where one explains all numbers of the leaf, or what else is wrong. A
    single number always has a ratio: it is said where it is a fraction of small whole numbers.
    `place` is the index in an array, empty for a single number.
    """

    leaf: str
    where: str
    seen: complex
    right: complex
    absolute: float
    scale: float
    words: str
    place: tuple[int, ...] = ()


def gathered(tree: Any) -> dict[str, list[Any]]:
    """The leaves of a tree by their paths, each with all copies of it that this rank has.

    Arrays are of float64 or complex128. What is sharded over ranks is gathered: all must call it.

    Raises:
        TypeError: If a leaf is neither a number nor an array.
        RuntimeError: If a DTensor's group has been destroyed.
    """
    torch = sys.modules.get("torch")
    if torch and torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.barrier()  # a rank that ends while others still connect fails them
    return dict(_leaves("", tree))


def _leaves(path: str, tree: Any) -> Iterator[tuple[str, list[Any]]]:
    if isinstance(tree, Mapping | list | tuple):
        for key, value in tree.items() if isinstance(tree, Mapping) else enumerate(tree):
            yield from _leaves(f"{path}[{key!r}]", value)
        return
    if tree is None:  # as a gradient that there is not
        return
    name, arrays, cause = path or "the result", [], None
    if hasattr(tree, "full_tensor") and not sys.modules["torch"].distributed.is_initialized():
        words = "is a DTensor, gathered after the call: leave out destroy_process_group()"
        raise RuntimeError(f"{name} {words}")
    try:
        arrays = [np.asarray(copy) for copy in _copies(tree)]
    except TypeError as error:
        cause = error
    if cause or any(array.dtype.kind in "OSU" for array in arrays):
        raise TypeError(f"{name} is {of_type(tree)}: return numbers or arrays") from cause
    numbers = [array.astype(complex if array.dtype.kind == "c" else float) for array in arrays]
    yield path or "result", numbers


def _copies(leaf: Any) -> Sequence[Any]:
    """The whole of an array: once, or once for each device or replica that has one of its own."""
    if type(leaf).__module__.startswith("keras.") and hasattr(leaf, "value"):
        leaf = leaf.value
    if hasattr(leaf, "full_tensor"):  # a DTensor of PyTorch's
        leaf = leaf.full_tensor()
    if hasattr(leaf, "detach"):
        leaf = leaf.detach().cpu().to_dense()
        return [leaf.double().numpy() if leaf.is_floating_point() else leaf.numpy()]
    if hasattr(leaf, "addressable_shards"):
        return _copies_of_jax(leaf)
    if type(leaf).__module__.startswith("tensorflow."):
        return _copies_of_tensorflow(leaf)
    return [leaf]


def _copies_of_jax(array: Any) -> Sequence[Any]:
    if not (array.is_fully_addressable or array.is_fully_replicated):
        from jax.experimental.multihost_utils import process_allgather

        return [process_allgather(array, tiled=True)]
    copies: dict[int, Any] = {}
    for shard in array.addressable_shards:
        whole = copies.setdefault(shard.replica_id, np.empty(array.shape, array.dtype))
        whole[shard.index] = np.asarray(shard.data)
    return list(copies.values())


def _copies_of_tensorflow(value: Any) -> Sequence[Any]:
    import tensorflow as tf

    dtensor = tf.experimental.dtensor
    if isinstance(value, tf.distribute.DistributedValues):
        partial = tf.VariableSynchronization.ON_READ  # what replicas hold adds up to its value
        whole = getattr(value, "synchronization", None) is partial
        return [value.read_value()] if whole else value.values
    tensor = tf.convert_to_tensor(value)
    try:
        layout = dtensor.fetch_layout(tensor)
    except (ValueError, tf.errors.InvalidArgumentError):  # no DTensor
        return [tensor]
    replicated = dtensor.Layout.replicated(layout.mesh, layout.rank)
    return list(dtensor.unpack(dtensor.relayout(tensor, replicated)))


def difference(path: str, where: str, right: Any, seen: Any) -> Difference:
    """Compare an array with the right one; None stands for a leaf that is not there."""

    def without_numbers(words: str) -> Difference:
        return Difference(path, where, np.nan, np.nan, np.inf if words else 0.0, 0.0, words)

    if right is None or seen is None:
        return without_numbers("" if right is seen else "missing" if seen is None else "new")
    if right.shape != seen.shape:
        return without_numbers(f"{seen.shape} instead of {right.shape}")
    if not right.size:
        return without_numbers("")
    shape, right, seen = right.shape, right.ravel(), seen.ravel()
    same = (seen == right) | (np.isnan(seen) & np.isnan(right))
    gap = np.abs(np.where(same, 0.0, seen) - np.where(same, 0.0, right))
    gap[np.isnan(gap)] = np.inf
    worst, scale = gap.argmax(), float(np.abs(right[np.isfinite(right)]).max(initial=0.0))
    words = ""
    if scale and 0.01 * scale < gap[worst] < np.inf and np.isfinite(right).all():
        ratio = float((np.vdot(right, seen) / np.vdot(right, right)).real)
        times = [n * each for each in (ratio, 1 / (ratio or np.inf)) for n in range(1, 11)]
        plain = any(math.isclose(each, round(each), rel_tol=1e-4) and each < 17 for each in times)
        meant = ratio >= 0 or ratio == -1  # any other negative one is chance
        fits = np.abs(seen - ratio * right).max() <= 1e-3 * scale
        if meant and fits and (plain or right.size > 1):
            words = f"{ratio:.4g} times as large"
    told = float(gap[worst]), scale, words, tuple(map(int, np.unravel_index(worst, shape)))
    return Difference(path, where, seen[worst], right[worst], *told)
