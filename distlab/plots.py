"""Plots that can be read on a light and on a dark page, which a picture can't tell apart."""

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt

from distlab.public import public

__all__ = ["use_style"]

STYLE = Path(__file__).with_name("lesson.mplstyle")


@public
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


def __dir__() -> list[str]:
    """What completion offers."""
    return list(__all__)
