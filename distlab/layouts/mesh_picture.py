"""The mesh in a drawing: a grid of devices, each in the colour of the slice it holds."""

from collections.abc import Sequence

from distlab.layouts import svg
from distlab.layouts.view import Layout, Mesh

_SHOWN = 16  # devices of one axis in a line; more go on in the next


def mesh_picture(mesh: Mesh, layout: Layout | None = None) -> svg.Picture:
    """Draw the devices in a grid, in the colours of the slices they hold.

    The last axis goes across and the one before it down; each further axis makes separate grids.
    Without a layout the devices hold nothing.
    """
    labels = mesh.short_labels()
    prefix = mesh.devices[0].removesuffix(labels[0]).rstrip(": ")
    rows, columns = (1, 1, *mesh.shape)[-2:]
    fills: list[str | None] = [svg.NEUTRAL] * len(labels)
    if layout:
        held = zip(layout.bounds, layout.summand_of, strict=True)
        fills = list(map(svg.colours(layout).get, held))
    step = rows * columns
    outer = mesh.axes[:-2]
    grids = []
    for i, place in enumerate(mesh.coordinates()[::step]):
        part = slice(i * step, (i + 1) * step)
        heading = ", ".join(f"{name} {place[name]}" for name, _ in outer)
        grids.append(_grid(mesh, labels[part], fills[part], heading, named=not i))
    body = svg.in_rows(grids, gap=14, columns=outer[-1][1] if outer else 1)
    what = f"devices ({prefix})" if prefix and labels != mesh.devices else "devices"
    what = "ranks" if prefix == "rank" else what
    elements = (svg.text(0, 10, what), body.at(0, 18))
    return svg.Picture(elements, max(body.width, 70, svg.text_width(what)), body.height + 18)


def _grid(
    mesh: Mesh, labels: Sequence[str], fills: Sequence[str | None], heading: str, *, named: bool
) -> svg.Picture:
    """Draw the devices of the last two axes; `named` is whether to name the axes beside them."""
    rows, columns = (1, 1, *mesh.shape)[-2:]
    if rows == 1 and columns > _SHOWN:
        columns = 8
        rows = -(-len(labels) // columns)
    width, height = max(26, max(map(svg.text_width, labels)) + 11), 26
    left, top = 0, 16 * bool(heading)
    across = ""
    elements = [svg.text(0, 11, heading)] if heading else []
    if mesh.axes and named:
        across = "{} = {} \N{RIGHTWARDS ARROW}".format(*mesh.axes[-1])
        down = "{} = {}".format(*mesh.axes[-2]) if len(mesh.axes) > 1 else ""
        left = svg.text_width(down) + 8 if down else 0
        elements.append(svg.text(left, top + 11, across))
        if down:
            elements.append(svg.text(0, top + 34, down))
            elements.append(svg.text(left // 2 - 4, top + 49, "\N{DOWNWARDS ARROW}"))
    top += 17 * bool(mesh.axes)
    boxes, names = [], []
    for i, (label, fill) in enumerate(zip(labels, fills, strict=True)):
        x, y = left + i % columns * (width + 3), top + i // columns * (height + 3)
        more = "" if fill else 'stroke-dasharray="3 2"'
        boxes.append(svg.rect(x, y, width, height, fill or "none", radius=5, more=more))
        more = "" if fill else f'fill="{svg.GREY}"'
        names.append(svg.text(x + width // 2, y + 17, label, more=more))
    elements.append(f'<g stroke="{svg.GREY}">{"".join(boxes)}</g>')
    elements.append(f'<g fill="{svg.INK}" text-anchor="middle">{"".join(names)}</g>')
    wide = left + max(columns * (width + 3) - 2, svg.text_width(across))
    wide = max(wide, svg.text_width(heading))
    high = max(top + rows * (height + 3) - 2, top + 34 * (left > 0))
    return svg.Picture(tuple(elements), wide, high)
