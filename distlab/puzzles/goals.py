"""The picture of a puzzle: what each rank has at the start, and what it wants to have."""

from collections.abc import Callable
from dataclasses import dataclass

from distlab.puzzles.vectors import COLOURS, INK, WIDTH, image, rect, text

_SAME = "#c6d2dc"
"""What is the same on every rank."""


@dataclass(frozen=True)
class _Chip:
    """A tensor in the picture.

    Attributes:
        word: Written on it.
        ranks: Whose colours it has; none for what is the same everywhere.
        part: Its width beside others; a part of something is narrower.
    """

    word: str
    ranks: tuple[int, ...] = ()
    part: float = 1.0


_Side = Callable[[int, int], list[_Chip]]
"""What a rank of some number has."""


def _all(n: int) -> tuple[int, ...]:
    return tuple(range(n))


def _own(*words: str) -> _Side:
    return lambda rank, _: [_Chip(f"{word} {rank}", (rank,)) for word in words]


def _parts(*words: str) -> _Side:
    return lambda rank, _: [
        _Chip(f"{word} {rank}", (rank,), 0.6 if len(word) < 4 else 0.8) for word in words
    ]


def _same(*words: str) -> _Side:
    return lambda _, __: [_Chip(word) for word in words]


def _both(*sides: _Side) -> _Side:
    return lambda rank, n: [chip for side in sides for chip in side(rank, n)]


def _summed(word: str) -> _Side:
    return lambda _, n: [_Chip(word, _all(n))]


def _stages(rank: int, n: int) -> list[_Chip]:
    ends = {0: [_Chip("batches")], n - 1: [_Chip("targets")]}
    return [_Chip(f"w {rank}", (rank,)), *ends.get(rank, [])]


def _experts(rank: int, n: int) -> list[_Chip]:  # noqa: ARG001
    own = [_Chip(f"E{2 * rank + i}", (rank,), 0.5) for i in range(2)]
    return [*own, _Chip(f"tokens {rank}", (rank,), 1.2)]


def _place(rank: int, mark: str = "") -> tuple[int, str]:
    stage, part = rank // 2 % 2, rank % 2
    return stage * 2 + part, f"{mark} {stage},{part}"


def _corner(rank: int, n: int) -> list[_Chip]:  # noqa: ARG001
    colour, name = _place(rank)
    end = f"{'targets' if rank // 2 % 2 else 'batches'} {rank // 4}"
    return [*(_Chip(f"{word}{name}", (colour,), 0.7) for word in "ab"), _Chip(end, (), 1.1)]


def _corner_after(rank: int, n: int) -> list[_Chip]:  # noqa: ARG001
    colour, name = _place(rank, "'")
    return [_Chip(f"{word}{name}", (colour,), 0.7) for word in "ab"]


_SIDES: dict[int, tuple[int, _Side, _Side]] = {
    1: (4, _own("gradient"), _summed("sum")),
    2: (4, _both(_same("weights"), _own("x")), _same("weights'")),
    3: (4, _both(_same("weights"), _own("x")), _same("weights'")),
    4: (4, _both(_same("weights"), _parts("m", "v"), _own("x")), _same("weights'")),
    5: (4, _both(_parts("shards"), _own("x")), _parts("shards'")),
    6: (4, _both(_parts("a", "b"), _same("x")), _both(_parts("a'", "b'"), _same("dx"))),
    7: (4, _stages, lambda rank, _: [_Chip(f"w {rank}'", (rank,))]),
    8: (4, _both(_same("25 weights"), _own("x")), _same("25 weights'")),
    9: (4, _own("q", "k", "v"), _own("out")),
    10: (4, _experts, lambda rank, _: [_Chip(f"results for tokens {rank}", (rank,), 2.2)]),
    11: (8, _corner, _corner_after),
}
_HEIGHT, _GAP, _LEFT = 66, 10, 50


def picture(number: int) -> str:
    """The start and the goal of a puzzle, ranks beside each other.

    Args:
        number: Of the puzzle.

    Returns:
        HTML.
    """
    size, start, goal = _SIDES[number]
    columns = min(size, 4)
    width = (WIDTH - _LEFT - _GAP * (columns - 1)) / columns
    lines = size // columns
    elements, words = [], []
    for row, (label, side) in enumerate((("start", start), ("goal", goal))):
        top = row * lines * (_HEIGHT + 8) + row * 10
        elements.append(text(0, top + 40, label, size=13))
        for rank in range(size):
            chips = side(rank, size)
            x = _LEFT + rank % columns * (width + _GAP)
            elements += _rank(rank, chips, x, top + rank // columns * (_HEIGHT + 8), width)
            words.append(f"{label}, rank {rank}: {', '.join(chip.word for chip in chips)}")
    return image(elements, 2 * lines * (_HEIGHT + 8) + 12, "; ".join(words))


def _rank(rank: int, chips: list[_Chip], x: float, y: float, width: float) -> list[str]:
    outline = 'stroke="#797979" rx="5"'
    elements = [
        rect(x + 0.5, y + 0.5, width - 1, _HEIGHT - 1, "none", outline),
        text(x + 8, y + 17, f"rank {rank}"),
    ]
    room = width - 16 - 5 * (len(chips) - 1)
    unit = min(room / sum(chip.part for chip in chips), 90.0)
    left = x + 8
    for chip in chips:
        wide = unit * chip.part
        colours = [COLOURS[rank] for rank in chip.ranks] or [_SAME]
        for i, colour in enumerate(colours):
            stripe = 30 / len(colours)  # a sum is as large as what is added
            elements.append(rect(left, y + 26 + i * stripe, wide, stripe, colour))
        size = 12 if 6.6 * len(chip.word) < wide else 10
        elements.append(
            text(left + wide / 2, y + 45, chip.word, colour=INK, size=size, anchor="middle")
        )
        left += wide + 5
    return elements
