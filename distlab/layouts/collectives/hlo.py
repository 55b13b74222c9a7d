"""Find the collectives in a compiled XLA program's text (HLO).

Each is an instruction such as

    %all-reduce = f32[128,10]{1,0} all-reduce(%dot), replica_groups={{0,4},{1,5}}, ...

with the shape a device ends up with, and the groups of devices that take part together. XLA
writes the groups in one of three ways, all of which are read here: listed as above, as a
permuted range (`[4,2]<=[2,4]T(1,0)`), or as axes of a mesh (`mesh['a'=2,'b'=4] {'a'}`).
See https://openxla.org/xla/operation_semantics and, for loops and calls, the names of the
computations that an instruction runs.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

KINDS = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "ragged-all-to-all",
    "collective-permute",
    "collective-broadcast",
)

_COMPUTATION = re.compile(r"^(?P<entry>ENTRY )?%?(?P<name>[\w.\-]+) \(.*\) -> .* \{$")
_INSTRUCTION = re.compile(
    rf"^(?:ROOT )?%?[\w.\-]+ = (?P<shape>.+?) (?P<kind>{'|'.join(KINDS)})(?P<start>-start)?\("
)
_SHAPE = re.compile(r"([a-z]\w*)\[([\d,<=]*)\]")
_CALLED = re.compile(
    r"\b(body|condition|calls|to_apply|true_computation|false_computation)=%?([\w.\-]+)"
)
_BRANCHES = re.compile(r"\bbranch_computations=\{([^}]*)\}")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_COMMENT = re.compile(r"/\*.*?\*/")


@dataclass(frozen=True)
class Instruction:
    """A collective as the program states it.

    Attributes:
        kind: One of `KINDS`.
        shapes: Type and shape of each tensor that a device ends up with.
        groups: The positions of the devices that take part together; for a permutation, the
            pairs of sender and receiver. Empty for all devices at once.
        times: How often it runs each time the program does: more than once inside a loop.
        known: Whether `times` is known. In a loop that runs until a condition holds it is not,
            and the instruction is counted as if the loop ran once; in a branch, as if taken.
    """

    kind: str
    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    groups: tuple[tuple[int, ...], ...]
    times: int
    known: bool


def instructions(program: str) -> list[Instruction]:
    """Return the collectives of a program, in the order in which it is written.

    Args:
        program: HLO text, as `jax.jit(f).lower(...).compile().as_text()` returns it.

    Returns:
        One entry for each instruction and each place it is called from.

    Raises:
        ValueError: If the text has no entry computation, or groups written in an unknown way.
    """
    computations: dict[str, list[str]] = {}
    entry = None
    lines: list[str] = []
    for line in program.splitlines():
        if header := _COMPUTATION.match(line):
            lines = computations.setdefault(header["name"], [])
            if header["entry"]:
                entry = header["name"]
        else:
            lines.append(_COMMENT.sub("", line.strip()))
    if entry is None:
        raise ValueError("This is not the text of a compiled HLO program: it has no ENTRY.")
    return list(_walk(computations, entry, 1, True))


def _walk(
    computations: dict[str, list[str]], name: str, times: int, known: bool
) -> Iterator[Instruction]:
    for line in computations[name]:
        if found := _INSTRUCTION.match(line):
            kind = found["kind"]
            shapes = _shapes(found["shape"], kind, bool(found["start"]))
            yield Instruction(kind, shapes, _groups(line), times, known)
        if "-done(" in line or "-update(" in line:
            continue  # the other half of what has been counted at its start
        for role, callee in _CALLED.findall(line):
            if role in ("body", "condition"):
                trips = _TRIPS.search(line)
                count = int(trips[1]) if trips else 1
                yield from _walk(computations, callee, times * count, known and trips is not None)
            elif callee in computations:
                sure = known and role in ("calls", "to_apply")
                yield from _walk(computations, callee, times, sure)
        for branches in _BRANCHES.findall(line):
            for callee in re.findall(r"[\w.\-]+", branches):
                yield from _walk(computations, callee, times, False)


def _shapes(text: str, kind: str, start: bool) -> tuple[tuple[str, tuple[int, ...]], ...]:
    if start and kind != "all-reduce":
        # The first half of an asynchronous pair returns its operands first, then the results.
        text = _elements(text)[1]
    return tuple(
        (dtype, tuple(int(n.removeprefix("<=")) for n in sizes.split(",") if n))
        for dtype, sizes in _SHAPE.findall(text)
    )


def _elements(text: str) -> list[str]:
    """Split a tuple's text at the commas that are not inside brackets."""
    elements, depth = [""], 0
    for character in text.strip()[1:-1]:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            elements.append("")
        else:
            elements[-1] += character
    return elements


