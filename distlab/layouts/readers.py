"""Read a `Layout` or a `Mesh` from the objects of Keras, JAX, DTensor and PyTorch.

A reader is chosen by the name of the module that the object's class comes from, and asks the
object for all it needs. So no framework is imported that the object did not bring.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from distlab.layouts.torch_reader import read_torch
from distlab.layouts.view import Layout, Mesh, PlainTensorError, split


def layout_of(obj: Any, shape: Sequence[int] | None = None, *, dtype: str | None = None) -> Layout:
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
        shape: The tensor's shape, for objects that hold a layout but no tensor.
        dtype: Name of the data type, for objects that hold none. Without it bytes are unknown.

    Returns:
        The layout.

    Raises:
        TypeError: If the object has no layout, is an abstract value (a tracer, a `KerasTensor`),
            or needs a shape and has none.
        ValueError: If the layout does not fit the shape: too many dimensions, an axis that is
            not in the mesh, a dimension that does not divide.

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
    layout = obj if isinstance(obj, Layout) else _reader(obj)(obj, size, dtype)
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
    home = _home(obj)
    if home == "torch":
        from distlab.layouts.torch_reader import torch_mesh

        return torch_mesh(obj)
    if home == "tensorflow":
        return _dtensor_mesh(obj)
    if type(obj).__name__ == "AbstractMesh":
        raise TypeError("An AbstractMesh has axes but no devices: there is nothing to show.")
    return _array_mesh(obj)


def is_mesh(obj: Any) -> bool:
    """Whether `obj` is a mesh of one of the frameworks, or ours."""
    if isinstance(obj, Mesh):
        return True
    names = {
        "keras": ("DeviceMesh",),
        "jax": ("Mesh", "AbstractMesh"),
        "torch": ("DeviceMesh",),
        "tensorflow": ("Mesh",),
    }
    return type(obj).__name__ in names.get(_home(obj), ())


def _home(obj: Any) -> str:
    """The package that an object's class comes from."""
    home = type(obj).__module__.partition(".")[0]
    return "jax" if home == "jaxlib" else home


Reader = Callable[[Any, tuple[int, ...] | None, str | None], Layout]


def _reader(obj: Any) -> Reader:
    if isinstance(obj, tuple) and len(obj) == 2 and _home(obj[0]) == "torch":
        return read_torch
    readers: dict[str, Reader] = {
        "jax": _read_jax,
        "keras": _read_keras,
        "tensorflow": _read_dtensor,
        "tf_keras": _read_dtensor,
        "torch": read_torch,
    }
    # A subclass written by a user lives in a module of their own.
    for base in type(obj).__mro__:
        home = base.__module__.partition(".")[0]
        if home in readers or home == "jaxlib":
            return readers["jax" if home == "jaxlib" else home]
    if isinstance(obj, (list, tuple, dict, set)):
        raise _no_layout(obj, ": give what is in it one by one")
    raise _no_layout(obj, ": NumPy knows no devices" if _home(obj) == "numpy" else "")


def _no_layout(obj: Any, why: str = "") -> TypeError:
    return TypeError(f"{_article(type(obj).__name__)} has no layout{why}. {_WITH_LAYOUT}")


_WITH_LAYOUT = """These have one:
  JAX: an array or a sharding: jax.device_put(x, NamedSharding(mesh, PartitionSpec("data")))
  Keras: a variable or a TensorLayout
  TensorFlow: a DTensor or its Layout: dtensor.call_with_layout(tf.zeros, layout, shape=(8, 4))
  PyTorch: a DTensor: distribute_tensor(x, mesh, [Shard(0)])
Meshes can be drawn, too."""


def _article(noun: str) -> str:
    return f"{'An' if noun[:1].lower() in 'aeiou' or noun == 'ndarray' else 'A'} {noun}"


def _needs_shape(obj: Any) -> TypeError:
    return TypeError(
        f"{_article(type(obj).__name__)} says how to split a tensor but not which: "
        "give its shape, as in layout_of(layout, shape=(784, 512))."
    )


def _read_jax(obj: Any, shape: tuple[int, ...] | None, dtype: str | None) -> Layout:
    tracer = any(base.__name__ == "Tracer" for base in type(obj).__mro__)
    if tracer or type(obj).__name__ == "ShapedArray":
        raise TypeError(
            f"{_article(type(obj).__name__)} is an abstract value, which is on no device: look at "
            "the array that the jitted function returns, outside of it."
        )
    if hasattr(obj, "devices_indices_map"):
        if shape is None:
            raise _needs_shape(obj)
        return _read_jax_sharding(obj, shape, dtype)
    sharding = getattr(obj, "sharding", None)
    if sharding is None:
        raise _no_layout(obj)
    return _read_jax_sharding(sharding, tuple(obj.shape), str(obj.dtype))


def _read_jax_sharding(sharding: Any, shape: tuple[int, ...], dtype: str | None) -> Layout:
    if not hasattr(sharding, "mesh"):
        return _read_unnamed(sharding, shape, dtype)
    if type(sharding.mesh).__name__ == "AbstractMesh":
        raise TypeError("This sharding is for an AbstractMesh, which has axes but no devices.")
    spec = []
    for entry in sharding.spec:
        if type(entry).__name__ == "UnconstrainedSingleton":
            raise ValueError(
                f"{sharding.spec} leaves a dimension unconstrained, for the compiler to decide: "
                "look at the array itself."
            )
        spec.append(_axes(entry))
    return split(shape, _array_mesh(sharding.mesh), spec, dtype=dtype)


