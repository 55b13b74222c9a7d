"""Which colour shows what: a slice of its own each, or the same rows in several pictures."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from distlab.errors import of_type
from distlab.layouts.svg import TINTS, paler
from distlab.layouts.view import Layout, Part

Stripes = tuple[tuple[str, int], ...]
"""Colours beside each other, and the room of each in proportion to the others."""


@dataclass(frozen=True)
class Tints:
    """The colours of layouts that are drawn together.

    Attributes:
        dimension: The dimension whose ranges have colours; None if slices have.
        limits: Where these ranges start, and where the last one stops.
    """

    dimension: int | None = None
    limits: tuple[int, ...] = ()

    @classmethod
    def along(cls, dimension: object, layouts: Sequence[Layout]) -> "Tints":
        """Give each range of a dimension one colour: none of the layouts cuts it further.

        Args:
            dimension: The dimension, from the last one if negative; None for colours by slice.
            layouts: All layouts that are drawn.

        Returns:
            The colours.

        Raises:
            TypeError: If `dimension` is no number.
            ValueError: If there is no layout, one has no such dimension, or two have it in
                different sizes.
        """
        if dimension is None:
            return cls()
        if not isinstance(dimension, int) or isinstance(dimension, bool):
            raise TypeError(f"colour_by must be a dimension's number, not {of_type(dimension)}.")
        if not layouts:
            raise ValueError("colour_by is for tensors: a mesh alone has no dimensions to colour.")
        for layout in layouts:
            if not -len(layout.shape) <= dimension < len(layout.shape):
                raise ValueError(
                    f"colour_by={dimension}, but a tensor of shape {list(layout.shape)} has "
                    f"{len(layout.shape)} dimension{'s' * (len(layout.shape) != 1)}."
                )
        sizes = sorted({layout.shape[dimension] for layout in layouts})
        if len(sizes) > 1:
            raise ValueError(
                f"colour_by={dimension} shows the same indices in one colour, but dimension "
                f"{dimension} has the sizes {' and '.join(map(str, sizes))}."
            )
        limits = {limit for each in layouts for b in each.bounds for limit in b[dimension]}
        return cls(dimension, tuple(sorted(limits | {0, *sizes})))

    def of(self, layout: Layout) -> dict[Part, Stripes]:
        """Return the colours of each part of a layout."""
        if self.dimension is None:
            found = _tints(len(layout.parts))
            return {part: ((tint, 1),) for part, tint in zip(layout.parts, found, strict=True)}
        ranges = list(pairwise(self.limits))
        tints = list(zip(ranges, _tints(len(ranges)), strict=True))
        stripes = {}
        for bounds, summand in layout.parts:
            low, high = bounds[self.dimension]
            stripes[bounds, summand] = tuple(
                (tint, stop - start) for (start, stop), tint in tints if low <= start < high
            )
        return stripes


def _tints(count: int) -> list[str]:
    """Return so many colours: after eight they come round again, paler."""
    rounds = -(-count // len(TINTS))
    return [paler(TINTS[i % len(TINTS)], 0.8 * (i // len(TINTS)) / rounds) for i in range(count)]
