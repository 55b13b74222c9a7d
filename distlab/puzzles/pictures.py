"""Pictures as SVG, on a transparent ground: a task, and who did what when."""

import math
from collections.abc import Sequence

from distlab.layouts import svg
from distlab.layouts.svg import GREY, INK, rect, text
from distlab.puzzles.account import ClockEvent, amount

COLOURS = ("#1f84c4", "#c48000", "#0a9e74", "#c774a3", "#e0601e", "#3e9bd1", "#999000", "#8c8c8c")
"""Those of the lessons' plots."""
RED = "#e0421e"
GREEN = COLOURS[2]
_SAME = "#c6d2dc"
"""What is the same on every rank."""
_BLUE, _SEND, _RECEIVE, _MEMORY = COLOURS[:4]
_WAITS = f'stroke="{GREY}" stroke-dasharray="2 2"'
_BUDGET = f'stroke="{RED}" stroke-dasharray="6 4" stroke-width="1.5"'
_ON_COLOUR = f'fill="{INK}"'


def _line(x1: int, y1: int, x2: int, y2: int, more: str) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" {more}/>'


Chips = Sequence[tuple[str, Sequence[int]]]
"""The tensors of a rank in the picture of a task: their names, and whose colours they have."""


def goal(start: Sequence[Chips], end: Sequence[Chips]) -> str:
    """What each rank has at the start, and what it wants to have, as HTML."""
    elements, words, top = [], [], 0
    columns, gap, left = min(len(start), 4), 8, 44
    width = (svg.WIDTH - gap * (columns - 1)) // columns
    for label, side in (("start", start), ("goal", end)):
        boxes = [_rank(rank, chips, width) for rank, chips in enumerate(side)]
        rows = svg.in_rows(boxes, gap=gap, columns=columns)
        elements += [text(0, top + 40, label), rows.at(left, top)]
        words += [
            f"{label}, rank {rank}: {', '.join(word for word, _ in chips)}"
            for rank, chips in enumerate(side)
        ]
        top += rows.height + 2 * gap
    picture = svg.Picture(tuple(elements), left + svg.WIDTH, top - 2 * gap)
    return svg.image(svg.document(picture, "; ".join(words)), "; ".join(words))


