"""Read a `Layout` from PyTorch's DTensor: a device mesh and one placement per mesh axis.

PyTorch cuts as `torch.chunk` does: dimensions need not divide, and the last ranks may hold less
or nothing. Several axes may cut one dimension, each cutting what the axis before it left.
"""

from collections.abc import Sequence
from typing import Any

from distlab.layouts.view import Bounds, Layout, Mesh, PlainTensorError

Ranges = list[tuple[int, int]]


def read_torch(obj: Any, shape: tuple[int, ...] | None, dtype: str | None) -> Layout:
    """Read a `DTensor`, its spec, or a tuple `(device_mesh, placements)`.

    Args:
        obj: What to read.
        shape: The global shape, needed for a tuple only.
        dtype: Name of the data type, for a tuple.

    Returns:
        The layout; devices are labelled `rank 0`, `rank 1` and so on.

    Raises:
        TypeError: If `obj` is a plain tensor, or a shape is missing.
        ValueError: If the placements do not fit the mesh or the shape, or give a rank pieces
            of a dimension that are not next to each other.
    """
    if isinstance(obj, tuple):
        device_mesh, placements = obj
        if shape is None:
            raise TypeError(
                "A mesh and placements say how to split a tensor but not which: give its shape, "
                "as in layout_of((mesh, [Shard(0)]), shape=(784, 512))."
            )
    elif hasattr(obj, "placements") and (hasattr(obj, "device_mesh") or hasattr(obj, "mesh")):
        device_mesh = getattr(obj, "device_mesh", None) or obj.mesh
        placements, shape = obj.placements, tuple(obj.shape)
        dtype = str(obj.dtype).removeprefix("torch.") if hasattr(obj, "dtype") else dtype
    else:
        raise PlainTensorError(
            f"A {type(obj).__name__} has no layout: it is a plain PyTorch object on one device. "
            "Expected a DTensor, as from distribute_tensor, or a tuple (device_mesh, placements)."
        )
    return _place(torch_mesh(device_mesh), placements, shape, dtype)


def torch_mesh(mesh: Any) -> Mesh:
    """Read a PyTorch `DeviceMesh`; axes without a name are called `axis0`, `axis1`."""
    names = mesh.mesh_dim_names or tuple(f"axis{i}" for i in range(mesh.ndim))
    ranks = mesh.mesh.flatten().tolist()
    axes = tuple(zip(names, (int(n) for n in mesh.mesh.shape), strict=True))
    return Mesh(axes, tuple(f"rank {rank}" for rank in ranks))


def _place(
    mesh: Mesh, placements: Sequence[Any], shape: tuple[int, ...], dtype: str | None
) -> Layout:
    if len(placements) != len(mesh.axes):
        raise ValueError(
            f"A mesh with {len(mesh.axes)} axes needs as many placements, "
            f"not {len(placements)}: {[str(p) for p in placements]}."
        )
    spec: list[list[str]] = [[] for _ in shape]
    partial = []
    cuts: list[tuple[str, int, int]] = []
    for name, placement in zip(mesh.names, placements, strict=True):
        kind = type(placement).__name__
        if placement.is_partial():
            partial.append(name)
        elif kind in ("Shard", "_StridedShard"):
            dimension = placement.dim + len(shape) if placement.dim < 0 else placement.dim
            if not 0 <= dimension < len(shape):
                raise ValueError(
                    f"{placement} splits dimension {placement.dim}, but a tensor of shape "
                    f"{list(shape)} has {len(shape)} dimensions."
                )
            spec[dimension].append(name)
            cuts.append((name, dimension, int(getattr(placement, "split_factor", 1))))
        elif not placement.is_replicate():
            raise ValueError(f"Placement {placement} is not one this view can show.")
    bounds = []
    for place in mesh.coordinates():
        held: list[Ranges] = [[(0, size)] for size in shape]
        for name, dimension, factor in cuts:
            held[dimension] = _share(held[dimension], mesh.size(name), place[name], factor)
        bounds.append(_bounds(held, placements))
    return Layout(
        shape, mesh, tuple(tuple(a) for a in spec), tuple(bounds), dtype, "", tuple(partial)
    )


def _share(ranges: Ranges, parts: int, index: int, factor: int) -> Ranges:
    """Return part `index` of `parts`, of each of `factor` pieces (1 but for a strided shard)."""
    pieces = (_chunk(ranges, factor, i) for i in range(factor))
    return [r for piece in pieces for r in _chunk(piece, parts, index)]


def _chunk(ranges: Ranges, parts: int, index: int) -> Ranges:
    """Return what `torch.chunk` makes of some ranges laid end to end."""
    total = sum(stop - start for start, stop in ranges)
    size = -(-total // parts)
    first, last = index * size, min((index + 1) * size, total)
    chunk = []
    offset = 0
    for start, stop in ranges:
        low, high = max(first - offset, 0), min(last - offset, stop - start)
        if low < high:
            chunk.append((start + low, start + high))
        offset += stop - start
    return chunk


def _bounds(held: list[Ranges], placements: Sequence[Any]) -> Bounds:
    bounds = []
    for ranges in held:
        merged: Ranges = []
        for start, stop in sorted(ranges):
            if merged and merged[-1][1] == start:
                merged[-1] = (merged[-1][0], stop)
            else:
                merged.append((start, stop))
        if len(merged) > 1:
            raise ValueError(
                f"Placements {[str(p) for p in placements]} give a rank several separate pieces "
                f"of one dimension, {merged}, which this view cannot show."
            )
        bounds.append(merged[0] if merged else (0, 0))
    return tuple(bounds)
