"""The pictures of a check: bars against the budgets, and what each rank did when."""

from collections.abc import Sequence

from msgspec.structs import replace

from distlab.puzzles.messages import LaneSpan, Outcome, Score
from distlab.puzzles.puzzle import Puzzle
from distlab.puzzles.vectors import COLOURS, GREY, INK, RED, WIDTH, image, line, rect, text, ticks

_COMPUTE, _SEND, _RECEIVE, _MEMORY = COLOURS[0], COLOURS[1], COLOURS[2], COLOURS[3]
_OK = COLOURS[0]
_LEFT = 70
_MEASURES = (("time", "time, ticks"), ("memory", "memory, bytes"), ("sent", "sent, bytes"))
_ROW = 66
_CURVE = 24
_PITCH = 56
"""From one bar to the next: the marks of the lower one stay below the words of the upper one."""
_FURTHER = 1.1
"""How much longer the axis is for those who wait for ever."""
_LIMIT, _REFERENCE = 'stroke-width="3"', 'stroke-width="1.5" stroke-dasharray="3 2"'
"""How a bar's budget and its reference are marked."""
_BUDGET = 'stroke-dasharray="6 4" stroke-width="1.5"'


def amount(value: float) -> str:
    """A measure in words: whole, unless it is a time with a fraction."""
    return f"{value:,.2f}".rstrip("0").rstrip(".")


def bars(puzzle: Puzzle, scores: dict[int, Score]) -> str:
    """Bars of time, memory and bytes sent, each as a part of its budget, for each size.

    Args:
        puzzle: With the budgets and the reference.
        scores: What the solution took, by the number of ranks.

    Returns:
        HTML.
    """
    panel, gap = (WIDTH - 2 * 24) / 3, 24
    elements, words = [], []
    for column, (name, label) in enumerate(_MEASURES):
        left = column * (panel + gap)
        elements.append(text(left, 14, label))
        longest = max(
            getattr(each[size], name) for each in (scores, puzzle.budgets) for size in scores
        )
        scale = (panel - 60) / longest
        for row, (size, score) in enumerate(scores.items()):
            value = getattr(score, name)
            budget, reference = (
                getattr(limits[size], name) for limits in (puzzle.budgets, puzzle.reference)
            )
            top = 26 + row * _PITCH
            over = value > budget
            elements += [
                text(left, top + 15, f"{size} ranks"),
                rect(left + 58, top, value * scale, 20, RED if over else _OK),
                *_mark(left + 58 + reference * scale, top, value > reference, 8, _REFERENCE),
                *_mark(left + 58 + budget * scale, top, value > budget, 4, _LIMIT),
                text(
                    left + 58,
                    top + 36,
                    f"{amount(value)} of {amount(budget)}{', over budget' if over else ''}",
                    colour=RED if over else GREY,
                    size=11,
                ),
            ]
            words.append(f"{label} with {size} ranks: {amount(value)} of {amount(budget)}")
    bottom = 26 + _PITCH * len(scores) + 8
    elements += [
        line(2, bottom - 10, 2, bottom + 2, GREY, _LIMIT),
        text(10, bottom, "budget", size=11),
        line(70, bottom - 10, 70, bottom + 2, GREY, _REFERENCE),
        text(78, bottom, "reference", size=11),
    ]
    return image(elements, bottom + 8, "; ".join(words))


def _mark(x: float, top: float, over_bar: bool, above: float, how: str) -> list[str]:
    """A line across a bar, with a light ground where it would be lost in the bar's colour."""
    ground = [rect(x - 3, top, 6, 20, "#ffffff", 'fill-opacity="0.85"')] if over_bar else []
    return [*ground, line(x, top - above, x, top + 24, GREY, how)]


