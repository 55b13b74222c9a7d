"""What theory expects a step to communicate, beside what was counted."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from distlab.collectives.communication import Collective, Communication, over
from distlab.layouts.readers import layout_of
from distlab.layouts.rules import is_keras, named_variables
from distlab.layouts.tables import aligned, html_table
from distlab.public import public
from distlab.wording import of_type


@dataclass(frozen=True)
class Comparison:
    """What was predicted beside what was counted. A notebook shows it as a table.

    Attributes:
        predicted: What theory says.
        counted: What a framework does.
    """

    predicted: Communication
    counted: Communication

    _HEADS = ("collective", "over", "devices", "bytes predicted", "counted", "sent predicted",
              "counted")  # fmt: skip

    def _cells(self) -> list[tuple[str, ...]]:
        predicted, counted = self.predicted.groups(), self.counted.groups()
        nothing = Communication(())
        rows = []
        for key in sorted({*predicted, *counted}):
            kind, axes, devices = key
            mine, theirs = predicted.get(key, nothing), counted.get(key, nothing)
            sizes = (mine.payload, theirs.payload, mine.sent, theirs.sent)
            rows.append((kind, over(axes), str(devices), *(f"{size:,}" for size in sizes)))
        return rows

    def __repr__(self) -> str:
        return aligned([self._HEADS, *self._cells()], right=range(2, 7))

    def _repr_html_(self) -> str:
        return html_table(self._HEADS, self._cells(), right=range(2, 7))


@public
def compare(predicted: Communication | Iterable[Collective], counted: Communication) -> Comparison:
    """Put what was predicted beside what was counted.

    Args:
        predicted: What `gradients` returns, or collectives of your own, such as
            `Collective("all-reduce", ("model",), 4, (("float32", (64, 128)),), times=2)`.
        counted: What was counted.

    Returns:
        The comparison, by kind of collective and mesh axis.

    Raises:
        TypeError: If either is something else.
    """
    if not isinstance(counted, Communication):
        raise TypeError(f"counted must be what count() or watch() gives, not {of_type(counted)}.")
    if not isinstance(predicted, Communication):
        items = tuple(predicted) if isinstance(predicted, Iterable) else ()
        if not isinstance(predicted, Iterable) or not all(isinstance(x, Collective) for x in items):
            raise TypeError(
                "predicted must be what gradients() returns, or Collectives in a list, not "
                f"{of_type(predicted)}."
            )
        predicted = Communication(items, counted.mesh)
    return Comparison(predicted, counted)


@public
def gradients(model: Any, axis: str | None = None, devices: int | None = None) -> Communication:
    """Predict the communication of data parallelism: each gradient, all-reduced once.

    A device's gradient has the shape of its slice of the variable. Variables that are split over
    the batch axis themselves are left out: their gradients are scattered, not summed everywhere.

    Args:
        model: A Keras model, or a PyTorch module (parameters that are no DTensors count whole).
        axis: The mesh axis over which the batch is split. The default for Keras is that of the
            distribution that is set.
        devices: How many devices along it. The default is what the variables' mesh says.

    Returns:
        One all-reduce for each trainable variable. A compiler may send several together; the
        bytes are the same.

    Raises:
        TypeError: If `model` is neither.
        ValueError: If the axis is needed and not given, or not in the mesh, or the number of
            devices is needed and not given.
    """
    if not hasattr(model, "named_parameters") and not hasattr(model, "trainable_variables"):
        raise TypeError(f"Expected a Keras model or a PyTorch module, not {model!r}.")
    if hasattr(model, "named_parameters") and not is_keras(model):
        trainable = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    else:
        trainable = named_variables(model.trainable_variables)
        axis = axis or _batch_axis()
    if axis is None:
        raise ValueError("Over which mesh axis is the batch split? Give its name.")
    collectives = []
    mesh = None
    for _, variable in trainable:
        shape, dtype = tuple(variable.shape), str(variable.dtype).removeprefix("torch.")
        size = devices
        if hasattr(variable, "placements") or not hasattr(variable, "requires_grad"):
            layout = layout_of(variable)
            mesh = layout.mesh
            if any(axis in axes for axes in layout.spec):
                continue
            size = size or mesh.size(axis)
            shape = layout.shard_shape
        if size is None:
            raise ValueError("These are plain parameters: give the number of devices.")
        if size > 1:
            collectives.append(Collective("all-reduce", (axis,), size, ((dtype, shape),)))
    return Communication(tuple(collectives), mesh)


def _batch_axis() -> str | None:
    import keras

    distribution = keras.distribution.distribution()
    return None if distribution is None else distribution.batch_dim_name
