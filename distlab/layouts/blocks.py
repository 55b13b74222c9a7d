"""The two halves of a layout's picture: the tensor cut into slices, and the mesh of devices."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from distlab.layouts.sides import SHOWN, Side, proportions
from distlab.layouts.svg import (
    GREY,
    INK,
    NEUTRAL,
    Picture,
    in_rows,
    rect,
    striped,
    text,
    text_width,
)
from distlab.layouts.tints import Stripes, Tints
from distlab.layouts.view import Layout, Mesh

CHIP = 18  # height of a device's chip
CHIPS = 16  # devices shown in one slice; more are summed up
EMPTY: Stripes = ()


def mesh_block(mesh: Mesh, layout: Layout | None = None, tints: Tints | None = None) -> Picture:
    """Draw the devices in a grid, in the colours of the slices they hold.

    The last axis goes across and the one before it down; each further axis makes separate grids.

    Args:
        mesh: The devices.
        layout: What they hold, if anything.
        tints: The colours; by default each slice has its own.
    """
    labels = mesh.short_labels()
    prefix = mesh.devices[0].removesuffix(labels[0]).rstrip(": ")
    rows = mesh.shape[-2] if len(mesh.shape) > 1 else 1
    columns = mesh.shape[-1] if mesh.shape else 1
    fills: list[Stripes] = [((NEUTRAL, 1),)] * len(labels)
    if layout:
        colours = (tints or Tints()).of(layout)
        held = zip(layout.bounds, layout.summand_of, strict=True)
        fills = [colours.get(part, EMPTY) for part in held]
    step = rows * columns
    outer = mesh.axes[:-2]
    grids = []
    for i, place in enumerate(product(*(range(size) for _, size in outer))):
        part = slice(i * step, (i + 1) * step)
        heading = ", ".join(f"{name} {k}" for (name, _), k in zip(outer, place, strict=True))
        grids.append(_grid(mesh, labels[part], fills[part], (rows, columns), heading, not i))
    per_row = outer[-1][1] if outer else 1
    body = in_rows(grids, gap=14, columns=per_row)
    what = f"devices ({prefix})" if prefix and labels != mesh.devices else "devices"
    what = "ranks" if prefix == "rank" else what
    return Picture((text(0, 10, what), body.at(0, 18)), max(body.width, 70), body.height + 18)


def _grid(
    mesh: Mesh,
    labels: Sequence[str],
    fills: Sequence[Stripes],
    shape: tuple[int, int],
    heading: str,
    named: bool,
) -> Picture:
    """Draw some rows of devices; `named` is whether to name the axes beside them."""
    rows, columns = shape
    if rows == 1 and columns > SHOWN:  # one long axis: goes on in the next line
        columns = 8
        rows = -(-len(labels) // columns)
    width = max(26, max(text_width(label) for label in labels) + 11)
    height = 26
    left = top = 0
    across = ""
    elements = []
    if heading:
        elements.append(text(0, 11, heading))
        top = 16
    if mesh.axes and not named:
        top += 17
    elif mesh.axes:
        across = "{} = {}".format(*mesh.axes[-1])
        down = "{} = {}".format(*mesh.axes[-2]) if len(mesh.axes) > 1 else ""
        left = text_width(down) + 8 if down else 0
        across += " \N{RIGHTWARDS ARROW}"
        elements.append(text(left, top + 11, across))
        top += 17
        if down:
            elements.append(text(0, top + 17, down))
            elements.append(text(left // 2 - 4, top + 32, "\N{DOWNWARDS ARROW}"))
    boxes, names = [], []
    for i, (label, fill) in enumerate(zip(labels, fills, strict=True)):
        x, y = left + i % columns * (width + 3), top + i // columns * (height + 3)
        if fill == EMPTY:
            dashes = 'stroke-dasharray="3 2"'
            boxes.append(rect(x, y, width, height, "none", radius=5, more=dashes))
        else:
            boxes.append(striped((x, y, width, height), fill, radius=5))
        kind = f'fill="{GREY}"' if fill == EMPTY else ""
        names.append(text(x + width // 2, y + 17, label, more=kind))
    elements.append(f'<g stroke="{GREY}">{"".join(boxes)}</g>')
    elements.append(f'<g fill="{INK}" text-anchor="middle">{"".join(names)}</g>')
    wide = left + max(columns * (width + 3) - 2, text_width(across), text_width(heading) - left)
    high = max(top + rows * (height + 3) - 2, top + 34 * (left > 0))
    return Picture(tuple(elements), wide, high)


def tensor_block(layout: Layout, tints: Tints | None = None) -> Picture:
    """Draw the tensor as a rectangle cut into its slices, each with its devices.

    The last two dimensions that are split go down and across. Whole dimensions are drawn together
    with a neighbour; dimensions split before the last two make separate rectangles, and so do
    summands that still have to be added up.

    Args:
        layout: What to draw.
        tints: The colours; by default each slice has its own.
    """
    rank = len(layout.shape)
    is_split = [d for d in range(rank) if len(layout.cuts(d)) > 1]
    outer = is_split[:-2]
    first = outer[-1] + 1 if outer else 0
    if len(is_split) > 1 or (is_split and is_split[0] > 0):
        turn = is_split[-1]
    else:
        turn = first + 1 if rank > 1 else first
    down, across = Side.of(layout, range(first, turn)), Side.of(layout, range(turn, rank))
    panels = []
    for summand in _shown(layout.summands):
        if summand is None:
            panels.append(Picture((text(0, 60, "\N{HORIZONTAL ELLIPSIS}"),), 12, 60))
            continue
        for ranges in product(*(layout.cuts(d) for d in outer)):
            fixed = dict(zip(outer, ranges, strict=True))
            panels.append(_rectangle(layout, down, across, fixed, summand, tints or Tints()))
            down = replace(down, label=())  # once is enough
    per_row = len(layout.cuts(outer[-1])) if outer else len(panels)
    body = in_rows(panels, gap=16, columns=per_row)
    return Picture((text(0, 10, "tensor"), body.at(0, 18)), max(body.width, 60), body.height + 18)


def _shown(summands: int) -> list[int | None]:
    """Which summands to draw; None stands for those left out in the middle."""
    return [*range(summands)] if summands <= 8 else [*range(6), None, summands - 1]


def _rectangle(
    layout: Layout,
    down: Side,
    across: Side,
    fixed: dict[int, tuple[int, int]],
    summand: int,
    tints: Tints,
) -> Picture:
    labels = layout.mesh.short_labels()
    chip = max(text_width(label) for label in labels) + 9
    most = layout.copies
    if most > CHIPS:
        most, chip = 1, text_width(_summary(range(-most, 0), labels)) + 12
    abreast = min(most, {1: 4, 2: 4, 3: 2, 4: 2}.get(len(across.ranges), 1))
    wide, high = proportions(down, across)
    xs = across.edges(wide, abreast * (chip + 3) + 7)
    ys = down.edges(high, -(-most // abreast) * (CHIP + 3) + 7)

    headings = [f"summand {summand} of {layout.summands}"] if layout.partial else []
    headings += [f"dim {d}: {start} to {stop}" for d, (start, stop) in fixed.items()]
    heading = ", ".join(headings)
    above = ", ".join(across.label)
    column_ticks = across.ticks(xs, 12 + max(text_width(str(n), 10) for n in layout.shape or (0,)))
    row_ticks = down.ticks(ys, 12)
    label_end = max((text_width(line) for line in down.label), default=0)
    left = label_end + 12 * bool(down.label)
    left += max((text_width(words, 10) + 4 for _, words in row_ticks), default=0)
    top = 16 * bool(heading) + 15 * bool(above) + 14 * bool(column_ticks) + 2

    elements = []
    if heading:
        elements.append(text(left, 11, heading))
    if above:
        elements.append(text(left, 16 * bool(heading) + 11, above))
    middle = top + ys[-1][1] // 2 + 4 - 7 * (len(down.label) - 1)
    for i, line in enumerate(down.label):
        elements.append(text(label_end, middle + 14 * i, line, anchor="end"))
    ticks = [text(left + x, top - 4, words, anchor="middle") for x, words in column_ticks]
    ticks += [text(left - 5, top + y + 4, words, anchor="end") for y, words in row_ticks]
    if ticks:
        elements.append(f'<g font-size="10">{"".join(ticks)}</g>')
    boxes, chips, names = [], [], []
    colours = tints.of(layout)
    for (rows, (y0, y1)), (columns, (x0, x1)) in product(
        zip(down.ranges, ys, strict=True), zip(across.ranges, xs, strict=True)
    ):
        middle_x, middle_y = left + (x0 + x1) // 2, top + (y0 + y1) // 2
        if rows is None or columns is None:
            elements.append(
                text(middle_x, middle_y + 4, "\N{HORIZONTAL ELLIPSIS}", anchor="middle")
            )
            continue
        cut = dict(fixed)
        for side, chosen in ((down, rows), (across, columns)):
            if side.dimension is not None and len(side.ranges) > 1:
                cut[side.dimension] = chosen
        bounds = tuple(cut.get(d, (0, size)) for d, size in enumerate(layout.shape))
        holders = layout.parts.get((bounds, summand), ())
        fill = colours.get((bounds, summand), (("none", 1),))
        box = left + x0, top + y0, x1 - x0, y1 - y0
        boxes.append(striped(box, fill, down=tints.dimension in down.dimensions))
        shown = [labels[i] for i in holders]
        if len(shown) > CHIPS:
            shown = [_summary(holders, labels)]
        stacks = [shown[i : i + abreast] for i in range(0, len(shown), abreast)]
        y = middle_y - (len(stacks) * (CHIP + 3) - 3) // 2
        for stack in stacks:
            x = middle_x - (len(stack) * (chip + 3) - 3) // 2
            for label in stack:
                chips.append(rect(x, y, chip, CHIP, "#fff", radius=4))
                names.append(text(x + chip // 2, y + 13, label))
                x += chip + 3
            y += CHIP + 3
    elements.append(f'<g stroke="{GREY}">{"".join(boxes)}</g><g fill-opacity=".75">')
    elements.append(
        f'{"".join(chips)}</g><g fill="{INK}" text-anchor="middle">{"".join(names)}</g>'
    )
    width = left + max(xs[-1][1] + 10 * bool(column_ticks), text_width(above), text_width(heading))
    return Picture(tuple(elements), width, top + ys[-1][1] + 6 * bool(row_ticks) + 1)


def _summary(holders: Sequence[int], labels: Sequence[str]) -> str:
    first, second, last = (labels[holders[i]] for i in (0, 1, -1))
    return f"{first}, {second} \N{HORIZONTAL ELLIPSIS} {last}"