def _groups(line: str) -> tuple[tuple[int, ...], ...]:
    if pairs := re.search(r"source_target_pairs=(\{\{.*?\}\})", line):
        return _listed(pairs[1])
    found = re.search(r"replica_groups=(.*?)(?:, [a-z_]+=(?!\(\[)|$)", line)
    if not found or found[1] == "{}":
        return ()
    written = found[1]
    if written.startswith("{{"):
        return _listed(written)
    if iota := re.fullmatch(r"\[([\d,]+)\]<=(\[[\d,]+\](?:T\([\d,]+\))?)", written):
        sizes = _numbers(iota[1])
        order = _range(iota[2])
        step = len(order) // sizes[0]
        return tuple(tuple(order[i : i + step]) for i in range(0, len(order), step))
    if mesh := re.fullmatch(r"mesh\[(.*?)\](?:, device_ids=\((.*?\)?)\))? \{(.*)\}", written):
        return _mesh_groups(*mesh.groups())
    raise ValueError(f"Groups of devices written in an unknown way: {written}")


def _listed(text: str) -> tuple[tuple[int, ...], ...]:
    return tuple(_numbers(group) for group in re.findall(r"\{([\d,]+)\}", text))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in text.split(","))


def _range(text: str) -> list[int]:
    """Read `[2,4]T(1,0)`: 0 to 7 in two rows, then the axes exchanged."""
    sizes = _numbers(re.findall(r"\[([\d,]+)\]", text)[0])
    turned = re.search(r"T\(([\d,]+)\)", text)
    order = _numbers(turned[1]) if turned else tuple(range(len(sizes)))
    steps = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
    places = product(*(range(sizes[axis]) for axis in order))
    return [sum(i * steps[axis] for i, axis in zip(place, order, strict=True)) for place in places]


def _mesh_groups(axes: str, ids: str | None, over: str) -> tuple[tuple[int, ...], ...]:
    """Read `mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'a'}`.

    A part of an axis is written `'b':(2)2`: of size 2, inside 2 larger parts.
    """
    sizes = {name: int(size) for name, size in re.findall(r"'([^']+)'=(\d+)", axes)}
    wanted: dict[str, list[tuple[int, int]]] = {}
    for name, before, size in re.findall(r"'([^']+)'(?::\((\d+)\)(\d+))?", over):
        wanted.setdefault(name, []).append((int(before or 1), int(size or sizes[name])))
    count = math.prod(sizes.values())
    if ids is None:
        devices = list(range(count))
    elif ids.startswith("["):
        devices = _range(ids)
    else:
        devices = list(_numbers(ids))
    groups: dict[tuple[int, ...], list[int]] = {}
    for device, place in zip(devices, product(*map(range, sizes.values())), strict=True):
        fixed = []
        for (name, size), index in zip(sizes.items(), place, strict=True):
            for before, part in wanted.get(name, []):
                after = size // before // part
                index -= index // after % part * after
            fixed.append(index)
        groups.setdefault(tuple(fixed), []).append(device)
    return tuple(tuple(group) for group in groups.values())
