"""What has no layout, and what to do about it: the errors that all readers raise."""

from collections.abc import Sequence
from typing import Any


class PlainTensorError(TypeError):
    """A tensor on one device, which no distribution has touched, was given for a layout."""


class LostValueError(ValueError):
    """The value of a Keras variable is gone: a training step took it and failed."""

    def __init__(self, paths: Sequence[str]) -> None:
        names = ", ".join(map(repr, paths[:12]))
        names += f" and {len(paths) - 12} more" * (len(paths) > 12)
        super().__init__(
            "The model has lost values: build it anew, and load its weights. Keras took them for a "
            "step of fit, evaluate or predict, and the step failed. (Where evaluate or predict had "
            "finished a batch before, model.jax_state_sync() brings the weights back: Keras "
            f"3.15.1.) Without a value: {names}."
        )


_WITH_LAYOUT = """These have one:
  JAX: an array or a sharding: jax.device_put(x, NamedSharding(mesh, PartitionSpec("data")))
  Keras: a variable or a TensorLayout
  TensorFlow: a DTensor or its Layout: dtensor.call_with_layout(tf.zeros, layout, shape=(8, 4))
  PyTorch: a DTensor: distribute_tensor(x, mesh, [Shard(0)]); or (mesh, [Shard(0)]) and a shape
Meshes can be drawn, too."""


def no_layout(obj: Any, why: str = "", *, plain: bool = False) -> TypeError:
    """Something that no reader can read; `why` goes on from "has no layout"."""
    kind = PlainTensorError if plain else TypeError
    return kind(f"{_a(obj)} has no layout{why}. {_WITH_LAYOUT}")


def needs_shape(obj: Any) -> TypeError:
    """A layout of no tensor in particular, given without a shape."""
    return TypeError(
        f"{_a(obj)} says how to split a tensor but not which: "
        "give its shape, as in layout_of(layout, shape=(784, 512))."
    )


def abstract(obj: Any, instead: str) -> TypeError:
    """A value of a function that is being traced; `instead` says what to look at."""
    return TypeError(f"{_a(obj)} is an abstract value, which is on no device: {instead}.")


def _a(obj: Any) -> str:
    noun = type(obj).__name__
    return f"{'An' if noun[:1].lower() in 'aeiou' or noun == 'ndarray' else 'A'} {noun}"