def timeline(outcome: Outcome, budget: int) -> str:
    """What each rank computed, sent, received and held when.

    Args:
        outcome: Of one run, also of one that did not come to its end.
        budget: The bytes that a rank may hold.

    Returns:
        HTML.
    """
    ends = [span.end for spans in outcome.spans for span in spans]
    ends += [time for curve in outcome.held for time, _ in curve]
    end = max(ends, default=0.0) * (_FURTHER if outcome.stuck else 1.0) or 1.0
    most = max([budget, *(held for curve in outcome.held for _, held in curve)])
    scale = (WIDTH - _LEFT - 60) / end
    elements = _legend()
    bottom = 30 + len(outcome.spans) * _ROW
    for tick in ticks(end):
        x = _LEFT + tick * scale
        elements.append(line(x, 28, x, bottom, GREY, 'stroke-opacity="0.3"'))
        elements.append(text(x, bottom + 14, amount(tick), size=11, anchor="middle"))
    elements.append(text(WIDTH, bottom + 14, "ticks", size=11, anchor="end"))
    for rank, (spans, curve) in enumerate(zip(outcome.spans, outcome.held, strict=True)):
        top = 34 + rank * _ROW
        elements.append(text(0, top + 14, f"rank {rank}"))
        for span in _joined(spans):
            elements += _span(span, top, scale)
        if rank in outcome.stuck:
            since = outcome.stuck[rank]
            elements.append(_waiting(_LEFT + since * scale, top, (end - since) * scale, 16))
        elements += _curve(curve, top + 34, scale, end, most)
        if outcome.unsized[rank]:  # a message that nobody sent has no size
            elements.append(text(_LEFT + end * scale + 4, top + 44, "+ ?", size=11))
        limit = top + 34 + _CURVE * (1 - budget / most)
        elements.append(line(_LEFT, limit, _LEFT + end * scale, limit, RED, _BUDGET))
    waiting = ", ".join(f"rank {rank}" for rank in sorted(outcome.stuck))
    more = f"; to the end waits: {waiting}" if waiting else ""
    return image(elements, bottom + 22, f"What each of {outcome.size} ranks did when{more}")


def _joined(spans: Sequence[LaneSpan]) -> list[LaneSpan]:
    """Spans, with waits that follow each other at once as one."""
    joined: list[LaneSpan] = []
    last: int | None = None
    for span in spans:
        if span.lane == "wait" and last is not None and joined[last].end == span.start:
            joined[last] = replace(joined[last], end=span.end)
            continue
        if span.lane == "wait":
            last = len(joined)
        joined.append(span)
    return joined


def _legend() -> list[str]:
    elements, x = [], _LEFT
    for colour, word in (
        (_COMPUTE, "computes"),
        (None, "waits"),
        (_SEND, "sends"),
        (_RECEIVE, "receives"),
        (_MEMORY, "memory held"),
    ):
        if colour is None:
            elements.append(_waiting(x, 6, 14, 10))
        else:
            more = 'fill-opacity="0.55"' if colour == _MEMORY else ""
            elements.append(rect(x, 6, 14, 10, colour, more))
        elements.append(text(x + 20, 15, word))
        x += 40 + 7 * len(word)
    elements.append(line(x, 11, x + 14, 11, RED, _BUDGET))
    elements.append(text(x + 20, 15, "budget of memory"))
    return elements


def _waiting(x: float, y: float, width: float, height: float) -> str:
    more = f'stroke="{GREY}" stroke-dasharray="2 2"'
    return rect(x, y + 0.5, max(width, 1), height - 1, "none", more)


_LANES = {"compute": (0, 16), "wait": (0, 16), "send": (18, 6), "receive": (25, 6)}
_FILLS = {"compute": _COMPUTE, "send": _SEND, "receive": _RECEIVE}


def _span(span: LaneSpan, top: float, scale: float) -> list[str]:
    down, height = _LANES[span.lane]
    x, width = _LEFT + span.start * scale, (span.end - span.start) * scale
    if span.lane == "wait":
        return [_waiting(x, top + down, width, height)]
    inset = 0.5 if width > 3 else 0.0  # neighbours are told apart where there is room
    made = [rect(x, top + down, max(width - inset, 1), height, _FILLS[span.lane])]
    initials = "".join(word[0].upper() for word in span.what.split("_"))
    fitting = (word for word in (span.what, initials) if width > 7 * len(word) + 4)
    if span.lane == "compute" and (word := next(fitting, "")):
        made.append(text(x + width / 2, top + 12, word, colour=INK, size=11, anchor="middle"))
    return made


def _curve(
    curve: Sequence[tuple[float, int]], top: float, scale: float, end: float, most: int
) -> list[str]:
    height = _CURVE
    points = [f"{_LEFT},{top + height}"]
    following = [time for time, _ in curve[1:]] + [end]
    for (time, held), until in zip(curve, following, strict=True):
        y = top + height * (1 - held / most)
        points += [f"{_LEFT + t * scale:.1f},{y:.1f}" for t in (time, max(time, until))]
    points.append(f"{_LEFT + end * scale:.1f},{top + height}")
    peak = max((held for _, held in curve), default=0)
    x = _LEFT + end * scale + 4
    return [
        f'<polygon points="{" ".join(points)}" fill="{_MEMORY}" fill-opacity="0.55"/>',
        text(x, top + height, f"{peak:,}", size=11),
    ]