def _rank(rank: int, chips: Chips, width: int) -> svg.Picture:
    """What a rank has."""
    height, left, gap = 66, 8, 5
    outline = rect(0, 0, width, height, "none", radius=5, more=f'stroke="{GREY}"')
    elements = [outline, text(left, 17, f"rank {rank}")]
    letters = [max(3, len(word)) for word, _ in chips]
    room = width - 2 * left - gap * (len(chips) - 1)
    for (word, whose), count in zip(chips, letters, strict=True):
        wide = min(11 * count, room * count // sum(letters))
        colours = [COLOURS[each % len(COLOURS)] for each in whose] or [_SAME]
        stripes = [30 * i // len(colours) for i in range(len(colours) + 1)]
        for colour, top, bottom in zip(colours, stripes, stripes[1:], strict=False):
            elements.append(rect(left, 26 + top, wide, bottom - top, colour))
        middle = left + wide // 2
        elements.append(text(middle, 45, word, anchor="middle", more=_ON_COLOUR))
        left += wide + gap
    return svg.Picture(tuple(elements), width, height)


_LEFT, _RIGHT, _ROW, _CURVE = 60, 790, 66, 24


def timeline(
    spans: Sequence[Sequence[tuple[str, ClockEvent]]],
    curves: Sequence[Sequence[tuple[float, int]]],
    budget: int,
) -> str:
    """What each rank did when, and held, against a budget of bytes, as HTML.

    Args:
        spans: For each rank pairs of a lane, or `wait`, and an event, which may have no end.
        curves: For each rank moments, and the bytes that it held from each on.
        budget: The bytes that a rank may hold.
    """
    ends = [event.end for own in spans for _, event in own if event.end < math.inf]
    ends += [time for curve in curves for time, _ in curve]
    waiting = [f"rank {r}" for r, own in enumerate(spans) if math.inf in [e.end for _, e in own]]
    # The axis is longer for those who wait for ever.
    end = max(ends) * (1.1 if waiting else 1.0) or 1.0
    most = max([budget, *(held for curve in curves for _, held in curve)])
    scale = (_RIGHT - _LEFT) / end
    bottom = 30 + len(spans) * _ROW
    elements = [*_legend(), *_axis(end, scale, bottom)]
    for rank, (own, curve) in enumerate(zip(spans, curves, strict=True)):
        top = 34 + rank * _ROW
        elements.append(text(0, top + 14, f"rank {rank}"))
        for lane, event in sorted(own, key=lambda pair: (pair[0], pair[1].start)):
            elements += _span(lane, event, top, scale, end)
        elements += _curve(curve, top + 34, scale, most)
        limit = top + 34 + round(_CURVE * (1 - budget / most))
        elements.append(_line(_LEFT, limit, _RIGHT, limit, _BUDGET))
    more = f"; to the end waits: {', '.join(waiting)}" if waiting else ""
    words = f"What each of {len(spans)} ranks did when{more}"
    picture = svg.Picture(tuple(elements), _RIGHT + 54, bottom + 18)
    return svg.image(svg.document(picture, words), words)


def _axis(end: float, scale: float, bottom: int) -> list[str]:
    step = 1.0
    while end / step > 8:
        step *= 2.5 if str(step)[0] == "2" else 2
    elements = [text(_RIGHT + 54, bottom + 14, "ticks", anchor="end")]
    for i in range(int(end / step) + 1):
        x = _LEFT + round(i * step * scale)
        elements.append(_line(x, 28, x, bottom, f'stroke="{GREY}" stroke-opacity="0.3"'))
        elements.append(text(x, bottom + 14, amount(i * step), anchor="middle"))
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
        elements += [rect(x, 6, 14, 10, colour, more=how), text(x + 20, 15, word)]
        x += 40 + svg.text_width(word)
    return [*elements, _line(x, 11, x + 14, 11, _BUDGET), text(x + 20, 15, "budget of memory")]


_LANES = {"compute": (0, 16, _BLUE), "send": (18, 6, _SEND), "receive": (25, 6, _RECEIVE)}


def _span(lane: str, event: ClockEvent, top: int, scale: float, last: float) -> list[str]:
    x, end = (_LEFT + round(min(time, last) * scale) for time in (event.start, event.end))
    if lane == "wait":
        return [rect(x, top, max(end - x, 1), 16, "none", more=_WAITS)]
    down, height, colour = _LANES[lane]
    width = max(end - x - (end - x > 3), 1)  # neighbours are told apart where there is room
    made = [rect(x, top + down, width, height, colour)]
    initials = "".join(word[0].upper() for word in event.what.split("_"))
    fitting = (word for word in (event.what, initials) if width > 7 * len(word) + 4)
    if lane == "compute" and (word := next(fitting, "")):
        made.append(text(x + width // 2, top + 12, word, anchor="middle", more=_ON_COLOUR))
    return made


def _curve(curve: Sequence[tuple[float, int]], top: int, scale: float, most: int) -> list[str]:
    points = [f"{_LEFT},{top + _CURVE}"]
    starts = [_LEFT + round(time * scale) for time, _ in curve]
    for (_, held), start, end in zip(curve, starts, [*starts[1:], _RIGHT], strict=True):
        y = top + round(_CURVE * (1 - held / most))
        points += [f"{start},{y}", f"{max(start, end)},{y}"]
    points.append(f"{_RIGHT},{top + _CURVE}")
    peak = max(held for _, held in curve)
    return [
        f'<polygon points="{" ".join(points)}" fill="{_MEMORY}" fill-opacity="0.55"/>',
        text(_RIGHT + 4, top + _CURVE, f"{peak:,}"),
    ]
