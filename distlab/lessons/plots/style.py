"""One style for all plots: a transparent ground, words that any page shows, colours to tell apart.

A picture can't know whether its page is light or dark.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.text import Text
from matplotlib.transforms import ScaledTranslation

from distlab.errors import of_type

STYLE = Path(__file__).with_name("lesson.mplstyle")
_STYLE = mpl.rc_params_from_file(STYLE, use_default_template=False)
COLOURS: tuple[str, ...] = tuple(
    f"#{c.lstrip('#')}" for c in _STYLE["axes.prop_cycle"].by_key()["color"]
)
"""`C0` to `C7` of the style. Pictures keep their colours whatever style a notebook uses later."""
GREY = f"#{_STYLE['text.color'].lstrip('#')}"
INK = "#000000"  # on colours
WIDTH = 9.0  # inches, 900 pixels in a notebook
POINT = 1 / 72  # inches
ROW = 0.42  # inches, of a bar with the room around it
LEGEND_ROW = 0.2  # inches; not measured, for it differs by a pixel between Matplotlib's versions
BAR = 0.62  # of that
SMALL = 4  # pixels: bars narrower than that have no outline, which would hide them


def use_style() -> None:
    """Give the plots that follow a transparent ground, and colours that show on any page.

    The colours `C0` to `C6` are those of Okabe and Ito, which colour-blind readers can tell apart,
    and `C7` is a grey, for what the others are compared with. Black words can be read on each.
    """
    plt.style.use(STYLE)
    if "inline" not in mpl.get_backend():
        return
    # Not the style's `figure.facecolor`: if that is transparent, JupyterLab's dark theme puts
    # white behind the plot.
    from matplotlib_inline.backend_inline import set_matplotlib_formats
    from matplotlib_inline.config import InlineBackend

    formats = InlineBackend.instance().figure_formats
    set_matplotlib_formats(*formats, facecolor="none")  # type: ignore[no-untyped-call]


@contextmanager
def drawing() -> Iterator[None]:
    """The style alone while a picture is made, whatever the notebook has set before."""
    if "inline" in mpl.get_backend():
        # The import teaches IPython to show figures, as pyplot's first figure would. It sets
        # rcParams, so it has to be over before the style's context.
        import matplotlib_inline.backend_inline  # noqa: F401
    with plt.style.context(["default", STYLE]):
        yield


def new_figure(height: float, width: float = WIDTH) -> Figure:
    """Make a figure that pyplot does not know, so that a notebook shows it only as a result."""
    return Figure(figsize=(width, height), layout="constrained", facecolor="none")


def figure_of(axes: Axes) -> Figure:
    """The whole figure that axes belong to, not a subfigure."""
    figure = axes.get_figure(root=True)
    if figure is None:
        raise ValueError("These axes belong to no figure: they were removed from it.")
    return figure


def check_axes(axes: object) -> None:
    """Raise a TypeError unless these are axes to draw into, or None."""
    if not isinstance(axes, Axes | None):
        raise TypeError(f"axes must be Matplotlib axes, not {of_type(axes)}.")


def check_figure(figure: object) -> None:
    """Raise a TypeError unless it is a figure to draw into, or None."""
    if not isinstance(figure, Figure | SubFigure | None):
        raise TypeError(f"figure must be a Matplotlib figure or subfigure, not {of_type(figure)}.")


def settle(figure: Figure) -> None:
    """Lay a figure out for good: drawn again it has the same places, and the same bytes."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


def bare(axes: Axes, *, keep: Sequence[str] = ("bottom",)) -> None:
    """Leave only some sides of the frame, and give every tick the style's grey."""
    for side, spine in axes.spines.items():
        spine.set_visible(side in keep)
    axes.tick_params(colors=GREY)


def heading(axes: Axes, title: str | None) -> None:
    """Write a title above the left end of the axes."""
    if title:
        axes.set_title(title, loc="left", fontsize=11, color=GREY)


def legend_below(axes: Axes, handles: Sequence[Any], drop: float) -> int:
    """Put a legend under the axes, in as many columns as fit, and return how many rows it has.

    Args:
        axes: The axes it belongs to.
        handles: What it lists; nothing is drawn without any.
        drop: How far below the axes it begins, in points: room for ticks and their label.
    """
    if not handles:
        return 0
    shift = ScaledTranslation(0, -drop * POINT, figure_of(axes).dpi_scale_trans)
    space = axes.get_window_extent().width
    for columns in range(min(len(handles), 8), 0, -1):
        found = axes.legend(
            # Matplotlib goes down the columns; readers go along the rows.
            handles=[each for i in range(columns) for each in handles[i::columns]],
            loc="upper left",
            bbox_to_anchor=(0, 0),
            bbox_transform=axes.transAxes + shift,
            ncols=columns,
            frameon=False,
            borderpad=0,
            borderaxespad=0,
            fontsize=9,
            labelcolor=GREY,
            handlelength=1.6,
            handleheight=1.0,
            columnspacing=1.4,
        )
        if found.get_window_extent().width <= space:
            break
    return math.ceil(len(handles) / columns)


def shrink_to_fit(texts: Sequence[Text], rooms: Sequence[float], sizes: Sequence[float]) -> None:
    """Give texts the largest of some sizes at which all fit; at the last, hide those that don't.

    Args:
        texts: The texts.
        rooms: How many pixels wide each may be.
        sizes: Font sizes, the largest first.
    """
    for size in sizes:
        for text in texts:
            text.set_fontsize(size)
        wide = [
            text.get_window_extent().width > room for text, room in zip(texts, rooms, strict=True)
        ]
        if not any(wide):
            return
    for text, too_wide in zip(texts, wide, strict=True):
        text.set_visible(not too_wide)


def width_of(figure: Figure, words: str, size: float) -> float:
    """How many pixels wide some words are."""
    text = Text(0, 0, words, fontsize=size)
    text.set_figure(figure)
    return text.get_window_extent().width
