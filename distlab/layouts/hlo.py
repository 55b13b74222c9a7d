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
from itertools import chain, pairwise

import numpy as np
from numpy.typing import NDArray

from distlab.layouts.communication import Collective, Tensors, axes_along, axes_of_groups
from distlab.layouts.view import Mesh

_Groups = tuple[tuple[int, ...], ...]

_KINDS = r"all-reduce|all-gather|reduce-scatter|(?:ragged-)?all-to-all|collective-[a-z]+"
_COMPUTATION = re.compile(r"^(?P<entry>ENTRY )?%?(?P<name>[\w.\-]+) \(.*\) -> .* \{$")
_INSTRUCTION = re.compile(
    rf"^(?:ROOT )?%?[\w.\-]+ = (?P<shape>.+?) (?P<kind>{_KINDS})(?P<start>-start)?\("
)
_SHAPE = re.compile(r"([a-z]\w*)\[([\d,<=]*)\]")
_CALLED = re.compile(
    r"\b(body|condition|calls|to_apply|(?:true|false|branch)_computations?)=(\{[^}]*\}|[^,\s]+)"
)
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_COMMENT = re.compile(r"/\*.*?\*/")


def collectives_of(program: str, mesh: Mesh | None = None) -> tuple[Collective, ...]:
    """Return the collectives of a program, in the order in which it is written.

    Args:
        program: HLO text, as `jax.jit(f).lower(...).compile().as_text()` returns it.
        mesh: The devices whose axes to name, in the program's order.

    Returns:
        One for each instruction and each place it is called from. In a loop that runs until a
        condition holds it is counted as if the loop ran once; in a branch, as if taken.

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

    def walk(name: str, times: int, exact: bool) -> Iterator[Collective]:
        for line in computations[name]:
            if found := _INSTRUCTION.match(line):
                tensors = _tensors(**found.groupdict())
                taking_part = _taking_part(found["kind"], groups_of(line), mesh)
                yield Collective(found["kind"], *taking_part, tensors, times, exact)
            if "-done(" in line or "-update(" in line:
                continue  # the other half of what has been counted at its start
            for role, callees in _CALLED.findall(line):
                loop = role in ("body", "condition")
                trips = _TRIPS.search(line) if loop else None
                often = times * int(trips[1]) if trips else times
                sure = exact and (trips is not None if loop else role in ("calls", "to_apply"))
                for callee in re.findall(r"[\w.\-]+", callees):
                    if callee in computations:
                        yield from walk(callee, often, sure)

    return tuple(walk(entry, 1, True))


def _taking_part(kind: str, groups: _Groups, mesh: Mesh | None) -> tuple[tuple[str, ...], int]:
    """The axes that a collective goes over, and how many devices take part together."""
    if kind == "collective-permute":
        axes = axes_along(groups, mesh) if mesh else ()
        return axes, mesh.size(*axes) if mesh and axes else 2
    groups = groups or (tuple(range(len(mesh.devices) if mesh else 1)),)
    return axes_of_groups(groups, mesh), len(groups[0])


def _tensors(shape: str, kind: str, start: str | None) -> Tensors:
    shape = re.sub(r"\{[^{}]*\}", "", shape)  # how the tensors lie in memory
    if start and kind != "all-reduce":
        # The first half of an asynchronous pair returns its operands first, then the results.
        shape = re.findall(r"\([^()]*\)|\w+\[[^]]*\]", shape.strip()[1:-1])[1]
    return tuple(
        (dtype, tuple(int(n.removeprefix("<=")) for n in sizes.split(",") if n))
        for dtype, sizes in _SHAPE.findall(shape)
    )


def groups_of(line: str) -> _Groups:
    """Return the positions of the devices that take part together in an instruction.

    For a permutation these are the pairs of sender and receiver; all devices at once are none.
    """
    if pairs := re.search(r"source_target_pairs=(\{\{.*?\}\})", line):
        return _listed(pairs[1])
    found = re.search(r"replica_groups=(.*?)(?:, [a-z_]+=(?!\(\[)|$)", line)
    if not found or found[1] == "{}":
        return ()
    written = found[1]
    if written.startswith("{{"):
        return _listed(written)
    if iota := re.fullmatch(r"\[([\d,]+)\]<=(\[[\d,]+\](?:T\([\d,]+\))?)", written):
        return _rows(_iota(iota[2]).reshape(_numbers(iota[1])[0], -1))
    if mesh := re.fullmatch(r"mesh\[(.*?)\](?:, device_ids=\((.*?\)?)\))? \{(.*)\}", written):
        return _mesh_groups(*mesh.groups())
    raise ValueError(f"Groups of devices written in an unknown way: {written}")


def _listed(text: str) -> _Groups:
    return tuple(_numbers(group) for group in re.findall(r"\{([\d,]+)\}", text))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in text.split(","))


def _rows(array: NDArray[np.int_]) -> _Groups:
    return tuple(map(tuple, array.tolist()))


def _iota(text: str) -> NDArray[np.int_]:
    """Read `[2,4]T(1,0)`: 0 to 7 in two rows, then the axes exchanged."""
    sizes, *turned = map(_numbers, re.findall(r"[\d,]+", text))
    order = turned[0] if turned else range(len(sizes))
    return np.arange(math.prod(sizes)).reshape(sizes).transpose(order)


def _mesh_groups(axes: str, ids: str | None, over: str) -> _Groups:
    """Read `mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'a'}`.

    A part of an axis is written `'b':(2)2`: of size 2, inside 2 larger parts.
    """
    sizes = {name: int(size) for name, size in re.findall(r"'([^']+)'=(\d+)", axes)}
    wanted = [
        (name, int(before or 1), int(size or sizes[name]))
        for name, before, size in re.findall(r"'([^']+)'(?::\((\d+)\)(\d+))?", over)
    ]
    # Each axis is cut where a wanted part begins or ends: the pieces inside such parts vary
    # within a group, and come last.
    shape: list[int] = []
    varying = []
    for name, size in sizes.items():
        parts = [(before, before * part) for axis, before, part in wanted if axis == name]
        for low, high in pairwise(sorted({1, size, *chain(*parts)})):
            if any(start <= low and high <= stop for start, stop in parts):
                varying.append(len(shape))
            shape.append(high // low)
    if ids is None:
        devices = np.arange(math.prod(shape))
    else:
        devices = _iota(ids) if ids.startswith("[") else np.array(_numbers(ids))
    last = range(-len(varying), 0)
    together = math.prod(shape[i] for i in varying)
    return _rows(np.moveaxis(devices.reshape(shape), varying, last).reshape(-1, together))
