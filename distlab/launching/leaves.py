"""What a rank has returned, as NumPy arrays: a tree of numbers of any framework, leaf by leaf."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from distlab.errors import of_type


def leaves(path: str, tree: Any) -> Iterator[tuple[str, list[Any]]]:
    """The leaves of a tree by their paths, each with all copies of it that this rank has.

    Arrays are of float64 or complex128. What is sharded over ranks is gathered: all must call it.

    Raises:
        TypeError: If a leaf is neither a number nor an array.
    """
    if isinstance(tree, Mapping | list | tuple):
        for key, value in tree.items() if isinstance(tree, Mapping) else enumerate(tree):
            yield from leaves(f"{path}[{key!r}]", value)
        return
    if tree is None:  # as a gradient that there is not
        return
    arrays = [np.asarray(copy) for copy in _copies(tree)]
    if any(array.dtype.kind in "OSU" for array in arrays):
        raise TypeError(f"{path or 'the result'} is {of_type(tree)}: return numbers or arrays")
    kinds = [complex if array.dtype.kind == "c" else float for array in arrays]
    yield path or "result", [each.astype(kind) for each, kind in zip(arrays, kinds, strict=True)]


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
