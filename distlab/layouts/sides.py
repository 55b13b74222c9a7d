"""The sides of a tensor's rectangle: which dimensions they stand for, and where these are cut."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from distlab.layouts.view import Layout

SIDE = 150  # pixels of a tensor's longer side, when its labels need no more
SHOWN = 16  # pieces along one side; of more, the middle is left out


@dataclass(frozen=True)
class Side:
    """One side of the rectangle: some dimensions drawn as one, of which one may be cut.

    Attributes:
        extent: The dimensions' sizes multiplied.
        dimension: The one whose ranges are shown, or None for a side without dimensions.
        ranges: What it is cut into; None stands for those left out in the middle.
        label: The dimensions, their sizes, and the axes that split them.
        ticked: Whether to write the ranges' limits along the side.
        dimensions: All that are drawn as this one.
    """

    extent: int
    dimension: int | None
    ranges: tuple[tuple[int, int] | None, ...]
    label: tuple[str, ...]
    ticked: bool
    dimensions: range

    @classmethod
    def of(cls, layout: Layout, dimensions: range) -> "Side":
        """Describe one side of a layout's picture."""
        if not dimensions:
            return cls(1, None, ((0, 1),), (), False, dimensions)
        is_split = [d for d in dimensions if len(layout.cuts(d)) > 1]
        chosen = is_split[0] if is_split else dimensions[0]
        ranges: tuple[tuple[int, int] | None, ...] = tuple(layout.cuts(chosen))
        if len(ranges) > SHOWN:
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
        return cls(math.prod(sizes), chosen, ranges, tuple(label), ticked, dimensions)

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


def proportions(down: Side, across: Side) -> tuple[int, int]:
    """Width and height that tell a tall tensor from a wide one, without being true to scale."""
    if down.dimension is None:
        return (SIDE, 0) if across.dimension is not None else (0, 0)
    ratio = (max(down.extent, 1) / max(across.extent, 1)) ** 0.4
    ratio = min(max(ratio, 0.4), 2.5)
    return (round(SIDE / ratio), SIDE) if ratio > 1 else (SIDE, round(SIDE * ratio))
