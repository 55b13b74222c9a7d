"""A neutral view of a layout: which slice of which tensor is on which device.

No framework appears here. `distlab.layouts.readers` makes these objects from Keras, JAX,
TensorFlow DTensor and PyTorch ones; drawings, tables and lint read nothing else.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from distlab.errors import did_you_mean

Bounds = tuple[tuple[int, int], ...]
"""One slice of a tensor: for each dimension, where it starts and where it stops."""
Part = tuple[Bounds, int]
"""One slice, and which summand it is of, counted from 0."""


@dataclass(frozen=True)
class Mesh:
    """Devices arranged along named axes.

    Attributes:
        axes: Name and size of each axis, outermost first.
        devices: The devices' labels, in row-major order.
    """

    axes: tuple[tuple[str, int], ...]
    devices: tuple[str, ...]

    def __post_init__(self) -> None:
        if math.prod(self.shape) != len(self.devices):
            raise ValueError(
                f"A mesh of shape {self.shape} has {math.prod(self.shape)} places, "
                f"but {len(self.devices)} devices were given."
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The axes' names, outermost first."""
        return tuple(name for name, _ in self.axes)

    @property
    def shape(self) -> tuple[int, ...]:
        """The axes' sizes, outermost first."""
        return tuple(size for _, size in self.axes)

    def size(self, *axes: str) -> int:
        """Return the number of devices along some axes; ValueError if one is not in the mesh."""
        sizes = dict(self.axes)
        for axis in axes:
            if axis not in sizes:
                known = f"which has {list(sizes)}.{did_you_mean(axis, sizes)}"
                raise ValueError(f"Axis {axis!r} is not in the mesh, {known}")
        return math.prod(sizes[axis] for axis in axes)

    def coordinates(self) -> list[dict[str, int]]:
        """Return each device's place in the mesh, in the order of `devices`."""
        places = product(*(range(size) for size in self.shape))
        return [dict(zip(self.names, place, strict=True)) for place in places]

    def numbers_along(self, axes: Sequence[str]) -> tuple[int, ...]:
        """Number the devices along some axes taken as one, the first of them outermost."""
        numbers = []
        for place in self.coordinates():
            number = 0
            for axis in axes:
                number = number * self.size(axis) + place[axis]
            numbers.append(number)
        return tuple(numbers)

    def short_labels(self) -> tuple[str, ...]:
        """Return the labels without the part that all share: `0` and `1` for `cpu:0`, `cpu:1`."""
        parts = [re.fullmatch(r"(.*?)(\d+)", label) for label in self.devices]
        if len({part[1] if part else None for part in parts}) != 1 or parts[0] is None:
            return self.devices
        return tuple(part[2] for part in parts if part)

    def __str__(self) -> str:
        if not self.axes:
            return self.devices[0]
        return ", ".join(f"{name}={size}" for name, size in self.axes)


