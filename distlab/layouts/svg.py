"""A few SVG elements and boxes of them, enough for the drawings of layouts.

Pictures are shown as images: an SVG gets no styles of the page around it, and can't know whether
that page is light or dark (`prefers-color-scheme` tells the system's theme, not the notebook's).
So the ground is transparent, words and lines on it have a grey that can be read on either, and
what stands on a tint has dark ink. Coordinates are whole pixels, and nothing depends on chance or
on the machine: the same drawing is the same text.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from distlab.layouts.view import Layout, Part
from distlab.phrases import said

# Tints of the Okabe-Ito palette, which colour-blind readers can tell apart; dark ink on all of
# them has a contrast of 9:1 or better. No picture relies on them: devices are named as well.
TINTS = ("#9ccbe8", "#f7cf8a", "#8ed6bd", "#f2ae86", "#e3b8d3", "#f4eb8c", "#c6d2dc", "#c9b8f0")
NEUTRAL = "#dde3ea"
INK = "#1f2328"  # on tints
GREY = "#797979"  # a contrast of 4.3 on white as well as on JupyterLab's #111; none can have more
WIDTH = 800  # pixels of a row of pictures, which fit into a notebook's cell
MARGIN = 4


@dataclass(frozen=True)
class Picture:
    """Some SVG elements and the box they fill, its upper left corner at (0, 0)."""

    elements: tuple[str, ...]
    width: int
    height: int

    def at(self, x: int, y: int) -> str:
        """Return the elements moved to (x, y)."""
        return f'<g transform="translate({x},{y})">{"".join(self.elements)}</g>'


def colours(layout: Layout) -> dict[Part, str]:
    """Return a tint for each part of a layout: after eight they come round again, paler."""
    rounds = -(-len(layout.parts) // len(TINTS))
    return {
        part: _paler(TINTS[i % len(TINTS)], 0.8 * (i // len(TINTS)) / rounds)
        for i, part in enumerate(layout.parts)
    }


def _paler(colour: str, by: float) -> str:
    """Mix a colour with white: by 0 not at all, by 1 entirely."""
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(part + (255 - part) * by):02x}" for part in parts)


def rect(
    x: int, y: int, width: int, height: int, fill: str, *, radius: int = 0, more: str = ""
) -> str:
    """Return a rectangle; `more` is further attributes."""
    round_ = f' rx="{radius}"' if radius else ""
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}"{round_} fill="{fill}"'
        f"{' ' + more if more else ''}/>"
    )


def text(x: int, y: int, words: str, *, anchor: str = "start", more: str = "") -> str:
    """Return text whose baseline starts, is centred or ends at (x, y); grey by default."""
    words = said(words)
    place = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{x}" y="{y}"{place}{" " + more if more else ""}>{escape(words)}</text>'


def text_width(words: str, size: int = 12) -> int:
    """Return about how many pixels wide some text is."""
    words = said(words)
    hangul = sum("가" <= letter <= "힣" for letter in words)  # twice as wide as Latin letters
    return int((len(words) + hangul) * size * 0.57) + 1


def in_rows(pictures: Sequence[Picture], *, gap: int, columns: int = 100) -> Picture:
    """Put pictures side by side: up to `columns` in a row, and no wider than `WIDTH`."""
    elements = []
    x = y = row_height = width = 0
    for i, picture in enumerate(pictures):
        if x and (i % columns == 0 or x + picture.width > WIDTH):
            x, y, row_height = 0, y + row_height + gap, 0
        elements.append(picture.at(x, y))
        width = max(width, x + picture.width)
        x += picture.width + gap
        row_height = max(row_height, picture.height)
    return Picture(tuple(elements), width, y + row_height)


def document(picture: Picture, description: str) -> str:
    """Return the whole SVG document, on a transparent ground, described for those who listen."""
    width, height = picture.width + 2 * MARGIN, picture.height + 2 * MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" '
        'font-family="system-ui,-apple-system,Segoe UI,Helvetica,Arial,sans-serif" '
        f'font-size="12" fill="{GREY}">'
        f"<title>{escape(said(description))}</title>{picture.at(MARGIN, MARGIN)}</svg>"
    )


def image(svg: str, description: str) -> str:
    """Return HTML that shows an SVG document as an image, no wider than the page.

    Notebooks show this before anybody trusts them, which they don't do for `image/svg+xml`: an
    image can't run scripts. The description is for readers who don't see it.
    """
    data = base64.b64encode(svg.encode()).decode()
    return (
        f'<img src="data:image/svg+xml;base64,{data}" alt="{escape(description)}" '
        'style="max-width:100%;height:auto">'
    )
