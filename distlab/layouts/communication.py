"""What a step communicates, whatever framework it was counted in, and what each device sends."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from distlab.errors import did_you_mean, shown
from distlab.layouts.view import Mesh, bits
from distlab.tables import aligned, html_table

Tensors = tuple[tuple[str, tuple[int, ...]], ...]
_HEADS = ("collective", "over", "devices", "calls", "tensors", "bytes", "bytes sent")


@dataclass(frozen=True)
class Collective:
    """One collective operation, as each device of its group sees it.

    Attributes:
        kind: `"all-reduce"`, `"all-gather"`, `"reduce-scatter"`, `"all-to-all"`,
            `"collective-permute"`, `"broadcast"` or another name that `sent_bytes` knows.
        axes: The mesh axes along which devices exchange data; empty if they are no whole axes.
        devices: How many devices take part together.
        tensors: Type and shape of each tensor that a device ends up with, as was asked for.
        times: How often it runs.
        exact: Whether `times` is known. In a loop without a fixed length it is a lower bound,
            in a branch that may not be taken an upper one.
        moved: The tensors as this machine moves them, where that is in wider types.
    """

    kind: str
    axes: tuple[str, ...]
    devices: int
    tensors: Tensors
    times: int = 1
    exact: bool = True
    moved: Tensors = ()

    @property
    def payload(self) -> int:
        """Bytes of the whole tensors, per device: of the larger of what goes in and comes out."""
        return self._bytes(self.tensors)

    @property
    def payload_moved(self) -> int:
        """The same for what this machine moves: more where it has to widen types."""
        return self._bytes(self.moved or self.tensors)

    def _bytes(self, tensors: Tensors) -> int:
        size = sum(-(-(bits(dtype) or 0) * math.prod(shape) // 8) for dtype, shape in tensors)
        return size * self.times * (self.devices if self.kind.endswith("scatter") else 1)

    @property
    def sent(self) -> int:
        """Bytes each device sends, at least: see `sent_bytes`."""
        return sent_bytes(self.kind, self.payload, self.devices)


def sent_bytes(kind: str, payload: int, devices: int) -> int:
    """Return how many bytes each device must send, by theory, for one collective.

    These are lower bounds that ring algorithms reach. A ring all-reduce is a reduce-scatter and
    then an all-gather; in each of the two, a device passes on (n-1)/n of the data. What a library
    does may be more: for little data other algorithms take fewer steps.

    Args:
        kind: The collective's name.
        payload: Bytes of the whole tensor: what is reduced, gathered, scattered or passed on.
        devices: How many take part.

    Returns:
        Bytes, rounded to the nearest. For a broadcast, a reduce, a gather or a scatter, the bytes
        that the device that sends most must send.

    Raises:
        ValueError: If the collective is not known, or a number is below what there can be.

    Example:
        >>> sent_bytes("all-reduce", 1000, 4)
        1500

    Sources:
        Patarasu and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
        workstations", J. Parallel Distrib. Comput. 69 (2009), doi:10.1016/j.jpdc.2008.09.002;
        the same factors in https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
    """
    _check_kind(kind)
    if not payload >= 0 or devices < 1:
        raise ValueError(f"There are no {payload} bytes on {devices} devices.")
    if devices == 1:
        return 0
    passes, all_but_own = SHARES[kind]
    return round(passes * payload * ((devices - 1) / devices if all_but_own else 1))


def _check_kind(kind: object) -> None:
    if not isinstance(kind, str) or kind not in SHARES:
        raise ValueError(
            f"Unknown collective {shown(kind)}: expected one of {', '.join(SHARES)}."
            + did_you_mean(kind, SHARES)
        )


# How many times the data is passed on, and whether a device keeps its own share of it. A name that
# begins with another one comes before it.
SHARES = {
    "all-reduce": (2, True),
    "all-gather": (1, True),
    "reduce-scatter": (1, True),
    "all-to-all": (1, True),
    "ragged-all-to-all": (1, True),
    "collective-permute": (1, False),
    "collective-broadcast": (1, False),
    "broadcast": (1, False),
    "reduce": (1, False),
    "gather": (1, True),
    "scatter": (1, True),
}


@dataclass(frozen=True)
class Communication:
    """The collectives of one step. A notebook shows it as a table.

    Attributes:
        collectives: Each of them, in the order in which they are written or run.
        mesh: The devices, or None when no mesh is known.
        note: What to know about the types of the tensors, or an empty string.
    """

    collectives: tuple[Collective, ...]
    mesh: Mesh | None = None
    note: str = ""

    def select(
        self, kind: str | None = None, axes: str | Sequence[str] | None = None
    ) -> "Communication":
        """Return only the collectives of one kind, or over exactly these axes, or both.

        Raises:
            ValueError: If the collective is not known, or an axis is not in the mesh.
        """
        if kind is not None:
            _check_kind(kind)
        wanted = (axes,) if isinstance(axes, str) else axes
        names = None if wanted is None else set(wanted)
        if self.mesh is not None:
            self.mesh.size(*(wanted or ()))
        chosen = (
            c
            for c in self.collectives
            if kind in (None, c.kind) and (names is None or names == set(c.axes))
        )
        return Communication(tuple(chosen), self.mesh, self.note)

    @property
    def calls(self) -> int:
        """How many collectives run; one may carry many tensors."""
        return sum(c.times for c in self.collectives)

    @property
    def tensors(self) -> int:
        """How many tensors they carry."""
        return sum(c.times * len(c.tensors) for c in self.collectives)

    @property
    def payload(self) -> int:
        """Bytes of the tensors that are reduced, gathered, scattered or passed on, per device."""
        return sum(c.payload for c in self.collectives)

    @property
    def payload_moved(self) -> int:
        """The same in the types that this machine moves, which may be wider than was asked."""
        return sum(c.payload_moved for c in self.collectives)

    @property
    def sent(self) -> int:
        """Bytes each device sends, at least: see `sent_bytes`."""
        return sum(c.sent for c in self.collectives)

    def _cells(self) -> list[tuple[str, ...]]:
        """A row for each kind, over the same axes, among as many devices."""
        together: dict[tuple[str, tuple[str, ...], int], list[Collective]] = {}
        for c in self.collectives:
            together.setdefault((c.kind, c.axes, c.devices), []).append(c)
        rows: list[tuple[str, ...]] = []
        for (kind, axes, devices), alike in sorted(together.items()):
            part = Communication(tuple(alike), self.mesh)
            calls = f"{part.calls}" if all(c.exact for c in alike) else f"about {part.calls}"
            sizes = f"{part.payload:,}", f"{part.sent:,}"
            over = " and ".join(axes) or "-"
            rows.append((kind, over, str(devices), calls, str(part.tensors), *sizes))
        return rows

    def __repr__(self) -> str:
        if not self.collectives:
            return "no communication"
        return aligned([_HEADS, *self._cells()], right=range(2, 7)) + self._note("\n")

    def _repr_html_(self) -> str:
        if not self.collectives:
            return "<p>no communication</p>"
        table = html_table(_HEADS, self._cells(), right=range(2, 7))
        return table + (f"<p>{escape(note)}</p>" if (note := self._note()) else "")

    def _note(self, before: str = "") -> str:
        """Where this machine moves more bytes than were asked for."""
        pairs = {
            (asked, moved)
            for c in self.collectives
            for (asked, _), (moved, _) in zip(c.tensors, c.moved or c.tensors, strict=True)
            if asked != moved
        }
        if not pairs:
            return f"{before}{self.note}" if self.note else ""
        widened = ", ".join(f"{asked} as {moved}" for asked, moved in sorted(pairs))
        return (
            f"{before}The bytes are those of the types asked for. The CPU moves {widened}: "
            f"{self.payload_moved:,} bytes instead of {self.payload:,}."
        )


def axes_along(groups: Sequence[Sequence[int]], mesh: Mesh) -> tuple[str, ...]:
    """Return the mesh axes along which the members of a group differ, by their positions."""
    places = mesh.coordinates()
    return tuple(
        name
        for name in mesh.names
        if any(len({places[member][name] for member in group}) > 1 for group in groups)
    )


def axes_of_groups(groups: Sequence[Sequence[int]], mesh: Mesh | None) -> tuple[str, ...]:
    """Return the mesh axes along which groups of positions extend; none if no whole axes do."""
    if mesh is None:
        return ()
    axes = axes_along(groups, mesh)
    return axes if all(len(group) == mesh.size(*axes) for group in groups) else ()
