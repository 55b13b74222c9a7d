"""Pictures that lessons draw again and again, and a style for plots on light and dark pages.

    timeline          who computes, sends and waits when, a row for each rank
    collective        which rank holds what before and after a collective
    holdings          the same for several moments, such as the steps of a ring
    memory            what fills the memory of a device, plan by plan
    compare           curves, and how far each is from one of them
    use_style         the style, for plots of your own

A picture is a Matplotlib figure that pyplot knows nothing about. In a notebook it is the result
of its call: a cell that ends with the call shows it, once, and a cell that does not end with it
shows it with `display(figure)`. There is nothing to close, and `plt.show()` does not show it. In
a script, `figure.savefig("name.png")` writes it. To draw a `timeline` or a `memory` into a figure
of your own, give `axes=`: that figure is then yours to show, and the call returns None, so that
nothing is shown twice. The same input gives the same picture, byte for byte.
"""

from distlab.lessons.plots.blocks import collective, holdings
from distlab.lessons.plots.bytes import memory
from distlab.lessons.plots.curves import compare
from distlab.lessons.plots.style import use_style
from distlab.lessons.plots.timelines import timeline

__all__ = ["collective", "compare", "holdings", "memory", "timeline", "use_style"]


def __dir__() -> list[str]:
    """What completion offers."""
    return list(__all__)
