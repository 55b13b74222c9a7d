"""A few SVG elements. Pictures are images on a transparent ground, for light and dark pages."""

import base64
from collections.abc import Sequence
from html import escape

GREY = "#797979"
"""Words and lines on the page: readable on white and on black."""
INK = "#111111"
"""Words on colours."""
COLOURS = ("#1f84c4", "#c48000", "#0a9e74", "#c774a3", "#e0601e", "#3e9bd1", "#999000", "#8c8c8c")
"""Those of the lessons' plots."""
RED = "#e0421e"
WIDTH = 920
"""Pixels of a picture."""


def number(value: float) -> str:
    """A coordinate, to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")


def rect(x: float, y: float, width: float, height: float, fill: str, more: str = "") -> str:
    """A rectangle; `more` is further attributes."""
    places = zip(("x", "y", "width", "height"), (x, y, width, height), strict=True)
    box = " ".join(f'{name}="{number(value)}"' for name, value in places)
    return f'<rect {box} fill="{fill}"{" " * bool(more)}{more}/>'


def line(x1: float, y1: float, x2: float, y2: float, colour: str = GREY, more: str = "") -> str:
    """A line."""
    places = zip(("x1", "y1", "x2", "y2"), (x1, y1, x2, y2), strict=True)
    ends = " ".join(f'{name}="{number(value)}"' for name, value in places)
    return f'<line {ends} stroke="{colour}"{" " * bool(more)}{more}/>'


def text(
    x: float, y: float, words: str, *, colour: str = GREY, size: int = 12, anchor: str = "start"
) -> str:
    """Words, their baseline at y."""
    where = f'x="{number(x)}" y="{number(y)}"'
    how = f'fill="{colour}" font-size="{size}" text-anchor="{anchor}"'
    return f"<text {where} {how}>{escape(words)}</text>"


def image(elements: Sequence[str], height: float, alternative: str) -> str:
    """Elements as an image in HTML, which needs no script and survives in a stored notebook.

    Args:
        elements: What is drawn.
        height: In pixels.
        alternative: The picture in words, for those who do not see it.
    """
    size = f'width="{WIDTH}" height="{number(height)}"'
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} '
        f'font-family="system-ui,sans-serif">{"".join(elements)}</svg>'
    )
    data = base64.b64encode(svg.encode()).decode()
    return (
        f'<img alt="{escape(alternative)}" {size} style="max-width:100%;background:none" '
        f'src="data:image/svg+xml;base64,{data}"/>'
    )


def ticks(most: float, about: int = 8) -> list[float]:
    """Round numbers from 0 to a limit, for an axis."""
    if most <= 0:
        return [0.0]
    step = 1.0
    while most / step > about:
        step *= 2.5 if str(step)[0] == "2" else 2
    return [step * i for i in range(int(most / step) + 1)]
