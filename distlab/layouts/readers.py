"""Read a `Layout` or a `Mesh` from the objects of Keras, JAX, DTensor and PyTorch.

A reader is chosen by the name of the module that the object's class comes from, and asks the
object for all it needs. So no framework is imported that the object did not bring.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from distlab.layouts.jax_reader import axes_of, jax_mesh, read_jax
from distlab.layouts.no_layout import LostValueError, abstract, needs_shape, no_layout
from distlab.layouts.tensorflow_reader import read_tensorflow, tensorflow_mesh
from distlab.layouts.torch_reader import read_torch, torch_mesh
from distlab.layouts.view import Layout, Mesh, split


def layout_of(obj: Any, shape: Sequence[int] | None = None) -> Layout:
    """Return which slice of a tensor is on which device.

    Args:
        obj: What has, or is, a layout:

            - JAX: an array, a `NamedSharding` or another sharding (with `shape`), or a
              `ShapeDtypeStruct` that has a sharding;
            - Keras on JAX: a variable, or a `TensorLayout` (with `shape`);
            - TensorFlow DTensor: a DTensor, a `DVariable`, a tf_keras weight, or a `Layout`
              (with `shape`);
            - PyTorch: a `DTensor`, or a tuple `(device_mesh, placements)` (with `shape`);
            - a `Layout` made by this function, which is returned as it is.
        shape: The tensor's shape, for objects that hold a layout but no tensor. Their data type,
            and so the bytes, are unknown.

    Returns:
        The layout.

    Raises:
        TypeError: If the object has no layout, is an abstract value (a tracer, a `KerasTensor`),
            or needs a shape and has none.
        ValueError: If the layout does not fit the shape: too many dimensions, an axis that is
            not in the mesh, a dimension that does not divide; if a failed training step has
            lost a variable's value.

    Example:
        >>> import jax, numpy as np
        >>> from jax.sharding import Mesh, NamedSharding, PartitionSpec
        >>> mesh = Mesh(np.array(jax.devices()[:1]), ("model",))
        >>> layout_of(NamedSharding(mesh, PartitionSpec("model")), (4, 6)).shard_shape
        (4, 6)
    """
    if isinstance(shape, str) or not isinstance(shape, Iterable | None):
        raise TypeError(f"shape must be a tuple of sizes, such as (784, 512), not {shape!r}.")
    size = None if shape is None else tuple(int(n) for n in shape)
    layout = obj if isinstance(obj, Layout) else _read(obj, size)
    if size is not None and layout.shape != size:
        raise ValueError(
            f"shape={list(size)} was given, but this {type(obj).__name__} has a shape of its "
            f"own: {list(layout.shape)}."
        )
    return layout


def mesh_of(obj: Any) -> Mesh:
    """Return the devices and axes of a mesh.

    Args:
        obj: A Keras `DeviceMesh`, a `jax.sharding.Mesh`, a DTensor `Mesh` or a PyTorch
            `DeviceMesh`; or anything else that `layout_of` can read without a shape.

    Returns:
        The mesh.

    Raises:
        TypeError: If it is none of these.
    """
    if isinstance(obj, Mesh):
        return obj
    if not is_mesh(obj):
        return layout_of(obj).mesh
    return _MESHES[home_of(type(obj)), type(obj).__name__](obj)


_MESHES: dict[tuple[str, str], Callable[[Any], Mesh]] = {
    ("jax", "AbstractMesh"): jax_mesh,
    ("jax", "Mesh"): jax_mesh,
    ("keras", "DeviceMesh"): jax_mesh,
    ("tensorflow", "Mesh"): tensorflow_mesh,
    ("torch", "DeviceMesh"): torch_mesh,
}


def is_mesh(obj: Any) -> bool:
    """Whether `obj` is a mesh of one of the frameworks, or ours."""
    return isinstance(obj, Mesh) or (home_of(type(obj)), type(obj).__name__) in _MESHES


def home_of(kind: type) -> str:
    """Return the package that a class comes from."""
    return kind.__module__.partition(".")[0].replace("jaxlib", "jax")


def _read(obj: Any, shape: tuple[int, ...] | None) -> Layout:
    if isinstance(obj, tuple) and len(obj) == 2 and home_of(type(obj[0])) == "torch":
        return read_torch(obj, shape)
    # A subclass written by a user lives in a module of their own.
    for package in map(home_of, type(obj).__mro__):
        if package in _READERS:
            return _READERS[package](obj, shape)
    if isinstance(obj, (list, tuple, dict, set)):
        raise no_layout(obj, ": give what is in it one by one")
    raise no_layout(obj, ": NumPy knows no devices" if home_of(type(obj)) == "numpy" else "")


def _read_keras(obj: Any, shape: tuple[int, ...] | None) -> Layout:
    """Read a `TensorLayout`, or a variable: what it holds is of the framework below Keras."""
    if hasattr(obj, "axes") and hasattr(obj, "device_mesh"):
        if shape is None:
            raise needs_shape(obj)
        if obj.device_mesh is None:
            raise TypeError(
                f"TensorLayout(axes={obj.axes}) has no device_mesh yet. It gets one when it is "
                "put into a LayoutMap, or from TensorLayout(axes, device_mesh)."
            )
        return split(shape, jax_mesh(obj.device_mesh), list(map(axes_of, obj.axes)))
    if type(obj).__name__ == "KerasTensor":
        raise abstract(obj, "call the model on data and look at what comes out")
    if hasattr(obj, "variables"):
        raise no_layout(obj, ": its variables do. See layouts.table(model)")
    if not hasattr(type(obj), "value"):  # asking the object would run Keras's property
        raise no_layout(obj)
    try:
        value = obj.value
    except TypeError:  # Keras calls an initializer that it no longer has
        raise LostValueError([obj.path]) from None
    if home_of(type(value)) == "keras":
        raise no_layout(obj)
    try:
        return replace(_read(value, None), name=obj.path)
    except TypeError as error:
        raise type(error)(f"Variable {obj.path!r}: {error}") from None


_READERS: dict[str, Callable[[Any, tuple[int, ...] | None], Layout]] = {
    "jax": read_jax,
    "keras": _read_keras,
    "tensorflow": read_tensorflow,
    "tf_keras": read_tensorflow,
    "torch": read_torch,
}
