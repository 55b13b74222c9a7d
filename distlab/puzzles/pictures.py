"""Pictures as SVG, on a transparent ground: a task, and who did what when."""

import base64
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from distlab.puzzles.clock import Span

GREY = "#797979"
"""Words and lines on the page: readable on white and on black."""
INK = "#111111"
"""Words on colours."""
COLOURS = ("#1f84c4", "#c48000", "#0a9e74", "#c774a3", "#e0601e", "#3e9bd1", "#999000", "#8c8c8c")
"""Those of the lessons' plots."""
RED = "#e0421e"
GREEN = COLOURS[2]
_SAME = "#c6d2dc"
"""What is the same on every rank."""
_WIDTH = 920
_BLUE, _SEND, _RECEIVE, _MEMORY = COLOURS[:4]
_WAITS = f'stroke="{GREY}" stroke-dasharray="2 2"'
_BUDGET = 'stroke-dasharray="6 4" stroke-width="1.5"'


def amount(value: float) -> str:
    """A measure in words: whole, unless it is a time with a fraction."""
    return f"{value:,.2f}".rstrip("0").rstrip(".")


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _tag(tag: str, more: str, **places: float) -> str:
    named = (f'{name}="{_number(value)}"' for name, value in places.items())
    return f"<{tag} {' '.join(named)} {more}/>"


def _rect(x: float, y: float, width: float, height: float, fill: str, more: str = "") -> str:
    return _tag("rect", f'fill="{fill}" {more}'.strip(), x=x, y=y, width=width, height=height)


def _line(x1: float, y1: float, x2: float, y2: float, more: str, colour: str = GREY) -> str:
    return _tag("line", f'stroke="{colour}" {more}', x1=x1, y1=y1, x2=x2, y2=y2)


def _text(
    x: float, y: float, words: str, *, colour: str = GREY, size: int = 12, anchor: str = "start"
) -> str:
    """Words, their baseline at y."""
    where = f'x="{_number(x)}" y="{_number(y)}"'
    how = f'fill="{colour}" font-size="{size}" text-anchor="{anchor}"'
    return f"<text {where} {how}>{escape(words)}</text>"


def _image(elements: Sequence[str], height: float, alternative: str) -> str:
    """Elements as an image in HTML, which needs no script and survives in a stored notebook.

    Where the page is narrow it gets smaller as a whole.
    """
    size = f'width="{_WIDTH}" height="{_number(height)}"'
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {_WIDTH} {_number(height)}" '
        f'font-family="system-ui,sans-serif">{"".join(elements)}</svg>'
    )
    data = base64.b64encode(svg.encode()).decode()
    style = "max-width:100%;height:auto;background:none"
    return (
        f'<img alt="{escape(alternative)}" {size} style="{style}" '
        f'src="data:image/svg+xml;base64,{data}"/>'
    )


class Chip(NamedTuple):
    """A tensor in the picture of a task: its name, and whose colours it has."""

    word: str
    colours: tuple[int, ...]


