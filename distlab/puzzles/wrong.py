"""What is wrong in words: a rank that has failed, ranks that wait for ever, wrong results."""

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from distlab.puzzles.clock import Clocks, Transfer
from distlab.puzzles.exchange import differences
from distlab.puzzles.memory import HeldTensor, Place
from distlab.puzzles.operations import Array
from distlab.puzzles.puzzle import Instance, Made, tensors
from distlab.puzzles.turns import Seat

TOLERANCE = 1e-5


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
    *first, last = map(str, ranks)
    plural = f"{word}es" if word.endswith("ch") else f"{word}s"
    return f"{plural} {', '.join(first)} and {last}" if first else f"{word} {last}"


# Ranks that wait for ever.


def stuck(seats: Sequence[Seat], clocks: Clocks, unfinished: Sequence[Transfer]) -> str:
    """What is left when no rank can go on; empty if all have returned and nothing is left."""
    unfinished = sorted(unfinished, key=_order)
    for transfer in unfinished:
        if not transfer.is_message and (words := differences(transfer)):
            return words
    waiting = [seat for seat in seats if seat.state == "waiting"]
    if waiting:
        every = len(waiting) == len(seats)
        head = "Deadlock: every rank waits for another." if every else "No rank can go on."
        return "\n".join([head, *(_waits(seat, clocks, unfinished) for seat in seats)])
    if not unfinished:
        return ""
    first = unfinished[0]
    if not first.is_message:
        why = _missing(first).removeprefix(". ") or (
            f"{first.kind} cannot begin{_behind(clocks, first, 0)}"
        )
        return f"All ranks have returned, but a collective is not over.\n{why}"
    source, target = first.members
    if source in first.called:
        return (
            f"Rank {source} sends to rank {target}, which never receives it: all ranks have "
            f"returned.\n{first.places[source]}"
        )
    return (
        f"Rank {target} receives from rank {source}, which sends it nothing more: all ranks have "
        f"returned.\n{first.places[target]}"
    )


def _order(transfer: Transfer) -> tuple[object, ...]:
    """Collectives first, then messages that somebody has not called, those of low ranks first."""
    called = transfer.called
    return (
        transfer.is_message,
        set(transfer.members) <= set(called),
        min(called),
        transfer.members,
    )


def _waits(seat: Seat, clocks: Clocks, unfinished: Sequence[Transfer]) -> str:
    """What a rank waits for."""
    if seat.state == "returned":
        return f"Rank {seat.rank} has returned."
    coming = next(held for held in seat.operands if held.ready is None)
    transfer = next(each for each in unfinished if coming in each.made.get(seat.rank, []))
    words = _missing(transfer) or _behind(clocks, transfer, seat.rank)
    called = transfer.places[seat.rank].short
    what = f"{seat.call} waits for {coming.what} ({called}){words}"
    return f"Rank {seat.rank}, {seat.place}\n    {what}"


def _behind(clocks: Clocks, transfer: Transfer, rank: int) -> str:
    """What is first in the lanes of a transfer, what is first in the lanes of that, and so on."""
    told, seen = ".", [transfer]
    while found := clocks.ahead(seen[-1], rank):
        rank, lane, first = found
        called = first.kind
        if first.is_message:
            source, target = first.members
            sends = lane == "sends"
            called = f"send to rank {target}" if sends else f"receive from rank {source}"
        told += (
            f" Rank {rank} {lane} in the order of its calls: {called} ({first.places[rank].short}) "
            f"is first{_missing(first) or '.'}"
        )
        if first in seen or _missing(first):
            break
        seen.append(first)
    return told


def _missing(transfer: Transfer) -> str:
    """Who has not called what a transfer needs; empty if all have."""
    missing = [rank for rank in transfer.members if rank not in transfer.called]
    if not missing:
        return ""
    if transfer.is_message:
        return f", and rank {missing[0]} has not sent it."
    called = ", ".join(f"rank {r} in {p.short}" for r, p in sorted(transfer.places.items()))
    over = "" if len(transfer.members) == 1 else f" over {_ranks(transfer.members)}"
    return f". {transfer.kind}{over} was called by {called}, but not by {_ranks(missing)}."


