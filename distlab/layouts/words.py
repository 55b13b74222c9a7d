"""Layouts and meshes in words: as a phrase, as a sentence, as the text of a drawing."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from distlab.layouts.view import Bounds, Layout, Mesh, extent
from distlab.tables import aligned

_SLICES = 16  # listed in a text, and devices in a row of one; of more, some are left out


def sentence(layout: Layout) -> str:
    """Return a layout as a sentence: how it is cut, and how many copies there are."""
    words = ", ".join(_phrases(layout))
    return f"{words[:1].upper()}{words[1:]}."


def _phrases(layout: Layout) -> Iterator[str]:
    devices = len(layout.mesh.devices)
    if not layout.is_whole:
        yield from _dimensions(layout)
        yield f"each slice on {layout.copies} device{'s' * (layout.copies != 1)}"
    elif layout.partial:
        yield f"{layout.summands} summand{'s' * (layout.summands != 1)} of the full size"
        yield f"{_copies(layout)} of each"
    else:
        yield "on one device" if devices == 1 else f"replicated on {devices} devices"
    if empty := _empty(layout):
        yield f"{empty} device{'s hold' if empty > 1 else ' holds'} nothing"
    if layout.partial:
        what = "" if layout.is_whole else f"{layout.summands} summands "
        yield f"{what}still to be added up over {' and '.join(layout.partial)}"


def _dimensions(layout: Layout) -> Iterator[str]:
    dimensions = range(len(layout.shape))
    for is_cut, run in groupby(dimensions, lambda dimension: _is_cut(layout, dimension)):
        first, *others = run
        if not is_cut and others:
            yield f"dimensions {first} to {others[-1]} not sharded"
        elif not is_cut:
            yield f"dimension {first} not sharded"
        else:
            for dimension in (first, *others):
                cuts = layout.cuts(dimension)
                unequal = len({stop - start for start, stop in cuts}) > 1
                ways = f"in {len(cuts)} unequal parts" if unequal else f"{len(cuts)} ways"
                ways = ways if cuts[1:] else "in one part"
                yield f"dimension {dimension} sharded {ways}{_over(layout, dimension)}"


def _is_cut(layout: Layout, dimension: int) -> bool:
    """Whether a dimension is cut, or is too small to be: then some devices hold nothing."""
    return len(layout.cuts(dimension)) > 1 or bool(layout.spec[dimension] and _empty(layout))


def _empty(layout: Layout) -> int:
    """How many devices hold nothing of a tensor that is not empty."""
    holders = sum(map(len, layout.parts.values()))
    return holders and len(layout.mesh.devices) - holders


def _over(layout: Layout, dimension: int) -> str:
    axes = " and ".join(layout.spec[dimension])
    return f" over {axes}" if axes else ""


def _copies(layout: Layout) -> str:
    return f"{layout.copies} cop{'y' if layout.copies == 1 else 'ies'}"


def in_few_words(layout: Layout) -> str:
    """Return a layout for a cell of a table: `dim 1 in 4 over model, 2 copies`."""
    parts = [
        f"dim {dimension} in {len(layout.cuts(dimension))}{_over(layout, dimension)}"
        for dimension in range(len(layout.shape))
        if _is_cut(layout, dimension)
    ]
    if not parts:
        parts = ["replicated" if layout.copies > 1 and not layout.partial else "not sharded"]
    parts.append(_copies(layout))
    if empty := _empty(layout):
        parts.append(f"{empty} device{'s hold' if empty > 1 else ' holds'} nothing")
    if layout.partial:
        axes = " and ".join(layout.partial)
        parts.append(f"{layout.summands} summands to be added up over {axes}")
    return ", ".join(parts)


def kind(layout: Layout) -> str:
    """Return the name, the type and the shape of a tensor: `d1/kernel  float32[784, 512]`."""
    shape = str(list(layout.shape)) if layout.shape else ""
    typed = f"{layout.dtype or ''}{shape}" or "scalar"
    return f"{layout.name}  {typed}" if layout.name else typed


def share(layout: Layout) -> str:
    """Return what a device holds of the tensor: its shape and its bytes."""
    part, total = layout.bytes_per_device, layout.bytes_total
    if layout.is_whole:
        who = "Each" if len(layout.bounds) > 1 or layout.partial else "The"
        what = "a summand of the full size" if layout.partial else "all of it"
        return f"{who} device holds {what}{'' if total is None else f': {bytes_text(total)}'}."
    shard = f"Each device holds {list(layout.shard_shape)}"
    if len(set(map(extent, layout.bounds))) > 1:
        shard = f"A device holds {list(layout.shard_shape)} at most"
    if part is None or total is None:
        return f"{shard}."
    return f"{shard}: {bytes_text(part)} of {bytes_text(total, like=part)}."


def bytes_text(count: int, like: int | None = None) -> str:
    """Write a number of bytes: `4,096 B`, `392 KiB`, `1.53 MiB`.

    In the unit of another number, `like`, if there is one: so the two are easily compared.
    """
    size = count if like is None else like
    if size < 10_000:
        return f"{count:,} B"
    power = next((p for p in (1, 2) if size / 2 ** (10 * p) < 1000), 3)
    number = count / 2 ** (10 * power)
    digits = f"{number:.3g}" if number < 1000 else f"{number:,.0f}"
    return f"{digits} {('KiB', 'MiB', 'GiB')[power - 1]}"


def layout_text(layout: Layout) -> str:
    """Return a layout as text: in words, then each slice and the devices that hold it."""
    devices = layout.mesh.devices
    lines = [
        f"{kind(layout)} on {len(devices)} device{'s' * (len(devices) > 1)}: {layout.mesh}",
        sentence(layout),
        share(layout),
    ]
    rows = []
    for (bounds, summand), holders in list(layout.parts.items())[:_SLICES]:
        index = _index(bounds, layout.shape)
        index += f"  summand {summand} of {layout.summands}" if layout.partial else ""
        rows.append((index, _listed([devices[i] for i in holders])))
    width = max((len(index) for index, _ in rows), default=0)
    lines += [f"  {index:<{width}}  {names}" for index, names in rows]
    if len(layout.parts) > _SLICES:
        lines.append(f"  and {len(layout.parts) - _SLICES} more slices")
    return "\n".join(lines)


def _index(bounds: Bounds, shape: Sequence[int]) -> str:
    """Write a slice as a NumPy index: `[:, 0:128]`, or `[...]` for a scalar."""
    parts = [
        ":" if (start, stop) == (0, size) else f"{start}:{stop}"
        for (start, stop), size in zip(bounds, shape, strict=True)
    ]
    return f"[{', '.join(parts) or '...'}]"


def _listed(labels: Sequence[str]) -> str:
    if len(labels) <= 8:
        return ", ".join(labels)
    return f"{', '.join(labels[:4])}, ..., {labels[-1]} ({len(labels)} devices)"


def mesh_text(mesh: Mesh) -> str:
    """Return a mesh as a table of its devices: the last axis across, the others down."""
    count = len(mesh.devices)
    across, size = mesh.axes[-1] if mesh.axes else ("", 1)
    table = [["", *(f"{across} {i}" for i in range(size))]]
    for start, place in zip(range(0, count, size), mesh.coordinates()[::size], strict=True):
        head = ", ".join(f"{name} {index}" for name, index in place.items() if name != across)
        table.append([head, *mesh.devices[start : start + size]])
    if size > _SLICES:
        table = [[*row[:5], "...", row[-1]] for row in table]
    return f"mesh of {count} device{'s' * (count > 1)}: {mesh}\n{aligned(table)}"
