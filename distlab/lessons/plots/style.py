"""One style for all plots: a transparent ground, words that any page shows, colours to tell apart.

A picture can't know whether its page is light or dark.
"""

import math
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import ScaledTranslation

from distlab.phrases import is_english, said, use_language

STYLE = Path(__file__).with_name("lesson.mplstyle")
_STYLE = mpl.rc_params_from_file(STYLE, use_default_template=False)
COLOURS: tuple[str, ...] = tuple(
    f"#{c.lstrip('#')}" for c in _STYLE["axes.prop_cycle"].by_key()["color"]
)
"""`C0` to `C7` of the style. Pictures keep their colours whatever style a notebook uses later."""
GREY = f"#{_STYLE['text.color'].lstrip('#')}"
INK = "#000000"  # on colours
WIDTH = 9.0  # inches, 900 pixels in a notebook
ROW = 0.42  # inches, of a bar with the room around it
LEGEND_ROW = 0.2  # inches; not measured, for it differs by a pixel between Matplotlib's versions
BAR = 0.62  # of that
SMALL = 4  # pixels: bars narrower than that have no outline, which would hide them
HANGUL = re.compile(
    r"(?:NotoSans(?:CJK|KR)-(?:Regular|Bold)|NanumGothic(?:Bold)?|malgun(?:bd)?|AppleSDGothicNeo)\."
)
"""Files of fonts with Hangul, as Linux, Colab, Windows and macOS have them."""
DROP = 34 / 72  # inches from axes to the legend below them: room for ticks and their label


def use_style(language: str = "en") -> None:
    """Give the plots that follow a transparent ground, and colours that show on any page.

    The colours `C0` to `C6` are those of Okabe and Ito, which colour-blind readers can tell apart,
    and `C7` is a grey, for what the others are compared with. Black words can be read on each.

    Args:
        language: What the pictures and tables that follow say their own words in, `en` or `ko`.

    Raises:
        ValueError: If there is no such language.
    """
    use_language(language)
    plt.style.use([STYLE, _fonts()])
    if "inline" not in mpl.get_backend():
        return
    # Not the style's `figure.facecolor`: if that is transparent, JupyterLab's dark theme puts
    # white behind the plot.
    from matplotlib_inline.backend_inline import set_matplotlib_formats
    from matplotlib_inline.config import InlineBackend

    formats = InlineBackend.instance().figure_formats
    set_matplotlib_formats(*formats, facecolor="none")  # type: ignore[no-untyped-call]


def _fonts() -> dict[str, list[str]]:
    """The fonts for words in another language: behind the style's own, those with Hangul."""
    return {} if is_english() else {"font.family": ["DejaVu Sans", *_hangul()]}


@cache
def _hangul() -> list[str]:
    """The names of the fonts with Hangul that this machine has, which Matplotlib now knows."""
    paths = [path for path in font_manager.findSystemFonts() if HANGUL.search(path)]
    for path in paths:
        font_manager.fontManager.addfont(path)  # its own list may be older than the font
    if not paths:
        warnings.warn(
            "No font with Hangul was found, so plots have boxes for it. On Debian, Ubuntu and Colab"
            " `apt-get install fonts-noto-cjk` brings one; then restart the kernel.",
            stacklevel=4,
        )
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from")  # said once is enough
    names = (font_manager.FontProperties(fname=path).get_name() for path in paths)
    return list(dict.fromkeys(names))


@contextmanager
def drawing() -> Iterator[None]:
    """The style alone while a picture is made, whatever the notebook has set before."""
    if "inline" in mpl.get_backend():
        # The import teaches IPython to show figures, as pyplot's first figure would. It sets
        # rcParams, so it has to be over before the style's context.
        import matplotlib_inline.backend_inline  # noqa: F401
    with plt.style.context(["default", STYLE, _fonts()]):
        yield


def new_figure(height: float) -> Figure:
    """Make a figure that pyplot does not know, so that a notebook shows it only as a result."""
    return Figure(figsize=(WIDTH, height), layout="constrained", facecolor="none")


def figure_of(axes: Axes) -> Figure:
    """The whole figure that axes belong to, not a subfigure."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure


def settle(figure: Figure) -> None:
    """Lay a figure out for good: drawn again it has the same places, and the same bytes."""
    for text in () if is_english() else figure.findobj(Text):
        text.set_text(said(text.get_text()))
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


def settle_rows(axes: Axes, rows: float, legend_rows: int) -> None:
    """Make a figure of one axes as high as its rows of bars and its legend need, for good."""
    figure = figure_of(axes)
    room = 0.49 + 0.3 * bool(axes.get_title(loc="left")) + LEGEND_ROW * legend_rows
    figure.set_size_inches(WIDTH, round(room + ROW * rows, 2))
    settle(figure)


def bare(axes: Axes, title: str | None = None, *, keep: Sequence[str] = ("bottom",)) -> None:
    """Leave only some sides of the frame, in the style's grey; a title goes above the left end."""
    for side, spine in axes.spines.items():
        spine.set_visible(side in keep)
    axes.tick_params(colors=GREY)
    if title:
        axes.set_title(title, loc="left", fontsize=11, color=GREY)


def legend_below(axes: Axes, handles: Sequence[Any]) -> int:
    """Put a legend under the axes, in as many columns as fit, and return how many rows it has."""
    shift = ScaledTranslation(0, -DROP, figure_of(axes).dpi_scale_trans)
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


def width_of(figure: Figure, words: str, size: float) -> float:
    """How many pixels wide some words are."""
    text = Text(0, 0, words, fontsize=size)
    text.set_figure(figure)
    return text.get_window_extent().width


def width_in_pixels(axes: Axes, wide: float) -> float:
    """How many pixels a distance along the x axis takes."""
    first, last = axes.get_xlim()
    return wide * axes.get_window_extent().width / (last - first)
