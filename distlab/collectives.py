"""Count what a training step communicates: which collectives, over which axis, how many bytes.

XLA writes the collectives into the program it compiles for each device, so for JAX and Keras on
JAX they are counted without running anything. What a device has to send is then known from the
algorithm: see `sent_bytes`.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import combinations
from typing import Any

from distlab import hlo
from distlab.layout_readers import mesh_of
from distlab.layout_view import Mesh


@dataclass(frozen=True)
class Collective:
    """One collective operation, as each device of its group sees it.

    Attributes:
        kind: `"all-reduce"`, `"all-gather"`, `"reduce-scatter"`, `"all-to-all"`,
            `"collective-permute"` or another of XLA's names.
        axes: The mesh axes along which devices exchange data; empty if they are no whole axes.
        devices: How many devices take part together.
        tensors: Type and shape of each tensor that a device ends up with.
        times: How often it runs in one call of the function.
        exact: Whether `times` is known (in a loop without a fixed length it is a lower bound).
    """

    kind: str
    axes: tuple[str, ...]
    devices: int
    tensors: tuple[tuple[str, tuple[int, ...]], ...]
    times: int = 1
    exact: bool = True

    @property
    def payload(self) -> int:
        """Bytes of the whole tensors, per device: of the longer of what goes in and comes out."""
        size = sum(_bytes(dtype) * math.prod(shape) for dtype, shape in self.tensors)
        return size * self.times * (self.devices if self.kind == "reduce-scatter" else 1)

    @property
    def sent(self) -> int:
        """Bytes each device sends, at least: see `sent_bytes`."""
        return sent_bytes(self.kind, self.payload, self.devices)


def sent_bytes(kind: str, payload: int, devices: int) -> int:
    """Return how many bytes each device must send, by theory, for one collective.

    These are lower bounds that ring algorithms reach. A ring all-reduce is a reduce-scatter and
    then an all-gather; in each, a device passes on (n-1)/n of the data.

    Args:
        kind: The collective's name.
        payload: Bytes of the whole tensor: what is reduced, gathered or scattered.
        devices: How many take part.

    Returns:
        Bytes, rounded to the nearest.

    Raises:
        ValueError: If the collective is not known.

    Example:
        >>> sent_bytes("all-reduce", 1000, 4)
        1500

    Sources:
        Patarasu and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
        workstations", J. Parallel Distrib. Comput. 69 (2009), doi:10.1016/j.jpdc.2008.09.002;
        the same factors in https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
    """
    if devices < 2:
        return 0
    if kind == "all-reduce":
        return round(2 * (devices - 1) * payload / devices)
    if kind in ("all-gather", "reduce-scatter", "all-to-all", "ragged-all-to-all"):
        return round((devices - 1) * payload / devices)
    if kind in ("collective-permute", "collective-broadcast"):
        return payload
    raise ValueError(f"Unknown collective {kind!r}: expected one of {', '.join(hlo.KINDS)}.")


@dataclass(frozen=True)
class Communication:
    """The collectives of one call of a function. A notebook shows it as a table.

    Attributes:
        collectives: Each of them, in program order.
        mesh: The devices, or None when no mesh is known.
    """

    collectives: tuple[Collective, ...]
    mesh: Mesh | None = None

    def select(
        self, kind: str | None = None, axes: str | Sequence[str] | None = None
    ) -> "Communication":
        """Return only the collectives of one kind, or over exactly these axes, or both."""
        wanted = (axes,) if isinstance(axes, str) else axes
        chosen = (
            c
            for c in self.collectives
            if kind in (None, c.kind) and (wanted is None or set(wanted) == set(c.axes))
        )
        return Communication(tuple(chosen), self.mesh)

    @property
    def calls(self) -> int:
        """How many collectives run; one may carry many tensors."""
        return sum(c.times for c in self.collectives)

    @property
    def payload(self) -> int:
        """Bytes of the tensors that are reduced, gathered, scattered or passed on, per device."""
        return sum(c.payload for c in self.collectives)

    @property
    def sent(self) -> int:
        """Bytes each device sends, at least: see `sent_bytes`."""
        return sum(c.sent for c in self.collectives)

    def rows(self) -> list[tuple[str, ...]]:
        """Return the table's cells, one row for each kind and axis, as text."""
        together: dict[tuple[str, tuple[str, ...], int], list[Collective]] = {}
        for c in self.collectives:
            together.setdefault((c.kind, c.axes, c.devices), []).append(c)
        return [
            (
                kind,
                " and ".join(axes) or "-",
                str(devices),
                f"{sum(c.times for c in group)}{'' if all(c.exact for c in group) else ' or more'}",
                str(sum(len(c.tensors) * c.times for c in group)),
                f"{sum(c.payload for c in group):,}",
                f"{sum(c.sent for c in group):,}",
            )
            for (kind, axes, devices), group in sorted(together.items())
        ]

    _HEADS = ("collective", "over", "devices", "calls", "tensors", "bytes", "bytes sent")

    def __repr__(self) -> str:
        if not self.collectives:
            return "no communication"
        table = [self._HEADS, *self.rows()]
        widths = [max(len(row[i]) for row in table) for i in range(len(self._HEADS))]
        lines = []
        for row in table:
            cells = [
                cell.ljust(width) if i < 2 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            lines.append("  ".join(cells).rstrip())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        if not self.collectives:
            return "<p>No communication.</p>"
        head = "".join(f"<th>{head}</th>" for head in self._HEADS)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
            for row in self.rows()
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def count(
    function: Callable[..., Any] | Any, *args: Any, mesh: Any = None, **kwargs: Any
) -> Communication:
    """Count the collectives in one call of a JAX function. Nothing is run.

    Args:
        function: A function, jitted or not; or what `.lower(...)` or `.compile()` returned, and
            then there are no further arguments.
        *args: What to call it with: arrays, or `jax.ShapeDtypeStruct` with a sharding.
        mesh: The mesh whose axes to name. The default is the mesh of the arguments.
        **kwargs: Further arguments of the function.

    Returns:
        What one call communicates, per device.

    Example:
        >>> import jax
        >>> count(jax.jit(lambda x: x + 1), 1.0)
        no communication
    """
    import jax

    if hasattr(function, "as_text") and (args or kwargs):
        raise TypeError("What is compiled or lowered already takes no arguments here.")
    if not hasattr(function, "as_text"):
        jitted = function if hasattr(function, "lower") else jax.jit(function)
        function = jitted.lower(*args, **kwargs)
    compiled = function.compile() if hasattr(function, "compile") else function
    view = mesh_of(mesh) if mesh is not None else _mesh_of_arguments(compiled)
    return Communication(
        tuple(_collective(found, view) for found in hlo.instructions(compiled.as_text())), view
    )


def count_train_step(model: Any, x: Any, y: Any = None, sample_weight: Any = None) -> Communication:
    """Count the collectives in one training step of a Keras model on JAX. Nothing is trained.

    The step is the one that `fit` compiles, under the distribution that is set now. A model that
    has not been built is built, as `fit` would.

    Args:
        model: A compiled Keras model (`model.compile(...)` has been called).
        x: One global batch, as `fit` would cut it.
        y: Its targets.
        sample_weight: Its weights.

    Returns:
        What one step communicates, per device.

    Raises:
        RuntimeError: If Keras runs on another backend, or the model has not been compiled or
            runs eagerly.
    """
    import jax
    import keras

    if keras.backend.backend() != "jax":
        raise RuntimeError(
            f"Keras runs on {keras.backend.backend()}; its training step can be counted on JAX "
            'only. Set os.environ["KERAS_BACKEND"] = "jax" before Keras is imported.'
        )
    if not model.compiled:
        raise RuntimeError("Call model.compile(...) first: a training step needs an optimizer.")
    if model.run_eagerly or not model.jit_compile:
        raise RuntimeError(
            "This model runs without XLA (run_eagerly or jit_compile=False in model.compile), so "
            "there is no compiled step to look at."
        )
    data = tuple(part for part in (x, y, sample_weight) if part is not None)
    # What fit does before its first step: variables, optimizer and metrics come to be.
    model._symbolic_build(data_batch=data)
    groups = (
        model.trainable_variables,
        model.non_trainable_variables,
        model.optimizer.variables,
        model.metrics_variables,
    )
    state = tuple([_abstract(variable.value) for variable in group] for group in groups)
    distribution = keras.distribution.distribution()
    shardings = None
    if distribution is not None:
        shardings = (None, jax.tree.map(lambda value: value.sharding, state))
        data = jax.tree.map(
            lambda value: jax.ShapeDtypeStruct(
                value.shape,
                jax.dtypes.canonicalize_dtype(value.dtype),
                sharding=distribution.get_data_layout(value.shape).backend_layout,
            ),
            data,
        )
    step = jax.jit(model.train_step, donate_argnums=0, out_shardings=shardings)
    mesh = None if distribution is None else distribution.device_mesh
    return count(step.lower(state, data), mesh=mesh)


def _abstract(value: Any) -> Any:
    import jax

    return jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=value.sharding)


