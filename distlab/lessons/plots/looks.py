"""How each kind of thing looks: a kind that pictures know has one colour in all of them."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.patches import FancyArrowPatch, Patch, Rectangle
from matplotlib.text import Text

from distlab.lessons.plots.style import COLOURS, GREY, INK, SMALL, width_in_pixels
from distlab.phrases import in_english

K = TypeVar("K", bound=Hashable)
P = TypeVar("P", bound=Patch)
HATCHES = ("", "////", "....", "xxxx", "----")


class Look(NamedTuple):
    """A colour and a hatch; what is pale shows the page through it."""

    colour: str
    hatch: str = ""
    pale: bool = False

    def patch(self, kind: Callable[..., P], *args: Any, **kwargs: Any) -> P:
        """Make a Matplotlib patch that looks so."""
        face = (self.colour, 0.18) if self.pale else self.colour
        line = GREY if self.pale else INK
        # Newer versions of Matplotlib take a hatch's colour from here, older ones from the edge.
        with mpl.rc_context({"hatch.color": line}):
            return kind(*args, facecolor=face, edgecolor=line, hatch=self.hatch, **kwargs)

    def bar(
        self, axes: Axes, kind: str, corner: tuple[float, float], wide: float, tall: float
    ) -> None:
        """Draw a bar of this kind; one too narrow for an outline keeps its colour."""
        narrow = width_in_pixels(axes, wide) < SMALL
        bar = self.patch(Rectangle, corner, wide, tall, label=kind, linewidth=0.5 + 0.3 * narrow)
        if narrow and not self.pale:
            bar.set_edgecolor(self.colour)
        axes.add_patch(bar)

    def words(self, axes: Axes, x: float, y: float, words: str, size: float) -> Text:
        """Write into the middle of a bar or a block, where a hatch keeps clear of the words."""
        colour, pad = (COLOURS[7], 0.15) if self.pale else (self.colour, 0.38)
        ground = {"boxstyle": f"round,pad={pad}", "facecolor": colour, "linewidth": 0}
        return axes.text(
            x,
            y,
            words,
            fontsize=size,
            color=INK,
            ha="center",
            va="center" if "\n" in words else "center_baseline",
            bbox=ground if self.hatch or self.pale else None,
        )

    def handle(self, label: str) -> Patch:
        """An entry of a legend."""
        return self.patch(Patch, label=label, linewidth=0.5)


def assign(
    kinds: Iterable[K],
    known: Mapping[K, Look],
    chosen: Mapping[K, str] | None = None,
    free: Iterable[int] = (6, 3, 2, 1, 5, 4, 0),
) -> dict[K, Look]:
    """Give each kind a look that no other kind of the picture has.

    Args:
        kinds: The kinds, in the order of the legend.
        known: The looks of kinds that always look alike.
        chosen: Colours that the caller wants for some kinds.
        free: Numbers of the style's colours for kinds that are not known, the first choice first.
    """
    kinds, chosen = list(dict.fromkeys(kinds)), chosen or {}
    known = {kind: known[same] for kind in kinds if (same := in_english(kind)) in known}
    fixed = {
        kind: Look(to_hex(chosen[kind])) if kind in chosen else known[kind]
        for kind in kinds
        if kind in chosen or kind in known
    }
    used = {look.colour for look in fixed.values()}
    # The sort is stable: colours of no other kind come first.
    order = sorted((COLOURS[i] for i in free), key=lambda colour: colour in used)
    looks: dict[K, Look] = {}
    taken: set[tuple[str, str]] = set()
    for kind in sorted(kinds, key=lambda kind: kind not in fixed):
        look = fixed.get(kind)
        if look is None or (look[:2] in taken and not look.pale):
            colours = [look.colour] if look else order
            every = [(colour, hatch) for hatch in HATCHES for colour in colours]
            look = Look(*next((pair for pair in every if pair not in taken), every[-1]))
        taken.add(look[:2])
        looks[kind] = look
    return {kind: looks[kind] for kind in kinds}


def arrow(
    axes: Axes, begin: tuple[float, float], end: tuple[float, float], size: float, **look: Any
) -> None:
    """Draw an arrow in the style's grey."""
    axes.add_patch(
        FancyArrowPatch(
            begin,
            end,
            arrowstyle="-|>",
            mutation_scale=size,
            shrinkA=0,
            shrinkB=0,
            color=GREY,
            **look,
        )
    )