@dataclass(frozen=True)
class Layout:
    """Which slice of a tensor each device of a mesh holds.

    Attributes:
        shape: The whole tensor's shape.
        mesh: The devices.
        spec: For each dimension, the mesh axes that split it, the outermost first; empty where
            none does.
        bounds: For each device of the mesh, in its order, the slice it holds.
        dtype: The name of the data type, such as `"float32"`, or None when it is not known.
        name: What the tensor is called, or an empty string.
        partial: Mesh axes along which the devices hold terms that still have to be added up
            (PyTorch's `Partial`).

    Example:
        >>> mesh = Mesh((("data", 2), ("model", 2)), ("cpu:0", "cpu:1", "cpu:2", "cpu:3"))
        >>> layout = split((6, 4), mesh, [(), ("model",)], dtype="float32")
        >>> layout.shard_shape, layout.copies, layout.bytes_per_device
        ((6, 2), 2, 48)
    """

    shape: tuple[int, ...]
    mesh: Mesh
    spec: tuple[tuple[str, ...], ...]
    bounds: tuple[Bounds, ...]
    dtype: str | None = None
    name: str = ""
    partial: tuple[str, ...] = ()

    @property
    def slices(self) -> dict[str, tuple[slice, ...]]:
        """For each device's label, an index that cuts its slice out of a NumPy array."""
        return {
            device: tuple(slice(*b) for b in bounds)
            for device, bounds in zip(self.mesh.devices, self.bounds, strict=True)
        }

    @cached_property
    def summand_of(self) -> tuple[int, ...]:
        """For each device, which of the terms it holds that still have to be added up."""
        return self.mesh.numbers_along(self.partial)

    @property
    def summands(self) -> int:
        """How many terms have to be added up; 1 where the devices hold the values themselves."""
        return self.mesh.size(*self.partial)

    @cached_property
    def parts(self) -> dict[Part, tuple[int, ...]]:
        """For each slice of each summand that holds anything, which devices (by position) do."""
        parts: dict[Part, list[int]] = {}
        for position, part in enumerate(zip(self.bounds, self.summand_of, strict=True)):
            if math.prod(extent(part[0])):
                parts.setdefault(part, []).append(position)
        return {part: tuple(parts[part]) for part in sorted(parts, key=lambda part: part[::-1])}

    @property
    def shard_shape(self) -> tuple[int, ...]:
        """Shape of the largest slice; every device's where the tensor divides evenly."""
        return extent(max(self.bounds, key=lambda b: math.prod(extent(b))))

    @property
    def num_slices(self) -> int:
        """How many distinct slices the tensor is cut into, empty ones not counted."""
        return len({bounds for bounds, _ in self.parts})

    @property
    def copies(self) -> int:
        """On how many devices each slice is held, with the same values."""
        return max((len(devices) for devices in self.parts.values()), default=0)

    @property
    def is_whole(self) -> bool:
        """Whether every device holds the whole tensor."""
        return all(bounds == tuple((0, size) for size in self.shape) for bounds in self.bounds)

    @property
    def bytes_total(self) -> int | None:
        """Bytes of one whole tensor; None when the data type is not known."""
        size = itemsize(self.dtype)
        return None if size is None else size * math.prod(self.shape)

    @property
    def bytes_per_device(self) -> int | None:
        """Bytes on the device that holds most; None when the data type is not known."""
        return max(self.bytes_by_device.values(), default=None)

    @property
    def bytes_by_device(self) -> dict[str, int]:
        """For each device's label, the bytes on it; empty when the data type is not known."""
        size = itemsize(self.dtype)
        if size is None:
            return {}
        held = (size * math.prod(extent(bounds)) for bounds in self.bounds)
        return dict(zip(self.mesh.devices, held, strict=True))

    def cuts(self, dimension: int) -> list[tuple[int, int]]:
        """Return the distinct ranges that `dimension` is cut into, in order."""
        ranges = {bounds[dimension] for bounds in self.bounds}
        return sorted(r for r in ranges if r[0] < r[1]) or sorted(ranges)[:1]


def split(
    shape: Sequence[int],
    mesh: Mesh,
    spec: Sequence[Sequence[str]],
    *,
    dtype: str | None = None,
    name: str = "",
) -> Layout:
    """Cut a tensor evenly, as JAX, Keras and DTensor do.

    Args:
        shape: The tensor's shape.
        mesh: The devices.
        spec: For each dimension the mesh axes that split it, outermost first. Dimensions at the
            end may be left out: they stay whole.
        dtype: Name of the data type.
        name: What the tensor is called.

    Returns:
        The layout.

    Raises:
        ValueError: If `spec` names more dimensions than the tensor has, an axis that the mesh
            does not have, an axis twice, or a dimension does not divide.
    """
    shape = tuple(shape)
    what = f"{name!r} of shape {list(shape)}" if name else f"A tensor of shape {list(shape)}"
    if len(spec) > len(shape):
        raise ValueError(
            f"{what} has {len(shape)} dimension{'s' * (len(shape) != 1)}, but the layout is for "
            f"{len(spec)}: {[tuple(axes) for axes in spec]}."
        )
    spec = tuple(tuple(axes) for axes in spec) + ((),) * (len(shape) - len(spec))
    used = [axis for axes in spec for axis in axes]
    for axis in used:
        mesh.size(axis)
        if used.count(axis) > 1:
            raise ValueError(f"Axis {axis!r} splits {what} twice: an axis can do so once.")
    parts = [mesh.size(*axes) for axes in spec]
    for dimension, (size, count) in enumerate(zip(shape, parts, strict=True)):
        if size % count:
            raise ValueError(
                f"{what}: dimension {dimension} has size {size}, which is not divisible by "
                f"{count}, the size of {' x '.join(map(repr, spec[dimension]))} in the mesh."
            )
    columns = []
    for size, count, axes in zip(shape, parts, spec, strict=True):
        step = size // count
        columns.append([(i * step, i * step + step) for i in mesh.numbers_along(axes)])
    bounds = tuple(tuple(each[i] for each in columns) for i in range(len(mesh.devices)))
    return Layout(shape, mesh, spec, bounds, dtype, name)


def extent(bounds: Bounds) -> tuple[int, ...]:
    """Return the shape of a slice."""
    return tuple(stop - start for start, stop in bounds)


def itemsize(dtype: str | None) -> int | None:
    """Return the bytes per element of a type, by its name or XLA's, as in `float32` or `f32`."""
    size = bits(dtype)
    return max(1, size // 8) if size else None


def bits(dtype: str | None) -> int | None:
    """Return the bits per element of a type; fewer than 8 where it is packed."""
    if dtype in ("bool", "pred"):
        return 8
    number = re.match(r"[a-z]+(\d+)", dtype or "")
    return int(number[1]) if number else None