def _mesh_of_arguments(compiled: Any) -> Mesh | None:
    import jax

    for sharding in jax.tree.leaves((compiled.input_shardings, compiled.output_shardings)):
        if isinstance(sharding, jax.sharding.NamedSharding):
            return mesh_of(sharding.mesh)
    return None


def _collective(found: hlo.Instruction, mesh: Mesh | None) -> Collective:
    if not found.groups:
        devices = len(mesh.devices) if mesh else 1
        axes = _trim(mesh.names, mesh) if mesh else ()
    elif found.kind == "collective-permute":
        axes = _axes_between(found.groups, mesh)
        devices = math.prod(mesh.size(axis) for axis in axes) if mesh and axes else 2
    else:
        devices = len(found.groups[0])
        axes = _axes_of_groups(found.groups, mesh)
    return Collective(found.kind, axes, devices, found.shapes, found.times, found.known)


def _trim(names: Sequence[str], mesh: Mesh) -> tuple[str, ...]:
    return tuple(name for name in names if mesh.size(name) > 1)


def _axes_of_groups(groups: Sequence[Sequence[int]], mesh: Mesh | None) -> tuple[str, ...]:
    """The axes along which the groups extend, or none if they are not whole axes."""
    if mesh is None:
        return ()
    places = mesh.coordinates()
    wanted = {frozenset(group) for group in groups}
    names = _trim(mesh.names, mesh)
    for number in range(1, len(names) + 1):
        for axes in combinations(names, number):
            lines: dict[tuple[int, ...], set[int]] = {}
            for position, place in enumerate(places):
                fixed = tuple(place[name] for name in names if name not in axes)
                lines.setdefault(fixed, set()).add(position)
            if {frozenset(line) for line in lines.values()} == wanted:
                return axes
    return ()


def _axes_between(pairs: Sequence[Sequence[int]], mesh: Mesh | None) -> tuple[str, ...]:
    """The axes along which senders and receivers differ."""
    if mesh is None:
        return ()
    places = mesh.coordinates()
    return tuple(
        name
        for name in mesh.names
        if any(places[source][name] != places[target][name] for source, target in pairs)
    )


def _bytes(dtype: str) -> int:
    """Bytes per element of one of XLA's types: `f32`, `bf16`, `s8`, `pred`, `f8e4m3fn`, `c64`."""
    bits = re.match(r"[a-z]+(\d+)", dtype)
    return max(1, int(bits[1]) // 8) if bits else int(dtype == "pred")
