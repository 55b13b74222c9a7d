"""A layout as a sentence: which dimensions are split, and how many copies there are."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distlab.layouts.view import Layout


def phrases(layout: "Layout") -> Iterable[str]:
    """Yield what there is to say about a layout, in the order in which a sentence has it."""
    devices = len(layout.mesh.devices)
    if not layout.is_whole:
        yield from _dimensions(layout)
        yield f"each slice on {layout.copies} device{'s' * (layout.copies != 1)}"
    elif layout.partial:
        yield f"{layout.summands} summand{'s' * (layout.summands != 1)} of the full size"
        yield f"{layout.copies} cop{'y' if layout.copies == 1 else 'ies'} of each"
    else:
        yield "on one device" if devices == 1 else f"replicated on {devices} devices"
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
            ways = f"in {len(cuts)} unequal parts" if unequal else f"{len(cuts)} ways"
            over = f" over {axes}" if axes else ""
            yield f"dimension {dimension} sharded {ways}{over}"
            dimension += 1
            continue
        last = dimension
        while last + 1 < len(layout.shape) and len(layout.cuts(last + 1)) == 1:
            last += 1
        yield (
            f"dimension {dimension} not sharded"
            if last == dimension
            else f"dimensions {dimension} to {last} not sharded"
        )
        dimension = last + 1
