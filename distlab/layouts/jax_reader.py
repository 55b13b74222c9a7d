"""Read a `Layout` from an array or a sharding of JAX."""

from typing import Any

from distlab.layouts.no_layout import abstract, needs_shape, no_layout
from distlab.layouts.view import Layout, Mesh, split


def read_jax(obj: Any, shape: tuple[int, ...] | None) -> Layout:
    """Read an array, a sharding (of a tensor of `shape`) or a `ShapeDtypeStruct` with one."""
    names = {base.__name__ for base in type(obj).__mro__}
    if names & {"Tracer", "ShapedArray"}:
        raise abstract(obj, "look at the array that the jitted function returns, outside of it")
    sharding, dtype = obj, None
    if not hasattr(obj, "devices_indices_map"):
        sharding = getattr(obj, "sharding", None)
        if sharding is None:
            raise no_layout(obj)
        shape, dtype = tuple(obj.shape), str(obj.dtype)
    if shape is None:
        raise needs_shape(obj)
    if not hasattr(sharding, "mesh"):
        return _read_unnamed(sharding, shape, dtype)
    if any(type(entry).__name__ == "UnconstrainedSingleton" for entry in sharding.spec):
        raise ValueError(
            f"{sharding.spec} leaves a dimension unconstrained, for the compiler to decide: "
            "look at the array itself."
        )
    spec = [axes_of(entry) for entry in sharding.spec]
    return split(shape, jax_mesh(sharding.mesh), spec, dtype=dtype)


def _read_unnamed(sharding: Any, shape: tuple[int, ...], dtype: str | None) -> Layout:
    """Read a sharding without axis names from the index that each device has."""
    places = sharding.devices_indices_map(shape)
    devices = sorted(places, key=lambda device: device.id)
    bounds = tuple(
        tuple(part.indices(size)[:2] for part, size in zip(places[device], shape, strict=True))
        for device in devices
    )
    axes = (("device", len(devices)),) if len(devices) > 1 else ()
    mesh = Mesh(axes, tuple(map(_label, devices)))
    return Layout(shape, mesh, ((),) * len(shape), bounds, dtype)


def jax_mesh(mesh: Any) -> Mesh:
    """Read a mesh that keeps its devices in a NumPy array, as JAX's and Keras's do."""
    if type(mesh).__name__ == "AbstractMesh":
        raise TypeError("An AbstractMesh has axes but no devices: there is nothing to show.")
    axes = zip(map(str, mesh.axis_names), map(int, mesh.devices.shape), strict=True)
    return Mesh(tuple(axes), tuple(map(_label, mesh.devices.flat)))


def _label(device: Any) -> str:
    return device if isinstance(device, str) else f"{device.platform}:{device.id}"


def axes_of(entry: Any) -> tuple[str, ...]:
    """Return one dimension's entry in a spec, which is None, an axis or several, as axes."""
    if entry is None:
        return ()
    return tuple(entry) if isinstance(entry, (tuple, list)) else (entry,)
