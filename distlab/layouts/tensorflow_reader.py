"""Read a `Layout` from TensorFlow's DTensor."""

import re
from typing import Any

from distlab.frameworks import other_backend
from distlab.layouts.no_layout import abstract, needs_shape, no_layout
from distlab.layouts.view import Layout, Mesh, split


def read_tensorflow(obj: Any, shape: tuple[int, ...] | None) -> Layout:
    """Read a DTensor, a `DVariable`, a tf_keras weight, or a `Layout` (of a tensor of `shape`)."""
    layout, dtype, name = obj, None, ""
    if not hasattr(obj, "sharding_specs"):
        name = re.sub(r":\d+$", "", obj.name) if hasattr(obj, "assign") else ""
        if not (hasattr(obj, "shape") and hasattr(obj, "dtype")):
            raise no_layout(obj)
        if not hasattr(obj, "numpy"):
            raise abstract(obj, "look at the tensor that the function returns, outside of it")
        shape, dtype = tuple(obj.shape.as_list()), str(obj.dtype.name)
        layout = getattr(obj, "layout", None) or _fetch_layout(obj)
    elif shape is None:
        raise needs_shape(obj)
    spec = tensorflow_axes(layout)
    if shape and len(spec) < len(shape):
        raise ValueError(
            f"A tensor of shape {list(shape)} has {len(shape)} dimensions, but the DTensor "
            f"layout is for {len(spec)}."
        )
    return split(shape or (), tensorflow_mesh(layout.mesh), spec, dtype=dtype, name=name)


def _fetch_layout(obj: Any) -> Any:
    # Only TensorFlow knows, and it is loaded: the object came from it.
    import tensorflow as tf

    try:
        return tf.experimental.dtensor.fetch_layout(obj)
    except (ValueError, tf.errors.InvalidArgumentError):
        why = ": it is a plain tensor, not a DTensor"
        if backend := other_backend("jax"):
            why += f". Keras shards on JAX, and {backend}"
        raise no_layout(obj, why, plain=True) from None


def tensorflow_axes(layout: Any) -> tuple[tuple[str, ...], ...]:
    """Return for each dimension the mesh axes that split it: one, or none."""
    return tuple(() if axis == "unsharded" else (axis,) for axis in layout.sharding_specs)


def tensorflow_mesh(mesh: Any) -> Mesh:
    """Read a DTensor `Mesh`."""
    axes = tuple((name, int(mesh.dim_size(name))) for name in mesh.dim_names)
    names = list(mesh.global_devices()) or list(mesh.local_devices())
    labels = tuple(name.rpartition("device:")[2].lower() for name in names)
    if len(set(labels)) < len(labels):  # several hosts: each counts its devices from 0
        labels = tuple(f"{mesh.device_type().lower()}:{i}" for i in range(len(labels)))
    return Mesh(axes, labels)
