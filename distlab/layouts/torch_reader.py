"""Read a `Layout` from PyTorch's DTensor: a device mesh and one placement per mesh axis.

PyTorch cuts as `torch.chunk` does: dimensions need not divide, and the last ranks may hold less
or nothing. Several axes may cut one dimension, each cutting what the axis before it left.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

from distlab.layouts.no_layout import needs_shape, no_layout
from distlab.layouts.view import Layout, Mesh


def read_torch(obj: Any, shape: tuple[int, ...] | None) -> Layout:
    """Read a `DTensor`, or `(device_mesh, placements)` (of a tensor of `shape`)."""
    dtype = None
    if isinstance(obj, tuple):
        device_mesh, placements = obj
        if shape is None:
            raise needs_shape(obj)
    elif hasattr(obj, "placements"):
        device_mesh, placements, shape = obj.device_mesh, obj.placements, tuple(obj.shape)
        dtype = str(obj.dtype).removeprefix("torch.")
    else:
        raise no_layout(obj, ": it is a plain PyTorch object on one device", plain=True)
    return _place(torch_mesh(device_mesh), placements, shape, dtype)


def torch_mesh(mesh: Any) -> Mesh:
    """Read a PyTorch `DeviceMesh`; axes without a name are called `axis0`, `axis1`."""
    names = mesh.mesh_dim_names or tuple(f"axis{i}" for i in range(mesh.ndim))
    axes = tuple(zip(names, (int(n) for n in mesh.mesh.shape), strict=True))
    return Mesh(axes, tuple(f"rank {rank}" for rank in mesh.mesh.flatten().tolist()))


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
        if placement.is_partial():
            partial.append(name)
        elif type(placement).__name__ in ("Shard", "_StridedShard"):
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
        held: list[Sequence[int]] = [range(size) for size in shape]
        for name, dimension, factor in cuts:
            # A strided shard takes its part of each of `factor` pieces.
            pieces = [_chunk(held[dimension], factor, i) for i in range(factor)]
            parts = [_chunk(piece, mesh.size(name), place[name]) for piece in pieces]
            held[dimension] = parts[0] if factor == 1 else list(chain(*parts))
        if any(each and each[-1] - each[0] >= len(each) for each in held):
            raise ValueError(
                f"Placements {[str(p) for p in placements]} give a rank several separate pieces "
                "of one dimension, which this view cannot show."
            )
        bounds.append(tuple((each[0], each[-1] + 1) if each else (0, 0) for each in held))
    return Layout(
        shape, mesh, tuple(map(tuple, spec)), tuple(bounds), dtype, partial=tuple(partial)
    )


def _chunk(indices: Sequence[int], parts: int, index: int) -> Sequence[int]:
    """Return what `torch.chunk` does: ever the same size, rounded up, until nothing is left."""
    size = -(-len(indices) // parts)
    return indices[index * size : (index + 1) * size]
