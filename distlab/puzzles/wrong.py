"""What is wrong in words: a rank that has failed, ranks that wait for ever, wrong results."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from distlab.errors import listed
from distlab.puzzles.exchange import MESSAGES, Exchange, Transfer
from distlab.puzzles.lines import Place
from distlab.puzzles.operations import Array
from distlab.puzzles.puzzle import Instance, Made, tensors
from distlab.puzzles.turns import Seat

TOLERANCE = 1e-5
_MOST_MIXTURES = 5_000
"""Of the parts of a result that are tried."""


def first_failure(seats: Sequence[Seat]) -> str:
    """What was wrong first in logical time, and in which ranks; empty if nothing was."""
    failed = [seat for seat in seats if seat.state == "failed"]
    if not failed:
        return ""
    why, place = min(failed, key=lambda seat: seat.when).why
    alike = [seat.rank for seat in failed if seat.why == (why, place)]
    who = "Every rank" if len(alike) == len(seats) > 1 else _ranks(alike, "Rank")
    first, _, rest = why.partition("\n")
    return "\n".join(filter(None, [f"{who}: {first}", str(place or ""), rest]))


def _ranks(ranks: Sequence[int], word: str = "rank") -> str:
    """Some ranks, or other things with numbers, in words: `ranks 0, 1 and 3`."""
    plural = f"{word}es" if word.endswith("ch") else f"{word}s"
    return f"{plural if len(ranks) > 1 else word} {listed([*map(str, ranks)])}"


# Ranks that wait for ever.


def stuck(seats: Sequence[Seat], exchange: Exchange) -> str:
    """What is left when no rank can go on; empty if all have returned and nothing is left."""
    for transfer in exchange.open:
        if words := transfer.differences():
            return words
    waiting = [seat for seat in seats if seat.state == "waiting"]
    if waiting:
        every = len(waiting) == len(seats)
        head = "Deadlock: every rank waits for another." if every else "No rank can go on."
        return "\n".join([head, *(_waits(seat, exchange) for seat in seats)])
    for transfer in exchange.open:
        rank, part = min(transfer.parts.items())
        return (
            f"All ranks have returned, but rank {rank}'s {part.what} is not over"
            f"{_why(exchange, transfer, rank)}\n{part.place}"
        )
    return ""


def _waits(seat: Seat, exchange: Exchange) -> str:
    """What a rank waits for."""
    if seat.state == "returned":
        return f"Rank {seat.rank} has returned."
    coming = next(held for held in seat.operands if held.ready is None)
    mine = [each for each in exchange.open if seat.rank in each.parts]
    transfer = next(each for each in mine if coming in each.parts[seat.rank].made)
    part = transfer.parts[seat.rank]
    return (
        f"Rank {seat.rank}, {seat.place}\n    {seat.call} waits for {part.what} "
        f"({part.place.short}){_why(exchange, transfer, seat.rank)}"
    )


def _why(exchange: Exchange, transfer: Transfer, rank: int) -> str:
    """Why a transfer is not over: who has not called it, or what is first in a lane."""
    if words := _missing(transfer):
        return words
    if not (found := exchange.ahead(transfer, rank)):
        return "."
    rank, lane, first = found
    part = first.parts[rank]
    return (
        f". Rank {rank} {lane}s in the order of its calls: {part.what} ({part.place.short}) is "
        f"first{_missing(first) or '.'}"
    )


def _missing(transfer: Transfer) -> str:
    """Who has not called what a transfer needs; empty if all have."""
    if not transfer.missing:
        return ""
    if transfer.kind in MESSAGES:
        sent = "sent" if transfer.missing[0] == transfer.members[0] else "received"
        return f", and rank {transfer.missing[0]} has not {sent} it."
    called = [f"rank {r} in {part.place.short}" for r, part in sorted(transfer.parts.items())]
    over = "" if len(transfer.members) == 1 else f" over {_ranks(transfer.members)}"
    return (
        f". {transfer.kind}{over} was called by {', '.join(called)}, but not by "
        f"{_ranks(transfer.missing)}."
    )


# Wrong results.


def verdict(
    task: Instance,
    kept: Sequence[Mapping[str, Sequence[Array]]],
    places: Sequence[Mapping[str, Place]] | None = None,
) -> str:
    """The first thing that is wrong in what the ranks have kept; empty if all is right."""
    for rank, results in enumerate(kept):
        for name in task.expected[rank]:
            if name not in results:
                return f'Rank {rank} has returned without me.keep("{name}", ...).'
            if words := compare(task, rank, name, results[name]):
                return f"{words}\n{places[rank][name]}" if places else words
    return ""


def compare(task: Instance, rank: int, name: str, kept: Sequence[Array]) -> str:
    """What is wrong with the arrays that a rank has kept under a name; empty if nothing is."""
    right = task.expected[rank][name]
    several = isinstance(right, list)
    wanted = tensors(right)
    if len(kept) != len(wanted):
        return (
            f"{name} of rank {rank} must be {'a list of ' * several}{len(wanted)} "
            f"tensor{'s' * (len(wanted) != 1)}, not {len(kept)}."
        )
    for index, (values, array) in enumerate(zip(kept, wanted, strict=True)):
        what = f"{name}[{index}]" if several else name
        if values.shape != array.shape:
            return f"{what} of rank {rank} has the shape {values.shape}; it must be {array.shape}."
        if not close(values, array):
            words = _explained(values, array, _known(task, rank, name, index), len(task.expected))
            return f"{what} of rank {rank} {words}."
    return ""


def close(values: Array, right: Array) -> bool:
    """Whether numbers are right, but for rounding."""
    scale = max(1.0, float(np.abs(right).max(initial=0.0)))
    return bool(np.all(np.abs(values - right) <= TOLERANCE * scale))


def _known(task: Instance, rank: int, name: str, index: int) -> Iterator[tuple[str, Array]]:
    """What a result may be by mistake, in words, with its numbers then; the likeliest first."""
    given = {key: tensors(value) for key, value in task.given[rank].items()}
    if name in given:
        yield "is what it was at the start", given[name][index]
    right = task.expected[rank][name]
    made = right[index] if isinstance(right, list) else right
    if isinstance(made, Made):
        for most in (1, 2):  # times that a part is in it
            if (most + 1) ** made.count < _MOST_MIXTURES:
                for times in itertools.product(range(most + 1), repeat=made.count):
                    yield _contributions(made, times), made.make(times)
    for other, results in enumerate(task.expected):
        for i, array in enumerate(tensors(results[name])):
            label = f"{name}[{i}]" if isinstance(results[name], list) else name
            yield f"has the numbers that belong in {label} of rank {other}", array
    for key, arrays in given.items():
        for array in arrays:
            yield f"has numbers of me.{key} as they were at the start", array


def _contributions(made: Made, times: Sequence[int]) -> str:
    """Which parts are in a result, and how often."""
    once, twice, none = (
        [i for i, count in enumerate(times) if count == wanted] for wanted in (1, 2, 0)
    )
    if len(none) == made.count:
        return f"has the {made.what} of no {made.of}"
    words = [f"the {made.what} of {_ranks(once, made.of)}"] if once else []
    if twice:
        words.append(f"{'those' if once else f'the {made.what}'} of {_ranks(twice, made.of)} twice")
    lacks = f" and lacks those of {_ranks(none, made.of)}" if none else ""
    return f"has {' and '.join(words)}{lacks}"


def _explained(values: Array, right: Array, known: Iterable[tuple[str, Array]], parts: int) -> str:
    """What is wrong with numbers; if with some rows alone, with the first of so many parts."""
    size = len(values) // parts
    blocks = [slice(start, start + size) for start in range(0, size * parts, max(size, 1))]
    wrong = next((rows for rows in blocks if not close(values[rows], right[rows])), None)
    theirs = ""  # whose numbers these rows have
    for rows in blocks:
        if wrong and not theirs and close(values[wrong], right[rows]):
            theirs = f" the numbers that belong in rows {rows.start} to {rows.stop - 1}"
    for words, array in known:
        if array.shape == right.shape:
            if close(values, array):
                return words
            if wrong and not theirs and words[:3] == "has" and close(values[wrong], array[wrong]):
                theirs = words.removeprefix("has").replace(" lacks ", " lack ")
    if wrong and theirs:
        return f"has wrong numbers. Its rows {wrong.start} to {wrong.stop - 1} have{theirs}"
    return "has wrong numbers"