# Wrong results.


def verdict(
    task: Instance, kept: Sequence[Mapping[str, tuple[Place, Sequence[HeldTensor]]]]
) -> str:
    """The first thing that is wrong in what the ranks have kept; empty if all is right."""
    for rank, results in enumerate(kept):
        for name in task.expected[rank]:
            if name not in results:
                return f'Rank {rank} has returned without me.keep("{name}", ...).'
            place, held = results[name]
            if why := compare(task, rank, name, [each.there() for each in held]):
                return f"{why}\n{place}"
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
            made = right[index] if isinstance(right, list) else right
            known = _known(task, rank, name, index)
            words = _explained(values, array, made, known, len(task.expected))
            return f"{what} of rank {rank} {words}."
    return ""


def close(values: Array, right: Array) -> bool:
    """Whether numbers are right, but for rounding."""
    scale = max(1.0, float(np.abs(right).max(initial=0.0)))
    return bool(np.all(np.abs(values - right) <= TOLERANCE * scale))


def _known(task: Instance, rank: int, name: str, index: int) -> list[tuple[str, Array]]:
    """Arrays that a result may have by mistake, and what it is then; the likeliest first."""
    given = {key: tensors(value) for key, value in task.given[rank].items()}
    known = [("is what it was at the start", given[name][index])] if name in given else []
    for other, results in enumerate(task.expected):
        for i, array in enumerate(tensors(results[name])):
            label = f"{name}[{i}]" if isinstance(results[name], list) else name
            known.append((f"has the numbers that belong in {label} of rank {other}", array))
    for key, arrays in given.items():
        known += [(f"has numbers of me.{key} as they were at the start", each) for each in arrays]
    return known


def _explained(
    values: Array, right: Array, made: object, known: Sequence[tuple[str, Array]], parts: int
) -> str:
    """What is wrong with numbers, where that can be told."""
    found = [words for words, array in known if array.shape == right.shape and close(values, array)]
    if found and (found[0].startswith("is ") or not isinstance(made, Made)):
        return found[0]
    if isinstance(made, Made) and (words := _contributions(values, made, slice(None))):
        return words
    return found[0] if found else _by_rows(values, right, made, parts) or "has wrong numbers"


def _contributions(values: Array, made: Made, rows: slice) -> str:
    """Which parts are in a result, and how often; empty if it is no sum of parts."""
    for times in _mixtures(made.count):
        if close(values, made.make(times)[rows]):
            break
    else:
        return ""
    once, twice, none = (
        [i for i, count in enumerate(times) if count == wanted] for wanted in (1, 2, 0)
    )
    if len(none) == made.count:
        return f"has the {made.what} of no {made.of}"
    words = []
    if once:
        words.append(f"the {made.what} of {_ranks(once, made.of)}")
    if twice:
        words.append(f"{'those' if once else f'the {made.what}'} of {_ranks(twice, made.of)} twice")
    lacks = f" and lacks those of {_ranks(none, made.of)}" if none else ""
    return f"has {' and '.join(words)}{lacks}"


def _mixtures(count: int) -> Iterator[Sequence[float]]:
    """How often each part may be in a result, the simplest first."""
    for most in (1, 2):
        if (most + 1) ** count < 5_000:
            yield from itertools.product(range(most + 1), repeat=count)


def _by_rows(values: Array, right: Array, made: object, parts: int) -> str:
    """What is wrong with the first rows that are, of as many parts as there are ranks."""
    size = len(values) // parts
    blocks = [slice(start, start + size) for start in range(0, size * parts, max(size, 1))]
    wrong = next((rows for rows in blocks if not close(values[rows], right[rows])), None)
    if wrong is None:
        return ""
    where = f"has wrong numbers. Its rows {wrong.start} to {wrong.stop - 1} have"
    for rows in blocks:
        if close(values[wrong], right[rows]):
            return f"{where} the numbers that belong in rows {rows.start} to {rows.stop - 1}"
    words = _contributions(values[wrong], made, wrong) if isinstance(made, Made) else ""
    return words and f"{where}{words.removeprefix('has').replace(' lacks ', ' lack ')}"