def goal(start: Sequence[Sequence[Chip]], end: Sequence[Sequence[Chip]]) -> str:
    """What each rank has at the start, and what it wants to have, as HTML."""
    high, gap, left = 66, 10, 50
    columns = min(len(start), 4)
    width = (_WIDTH - left - gap * (columns - 1)) / columns
    lines = -(-len(start) // columns)
    elements, words = [], []
    for row, (label, side) in enumerate((("start", start), ("goal", end))):
        top = row * lines * (high + 8) + row * 10
        elements.append(_text(0, top + 40, label, size=13))
        for rank, chips in enumerate(side):
            x, y = left + rank % columns * (width + gap), top + rank // columns * (high + 8)
            elements += _rank(rank, chips, x, y, width, high)
            words.append(f"{label}, rank {rank}: {', '.join(chip.word for chip in chips)}")
    return _image(elements, 2 * lines * (high + 8) + 12, "; ".join(words))


def _rank(
    rank: int, chips: Sequence[Chip], x: float, y: float, width: float, high: float
) -> list[str]:
    outline = 'stroke="#797979" rx="5"'
    elements = [
        _rect(x + 0.5, y + 0.5, width - 1, high - 1, "none", outline),
        _text(x + 8, y + 17, f"rank {rank}"),
    ]
    letters = [max(3, len(chip.word)) for chip in chips]
    unit = min((width - 16 - 5 * (len(chips) - 1)) / max(1, sum(letters)), 11.0)
    left = x + 8
    for chip, count in zip(chips, letters, strict=True):
        wide = unit * count
        colours = [COLOURS[rank % len(COLOURS)] for rank in chip.colours] or [_SAME]
        for i, colour in enumerate(colours):
            stripe = 30 / len(colours)  # a sum is as large as what is added
            elements.append(_rect(left, y + 26 + i * stripe, wide, stripe, colour))
        size = 12 if 6.6 * len(chip.word) < wide else 10
        elements.append(
            _text(left + wide / 2, y + 45, chip.word, colour=INK, size=size, anchor="middle")
        )
        left += wide + 5
    return elements


_LEFT, _ROW, _CURVE = 70, 66, 24


class RankRow(NamedTuple):
    """What a rank did when, what it held from which time on, and since when it waits for ever."""

    spans: list[Span]
    curve: list[tuple[float, int]]
    waits: float | None


def timeline(ranks: Sequence[RankRow], budget: int) -> str:
    """What each rank computed, sent, received and held when, against a budget of bytes, as HTML."""
    ends = [span.end for row in ranks for span in row.spans]
    ends += [time for row in ranks for time, _ in row.curve]
    waiting = [f"rank {rank}" for rank, row in enumerate(ranks) if row.waits is not None]
    # The axis is longer for those who wait for ever.
    end = max(ends) * (1.1 if waiting else 1.0) or 1.0
    most = max([budget, *(held for row in ranks for _, held in row.curve)])
    scale = (_WIDTH - _LEFT - 60) / end
    bottom = 30 + len(ranks) * _ROW
    elements = [*_legend(), *_axis(end, scale, bottom)]
    for rank, (spans, curve, waits) in enumerate(ranks):
        top = 34 + rank * _ROW
        elements.append(_text(0, top + 14, f"rank {rank}"))
        forever = [] if waits is None else [Span("wait", waits, end)]
        for span in [*sorted(spans), *forever]:
            elements += _span(span, top, scale)
        elements += _curve(curve, top + 34, scale, end, most)
        limit = top + 34 + _CURVE * (1 - budget / most)
        elements.append(_line(_LEFT, limit, _LEFT + end * scale, limit, _BUDGET, RED))
    more = f"; to the end waits: {', '.join(waiting)}" if waiting else ""
    return _image(elements, bottom + 22, f"What each of {len(ranks)} ranks did when{more}")


def _axis(end: float, scale: float, bottom: float) -> list[str]:
    step = 1.0
    while end / step > 8:
        step *= 2.5 if str(step)[0] == "2" else 2
    elements = [_text(_WIDTH, bottom + 14, "ticks", size=11, anchor="end")]
    for i in range(int(end / step) + 1):
        x = _LEFT + i * step * scale
        elements.append(_line(x, 28, x, bottom, 'stroke-opacity="0.3"'))
        elements.append(_text(x, bottom + 14, amount(i * step), size=11, anchor="middle"))
    return elements


def _legend() -> list[str]:
    elements, x = [], _LEFT
    for colour, how, word in (
        (_BLUE, "", "computes"),
        ("none", _WAITS, "waits"),
        (_SEND, "", "sends"),
        (_RECEIVE, "", "receives"),
        (_MEMORY, 'fill-opacity="0.55"', "memory held"),
    ):
        elements += [_rect(x, 6, 14, 10, colour, how), _text(x + 20, 15, word)]
        x += 40 + 7 * len(word)
    return [
        *elements,
        _line(x, 11, x + 14, 11, _BUDGET, RED),
        _text(x + 20, 15, "budget of memory"),
    ]


_LANES = {"compute": (0, 16, _BLUE), "send": (18, 6, _SEND), "receive": (25, 6, _RECEIVE)}


def _span(span: Span, top: float, scale: float) -> list[str]:
    x, width = _LEFT + span.start * scale, (span.end - span.start) * scale
    if span.lane == "wait":
        return [_rect(x, top + 0.5, max(width, 1), 15, "none", _WAITS)]
    down, height, colour = _LANES[span.lane]
    inset = 0.5 if width > 3 else 0.0  # neighbours are told apart where there is room
    made = [_rect(x, top + down, max(width - inset, 1), height, colour)]
    initials = "".join(word[0].upper() for word in span.what.split("_"))
    fitting = (word for word in (span.what, initials) if width > 7 * len(word) + 4)
    if span.lane == "compute" and (word := next(fitting, "")):
        made.append(_text(x + width / 2, top + 12, word, colour=INK, size=11, anchor="middle"))
    return made


def _curve(
    curve: Sequence[tuple[float, int]], top: float, scale: float, end: float, most: int
) -> list[str]:
    points = [f"{_LEFT},{top + _CURVE}"]
    following = [time for time, _ in curve[1:]] + [end]
    for (time, held), until in zip(curve, following, strict=True):
        y = top + _CURVE * (1 - held / most)
        points += [f"{_LEFT + t * scale:.1f},{y:.1f}" for t in (time, max(time, until))]
    points.append(f"{_LEFT + end * scale:.1f},{top + _CURVE}")
    peak = max(held for _, held in curve)
    return [
        f'<polygon points="{" ".join(points)}" fill="{_MEMORY}" fill-opacity="0.55"/>',
        _text(_LEFT + end * scale + 4, top + _CURVE, f"{peak:,}", size=11),
    ]