def _read_unnamed(sharding: Any, shape: tuple[int, ...], dtype: str | None) -> Layout:
    """Read a JAX sharding without axis names from the index that each device has."""
    places = sharding.devices_indices_map(shape)
    devices = sorted(places, key=lambda device: device.id)
    bounds = tuple(
        tuple(part.indices(size)[:2] for part, size in zip(places[device], shape, strict=True))
        for device in devices
    )
    labels = tuple(_label(device) for device in devices)
    axes = (("device", len(devices)),) if len(devices) > 1 else ()
    return Layout(shape, Mesh(axes, labels), ((),) * len(shape), bounds, dtype)


def _read_keras(obj: Any, shape: tuple[int, ...] | None, dtype: str | None) -> Layout:
    if hasattr(obj, "axes") and hasattr(obj, "device_mesh"):
        if shape is None:
            raise _needs_shape(obj)
        if obj.device_mesh is None:
            raise TypeError(
                f"TensorLayout(axes={obj.axes}) has no device_mesh yet. It gets one when it is "
                "put into a LayoutMap, or from TensorLayout(axes, device_mesh)."
            )
        spec = [_axes(entry) for entry in obj.axes]
        return split(shape, _array_mesh(obj.device_mesh), spec, dtype=dtype)
    if type(obj).__name__ == "KerasTensor":
        raise TypeError(
            f"KerasTensor {obj.name!r} is an abstract value, which is on no device: call the "
            "model on data and look at what comes out."
        )
    if hasattr(obj, "variables"):
        raise _no_layout(obj, ": its variables do. See layouts.table(model)")
    if not hasattr(obj, "value"):
        raise _no_layout(obj)
    value = obj.value
    if value is None:
        raise TypeError(f"Variable {obj.path!r} has no value yet: build the model first.")
    if _home(value) == "keras":
        raise _no_layout(obj)
    try:
        return _reader(value)(value, None, None).renamed(obj.path)
    except TypeError as error:
        raise type(error)(f"Variable {obj.path!r}: {error}") from None


def _read_dtensor(obj: Any, shape: tuple[int, ...] | None, dtype: str | None) -> Layout:
    name = ""
    layout = obj
    if not hasattr(obj, "sharding_specs"):
        name = re.sub(r":\d+$", "", obj.name) if hasattr(obj, "assign") else ""
        shape, dtype = _tensorflow_type(obj)
        layout = _dtensor_layout(obj)
    elif shape is None:
        raise _needs_shape(obj)
    spec = [() if axis == "unsharded" else (axis,) for axis in layout.sharding_specs]
    if shape and len(spec) < len(shape):
        raise ValueError(
            f"A tensor of shape {list(shape)} has {len(shape)} dimensions, but the DTensor "
            f"layout is for {len(spec)}."
        )
    return split(shape or (), _dtensor_mesh(layout.mesh), spec, dtype=dtype, name=name)


def _tensorflow_type(obj: Any) -> tuple[tuple[int, ...], str]:
    if not (hasattr(obj, "shape") and hasattr(obj, "dtype")):
        raise _no_layout(obj)
    if not hasattr(obj, "numpy"):
        raise TypeError(
            f"{_article(type(obj).__name__)} is an abstract value, which is on no device: look at "
            "the tensor that the function returns, outside of it."
        )
    return tuple(obj.shape.as_list()), str(obj.dtype.name)


def _dtensor_layout(obj: Any) -> Any:
    layout = getattr(obj, "layout", None)
    if layout is not None:
        return layout
    # Only TensorFlow knows, and it is loaded: the object came from it.
    import tensorflow as tf

    try:
        return tf.experimental.dtensor.fetch_layout(obj)
    except (ValueError, tf.errors.InvalidArgumentError):
        why = ": it is a plain tensor, not a DTensor"
        raise PlainTensorError(str(_no_layout(obj, why))) from None


def _axes(entry: Any) -> tuple[str, ...]:
    """One dimension's entry in a spec: None, an axis, or several."""
    if entry is None:
        return ()
    return tuple(entry) if isinstance(entry, (tuple, list)) else (entry,)


def _label(device: Any) -> str:
    if isinstance(device, str):
        return device
    return f"{device.platform}:{device.id}"


def _array_mesh(mesh: Any) -> Mesh:
    """Read a mesh that keeps its devices in a NumPy array, as JAX's and Keras's do."""
    names = tuple(str(name) for name in mesh.axis_names)
    axes = tuple(zip(names, (int(n) for n in mesh.devices.shape), strict=True))
    return Mesh(axes, tuple(_label(device) for device in mesh.devices.flat))


def _dtensor_mesh(mesh: Any) -> Mesh:
    axes = tuple((name, int(mesh.dim_size(name))) for name in mesh.dim_names)
    names = list(mesh.global_devices()) or list(mesh.local_devices())
    labels = tuple(name.rpartition("device:")[2].lower() for name in names)
    if len(set(labels)) < len(labels):  # several hosts: each counts its devices from 0
        labels = tuple(f"{mesh.device_type().lower()}:{i}" for i in range(len(labels)))
    return Mesh(axes, labels)
