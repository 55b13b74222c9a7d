"""The tensor in a drawing: a rectangle cut into its slices, with the devices that hold them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from distlab.layouts.svg import GREY, INK, Picture, colours, in_rows, rect, text, text_width
from distlab.layouts.view import Layout

_SIDE = 150  # pixels of a tensor's longer side, when its labels need no more
_SHOWN = 16  # pieces along one side; of more, the middle is left out
_CHIP = 18  # height of a device's chip
CHIPS = 16  # devices shown in one slice; more are summed up
_DOTS = "\N{HORIZONTAL ELLIPSIS}"

_Ranges = dict[int | None, tuple[int, int]]  # of dimensions; None for a side that has none


def tensor_picture(layout: Layout) -> Picture:
    """Draw the tensor as a rectangle cut into its slices, each with its devices.

    The last two dimensions that are split go down and across. Whole dimensions are drawn together
    with a neighbour; dimensions split before the last two make separate rectangles, and so do
    summands that still have to be added up.
    """
    rank = len(layout.shape)
    is_split = [d for d in range(rank) if len(layout.cuts(d)) > 1]
    outer = is_split[:-2]
    first = outer[-1] + 1 if outer else 0
    if len(is_split) > 1 or (is_split and is_split[0] > 0):
        turn = is_split[-1]
    else:
        turn = first + 1 if rank > 1 else first
    down, across = _Side.of(layout, range(first, turn)), _Side.of(layout, range(turn, rank))
    panels = []
    for summand in range(layout.summands):
        for ranges in product(*(layout.cuts(d) for d in outer)):
            fixed: _Ranges = dict(zip(outer, ranges, strict=True))
            panels.append(_rectangle(layout, down, across, fixed, summand))
            down = replace(down, label=())  # once is enough
    per_row = len(layout.cuts(outer[-1])) if outer else len(panels)
    body = in_rows(panels, gap=16, columns=per_row)
    return Picture((text(0, 10, "tensor"), body.at(0, 18)), max(body.width, 60), body.height + 18)


@dataclass(frozen=True)
class _Side:
    """One side of the rectangle: some dimensions drawn as one, of which one may be cut.

    Attributes:
        extent: The dimensions' sizes multiplied.
        dimension: The one whose ranges are shown, or None for a side without dimensions.
        ranges: What it is cut into; None stands for those left out in the middle.
        label: The dimensions, their sizes, and the axes that split them.
        ticked: Whether to write the ranges' limits along the side.
    """

    extent: int
    dimension: int | None
    ranges: tuple[tuple[int, int] | None, ...]
    label: tuple[str, ...]
    ticked: bool

    @classmethod
    def of(cls, layout: Layout, dimensions: range) -> "_Side":
        if not dimensions:
            return cls(1, None, ((0, 1),), (), False)
        is_split = [d for d in dimensions if len(layout.cuts(d)) > 1]
        chosen = is_split[0] if is_split else dimensions[0]
        ranges: tuple[tuple[int, int] | None, ...] = tuple(layout.cuts(chosen))
        if len(ranges) > _SHOWN:
            ranges = (*ranges[:8], None, *ranges[-2:])
        sizes = layout.shape[dimensions[0] : dimensions[-1] + 1]
        if len(sizes) == 1:
            label = [f"dim {chosen}: {sizes[0]}"]
        else:
            names = f"dims {dimensions[0]}\N{EN DASH}{dimensions[-1]}"
            label = [f"{names}: " + " \N{MULTIPLICATION SIGN} ".join(map(str, sizes))]
        if is_split:
            axes = " and ".join(layout.spec[chosen])
            which = f"dim {chosen} " if len(sizes) > 1 else ""
            label.append(f"{which}over {axes}" if axes else f"{which}split")
        ticked = len(sizes) == 1 or bool(is_split)
        return cls(math.prod(sizes), chosen, ranges, tuple(label), ticked)

    def edges(self, length: int, least: int) -> list[tuple[int, int]]:
        """Return where each range starts and stops, in pixels; none is below `least` long."""
        total = sum(r[1] - r[0] for r in self.ranges if r) or 1
        edges = []
        position = 0
        for r in self.ranges:
            pixels = 22 if r is None else max(least, round(length * (r[1] - r[0]) / total))
            edges.append((position, position + pixels))
            position += pixels
        return edges

    def ticks(self, edges: Sequence[tuple[int, int]], room: int) -> list[tuple[int, str]]:
        """Return where to write which limit: as many as there is room for, and the last."""
        if not self.ticked:
            return []
        ticks: list[tuple[int, str]] = []
        for r, (start, _) in zip(self.ranges, edges, strict=True):
            if r and (not ticks or start - ticks[-1][0] >= room):
                ticks.append((start, str(r[0])))
        last = self.ranges[-1]
        assert last is not None
        while len(ticks) > 1 and edges[-1][1] - ticks[-1][0] < room:
            ticks.pop()
        return [*ticks, (edges[-1][1], str(last[1]))]


def _proportions(down: _Side, across: _Side) -> tuple[int, int]:
    """Width and height that tell a tall tensor from a wide one, without being true to scale."""
    if down.dimension is None:
        return (_SIDE, 0) if across.dimension is not None else (0, 0)
    ratio = (max(down.extent, 1) / max(across.extent, 1)) ** 0.4
    ratio = min(max(ratio, 0.4), 2.5)
    return (round(_SIDE / ratio), _SIDE) if ratio > 1 else (_SIDE, round(_SIDE * ratio))


def _rectangle(layout: Layout, down: _Side, across: _Side, fixed: _Ranges, summand: int) -> Picture:
    labels = layout.mesh.short_labels()
    chip = max(map(text_width, labels)) + 9
    most = max(layout.copies, 1)
    if most > CHIPS:
        most, chip = 1, text_width(_summary(range(-most, 0), labels)) + 12
    abreast = min(most, {1: 4, 2: 4, 3: 2, 4: 2}.get(len(across.ranges), 1))
    wide, high = _proportions(down, across)
    xs = across.edges(wide, abreast * (chip + 3) + 7)
    ys = down.edges(high, -(-most // abreast) * (_CHIP + 3) + 7)

    headings = [f"summand {summand} of {layout.summands}"] if layout.partial else []
    headings += [f"dim {d}: {start} to {stop}" for d, (start, stop) in fixed.items()]
    heading = ", ".join(headings)
    above = ", ".join(across.label)
    column_ticks = across.ticks(xs, 12 + max(text_width(str(n), 10) for n in layout.shape or (0,)))
    row_ticks = down.ticks(ys, 12)
    label_end = max(map(text_width, down.label), default=0)
    left = label_end + 12 * bool(down.label)
    left += max((text_width(words, 10) + 4 for _, words in row_ticks), default=0)
    top = 16 * bool(heading) + 15 * bool(above) + 14 * bool(column_ticks) + 2

    elements = [text(left, 11, heading)] if heading else []
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
    fills = colours(layout)
    for (rows, (y0, y1)), (columns, (x0, x1)) in product(
        zip(down.ranges, ys, strict=True), zip(across.ranges, xs, strict=True)
    ):
        middle_x, middle_y = left + (x0 + x1) // 2, top + (y0 + y1) // 2
        if rows is None or columns is None:
            elements.append(text(middle_x, middle_y + 4, _DOTS, anchor="middle"))
            continue
        cut = {**fixed, down.dimension: rows, across.dimension: columns}
        part = tuple(cut.get(d, (0, size)) for d, size in enumerate(layout.shape)), summand
        boxes.append(rect(left + x0, top + y0, x1 - x0, y1 - y0, fills.get(part, "none")))
        holders = layout.parts.get(part, ())
        shown = [labels[i] for i in holders]
        if len(shown) > CHIPS:
            shown = [_summary(holders, labels)]
        stacks = [shown[i : i + abreast] for i in range(0, len(shown), abreast)]
        y = middle_y - (len(stacks) * (_CHIP + 3) - 3) // 2
        for stack in stacks:
            x = middle_x - (len(stack) * (chip + 3) - 3) // 2
            for label in stack:
                chips.append(rect(x, y, chip, _CHIP, "#fff", radius=4))
                names.append(text(x + chip // 2, y + 13, label))
                x += chip + 3
            y += _CHIP + 3
    elements.append(f'<g stroke="{GREY}">{"".join(boxes)}</g><g fill-opacity=".75">')
    elements.append(
        f'{"".join(chips)}</g><g fill="{INK}" text-anchor="middle">{"".join(names)}</g>'
    )
    width = left + max(xs[-1][1] + 10 * bool(column_ticks), text_width(above), text_width(heading))
    return Picture(tuple(elements), width, top + ys[-1][1] + 6 * bool(row_ticks) + 1)


def _summary(holders: Sequence[int], labels: Sequence[str]) -> str:
    first, second, last = (labels[holders[i]] for i in (0, 1, -1))
    return f"{first}, {second} {_DOTS} {last}"
