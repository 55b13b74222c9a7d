"""A layout as a sentence: which dimensions are split, and how many copies there are."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distlab.layouts.view import Layout


def phrases(layout: "Layout") -> Iterable[str]:
    """Yield what there is to say about a layout, in the order in which a sentence has it."""
    devices = len(layout.mesh.devices)
    copies = "1 copy" if layout.copies == 1 else f"{layout.copies} copies"
    if not layout.is_whole:
        yield from _dimensions(layout)
        yield copies
    elif layout.partial:
        yield f"{layout.summands} summand{'s' * (layout.summands != 1)} of the full size"
        yield f"{copies} of each"
    else:
        yield "whole on one device" if devices == 1 else f"whole on each of {devices} devices"
    empty = devices - sum(len(holders) for holders in layout.holders.values())
    if empty and layout.holders:
        yield f"{empty} device{'s hold' if empty > 1 else ' holds'} nothing"
    if layout.partial:
        what = "" if layout.is_whole else f"{layout.summands} summands "
        yield f"{what}still to be added up over {' and '.join(layout.partial)}"


def _dimensions(layout: "Layout") -> Iterable[str]:
    dimension = 0
    while dimension < len(layout.shape):
        cuts = layout.cuts(dimension)
        axes = " and ".join(layout.spec[dimension])
        if len(cuts) > 1:
            unequal = len({stop - start for start, stop in cuts}) > 1
            over = f" over {axes}" if axes else ""
            yield f"dimension {dimension} split in {len(cuts)}{' unequal parts' * unequal}{over}"
            dimension += 1
            continue
        last = dimension
        while last + 1 < len(layout.shape) and len(layout.cuts(last + 1)) == 1:
            last += 1
        yield (
            f"dimension {dimension} whole"
            if last == dimension
            else f"dimensions {dimension} to {last} whole"
        )
        dimension = last + 1
