"""Meshes and layouts as pictures: SVG in a notebook, text elsewhere."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distlab.errors import of_type
from distlab.layouts import svg
from distlab.layouts.blocks import mesh_block, tensor_block
from distlab.layouts.readers import is_mesh, layout_of, mesh_of
from distlab.layouts.tints import Tints
from distlab.layouts.view import Layout, Mesh, index_text

SLICES = 16  # listed in text; the picture shows the rest


@dataclass(frozen=True)
class Drawing:
    """A picture that a notebook shows, and a terminal prints as text.

    Attributes:
        svg: The picture, a complete SVG document.
        text: The same in words.
    """

    svg: str
    text: str

    def _repr_html_(self) -> str:
        return svg.image(self.svg, self._description)

    @property
    def _description(self) -> str:
        return self.text.partition("\n")[0]

    def __repr__(self) -> str:
        return self.text

    def save(self, path: str | Path) -> None:
        """Write the picture to an SVG file."""
        Path(path).write_text(self.svg, encoding="utf-8")


def draw(
    *objects: Any,
    shape: Sequence[int] | None = None,
    title: str | Sequence[str] | None = None,
    colour_by: int | None = None,
) -> Drawing:
    """Draw meshes and layouts, side by side when there are several.

    A layout is drawn as its tensor, cut into slices with the devices that hold them, and as the
    mesh, each device in the colour of the slice it holds. Devices of one colour hold copies of
    the same slice. A mesh alone is drawn as its devices in a grid. What still has to be added up
    (PyTorch's `Partial`) is drawn as its summands, each on the devices that hold it.

    Args:
        *objects: One or more meshes, layouts, or whatever `layout_of` reads.
        shape: The tensor's shape, for objects that hold a layout but no tensor.
        title: What to write above the drawing; a list of titles for several. The default is
            the variable's path, or the type and shape.
        colour_by: A dimension: the same indices along it get the same colour in all pictures, which
            shows what moves from one layout to the next. A slice then has as many stripes as the
            finest layout cuts it into. By default each slice has a colour of its own.

    Returns:
        The drawing; it shows itself as the last expression of a notebook cell.

    Raises:
        TypeError: If an object has no layout (see `layout_of`), or there is none; if `title` is
            no text, or `colour_by` no number.
        ValueError: If a layout does not fit the shape, there are more or fewer titles than
            objects, or a tensor has no dimension `colour_by` or has it in another size.

    Example:
        >>> mesh = Mesh((("data", 2), ("model", 2)), ("cpu:0", "cpu:1", "cpu:2", "cpu:3"))
        >>> draw(mesh)
        mesh of 4 devices: data=2, model=2
                model 0  model 1
        data 0  cpu:0    cpu:1
        data 1  cpu:2    cpu:3
    """
    if not objects:
        raise TypeError("draw() needs at least one mesh, or array, variable or sharding.")
    titles: Sequence[str | None]
    titles = [title] if isinstance(title, str) else [None] * len(objects)
    if title is not None and not isinstance(title, str):
        if not isinstance(title, Sequence) or not all(isinstance(t, str | None) for t in title):
            raise TypeError(f"title must be a string, or a list of strings, not {of_type(title)}.")
        titles = title
    if len(titles) != len(objects):
        raise ValueError(f"{len(objects)} objects were given, but {len(titles)} titles.")
    views = [mesh_of(obj) if is_mesh(obj) else layout_of(obj, shape) for obj in objects]
    tints = Tints.along(colour_by, [view for view in views if isinstance(view, Layout)])
    pictures, texts = [], []
    for view, heading in zip(views, titles, strict=True):
        if isinstance(view, Mesh):
            pictures.append(_captioned(heading or str(view), [mesh_block(view)], []))
            texts.append(_titled(heading, mesh_text(view)))
        else:
            blocks = [tensor_block(view, tints)]
            if len(view.mesh.devices) > 1:
                blocks.append(mesh_block(view.mesh, view, tints))
            caption = [sentence(view.words), f"{size_words(view)}"]
            pictures.append(_captioned(heading or _type_text(view), blocks, caption))
            texts.append(_titled(heading, layout_text(view)))
    whole = svg.in_rows(pictures, gap=24)
    words = "\n\n".join(texts)
    return Drawing(svg.document(whole, words.partition("\n")[0]), words)


def _captioned(heading: str, blocks: Sequence[svg.Picture], caption: Sequence[str]) -> svg.Picture:
    body = svg.in_rows(blocks, gap=26)
    width = max(body.width, svg.text_width(heading, 13) + 8, 240 if caption else 0)
    lines = [line for part in caption for line in textwrap.wrap(part, max(30, int(width / 5.9)))]
    bold = 'font-size="13" font-weight="600"'
    elements = [svg.text(0, 12, heading, more=bold), body.at(0, 26)]
    y = 26 + body.height
    for line in lines:
        y += 16
        elements.append(svg.text(0, y, line))
    return svg.Picture(tuple(elements), width, y + 2)


def _titled(heading: str | None, words: str) -> str:
    return f"{heading}\n{words}" if heading else words


def sentence(words: str) -> str:
    """Return `words` with a capital and a full stop."""
    return f"{words[:1].upper()}{words[1:]}."


def _type_text(layout: Layout) -> str:
    kind = f"{layout.dtype or ''}{list(layout.shape)}" if layout.shape else layout.dtype or "scalar"
    return f"{layout.name}  {kind}" if layout.name else kind


def size_words(layout: Layout) -> str:
    """Return what a device holds of the tensor, in words: its shape and its bytes."""
    if layout.is_whole and layout.partial:
        total = "" if layout.bytes_total is None else f": {bytes_text(layout.bytes_total)}"
        return f"Each device holds a summand of the full size{total}."
    if layout.is_whole:
        total = "" if layout.bytes_total is None else f": {bytes_text(layout.bytes_total)}"
        return f"{'Each' if len(layout.bounds) > 1 else 'The'} device holds all of it{total}."
    shard = f"Each device holds {list(layout.shard_shape)}"
    if _uneven(layout):
        shard = f"A device holds {list(layout.shard_shape)} at most"
    if layout.bytes_per_device is None or layout.bytes_total is None:
        return f"{shard}."
    part = layout.bytes_per_device
    return f"{shard}: {bytes_text(part)} of {bytes_text(layout.bytes_total, like=part)}."


def _uneven(layout: Layout) -> bool:
    return len({tuple(stop - start for start, stop in bounds) for bounds in layout.bounds}) > 1


def bytes_text(count: int, like: int | None = None) -> str:
    """Write a number of bytes: `4,096 B`, `392 KiB`, `1.53 MiB`.

    Args:
        count: The number.
        like: Another, whose unit is to be used: two numbers in one unit are easily compared.
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
    lines = [
        f"{_type_text(layout)} on {len(layout.mesh.devices)} device"
        f"{'s' * (len(layout.mesh.devices) > 1)}: {layout.mesh}",
        sentence(layout.words),
        size_words(layout),
    ]
    rows = []
    for (bounds, summand), holders in layout.parts.items():
        index = index_text(bounds, layout.shape)
        index += f"  summand {summand} of {layout.summands}" if layout.partial else ""
        rows.append((index, [layout.mesh.devices[i] for i in holders]))
    width = max((len(index) for index, _ in rows[:SLICES]), default=0)
    lines += [f"  {index:<{width}}  {devices_text(names)}" for index, names in rows[:SLICES]]
    if len(rows) > SLICES:
        lines.append(f"  and {len(rows) - SLICES} more slices")
    return "\n".join(lines)


def devices_text(labels: Sequence[str]) -> str:
    """Return a list of devices, shortened when it is long."""
    if len(labels) <= 8:
        return ", ".join(labels)
    return f"{', '.join(labels[:4])}, ..., {labels[-1]} ({len(labels)} devices)"


def mesh_text(mesh: Mesh) -> str:
    """Return a mesh as a table of its devices: the last axis across, the others down."""
    count = len(mesh.devices)
    lines = [f"mesh of {count} device{'s' * (count > 1)}: {mesh}"]
    across, size = mesh.axes[-1] if mesh.axes else ("", 1)
    rows = [mesh.devices[i : i + size] for i in range(0, count, size)]
    places = mesh.coordinates()[::size]
    heads = [
        ", ".join(f"{name} {index}" for name, index in place.items() if name != across)
        for place in places
    ]
    top = [f"{across} {i}" for i in range(size)]
    table = [["", *top], *([head, *row] for head, row in zip(heads, rows, strict=True))]
    if size > SLICES:
        table = [[*row[:5], "...", row[-1]] for row in table]
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    for row in table:
        cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
