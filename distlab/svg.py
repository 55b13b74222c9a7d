"""A few SVG elements and boxes of them, enough for the drawings of layouts.

Pictures are shown as images: JupyterLab, Colab and GitHub all give an SVG no styles of the page
around it. So each carries its own card to stand on, light as a rule and dark where the reader's
system is dark; both are readable on a page of the other kind. Coordinates are whole pixels, and
nothing depends on chance or on the machine: the same drawing is the same text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

# Tints of the Okabe-Ito palette, which colour-blind readers can tell apart; dark ink on all of
# them has a contrast of 9:1 or better. No picture relies on them: devices are named as well.
TINTS = ("#9ccbe8", "#f7cf8a", "#8ed6bd", "#f2ae86", "#e3b8d3", "#f4eb8c", "#c6d2dc", "#c9b8f0")
NEUTRAL = "#dde3ea"
WIDTH = 800  # pixels of a row of pictures, which fit into a notebook's cell
DARK = (
    "@media(prefers-color-scheme:dark){.dl-card{fill:#1f242b;stroke:#3d444d}"
    ".dl-ink{fill:#e6edf3}.dl-dim{fill:#a9b4c0}}"
)


@dataclass(frozen=True)
class Picture:
    """Some SVG elements and the box they fill, its upper left corner at (0, 0)."""

    elements: tuple[str, ...]
    width: int
    height: int

    def at(self, x: int, y: int) -> str:
        """Return the elements moved to (x, y)."""
        return f'<g transform="translate({x},{y})">{"".join(self.elements)}</g>'


def paler(colour: str, by: float) -> str:
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
    """Return text whose baseline starts, is centred or ends at (x, y)."""
    place = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{x}" y="{y}"{place}{" " + more if more else ""}>{escape(words)}</text>'


def note(x: int, y: int, words: str, *, anchor: str = "start") -> str:
    """Return small secondary text."""
    return text(x, y, words, anchor=anchor, more='class="dl-dim" fill="#57606a"')


def text_width(words: str, size: int = 11) -> int:
    """Return about how many pixels wide some text is."""
    return int(len(words) * size * 0.57) + 1


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


def on_card(picture: Picture, description: str, *, margin: int = 14) -> str:
    """Return the whole SVG document: the picture on its card.

    Args:
        picture: What to show.
        description: What it shows in words, for readers who listen to the page.
        margin: Pixels around the picture.
    """
    width, height = picture.width + 2 * margin, picture.height + 2 * margin
    more = 'class="dl-card" stroke="#d0d7de"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" '
        'font-family="system-ui,-apple-system,Segoe UI,Helvetica,Arial,sans-serif" '
        'font-size="11">'
        f"<title>{escape(description)}</title><style>{DARK}</style>"
        f"{rect(0, 0, width, height, '#fff', radius=6, more=more)}"
        f"{picture.at(margin, margin)}</svg>"
    )
