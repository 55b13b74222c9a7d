"""How each kind of thing looks: a kind that pictures know has one colour in all of them."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import matplotlib as mpl
from matplotlib.colors import is_color_like, to_hex
from matplotlib.patches import Patch

from distlab.errors import shown
from distlab.lessons.plots.style import COLOURS, GREY, INK

P = TypeVar("P", bound=Patch)


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

    def ground(self) -> dict[str, Any] | None:
        """What words on it stand on, where a hatch would cross them or the page is seen."""
        if not self.hatch and not self.pale:
            return None
        colour = COLOURS[7] if self.pale else self.colour
        return {"boxstyle": "round,pad=0.15", "facecolor": colour, "linewidth": 0}

    def handle(self, label: str) -> Patch:
        """An entry of a legend."""
        return self.patch(Patch, label=label, linewidth=0.5)


HATCHES = ("", "////", "....", "xxxx", "----")


def assign(
    kinds: Iterable[str],
    known: Mapping[str, Look],
    chosen: Mapping[str, str] | None = None,
    free: Iterable[int] = (6, 3, 2, 1, 5, 4, 0),
) -> dict[str, Look]:
    """Give each kind a look that no other kind of the picture has.

    Args:
        kinds: The kinds, in the order of the legend.
        known: The looks of kinds that always look alike.
        chosen: Colours that the caller wants for some kinds.
        free: Numbers of the style's colours for kinds that are not known, the first choice first.
    """
    kinds, chosen, free = list(dict.fromkeys(kinds)), chosen or {}, list(free)
    for kind, colour in chosen.items():
        if not is_color_like(colour):
            raise ValueError(
                f"The colour of {kind!r} must be one of Matplotlib's, not {shown(colour)}."
            )
    fixed = {
        kind: Look(to_hex(chosen[kind])) if kind in chosen else known[kind]
        for kind in kinds
        if kind in chosen or kind in known
    }
    taken: set[tuple[str, str]] = set()
    looks = {}
    for kind, look in fixed.items():
        if not look.pale and (look.colour, look.hatch) in taken:
            look = _free([look.colour], taken)
        taken.add((look.colour, look.hatch))
        looks[kind] = look
    used = {look.colour for look in fixed.values()}
    order = [COLOURS[i] for i in free]
    order.sort(key=lambda colour: colour in used)  # stable: colours of no other kind come first
    for kind in kinds:
        if kind not in fixed:
            looks[kind] = _free(order, taken)
            taken.add((looks[kind].colour, looks[kind].hatch))
    return {kind: looks[kind] for kind in kinds}


def _free(colours: list[str], taken: set[tuple[str, str]]) -> Look:
    every = [(colour, hatch) for hatch in HATCHES for colour in colours]
    return Look(*next((pair for pair in every if pair not in taken), every[-1]))
