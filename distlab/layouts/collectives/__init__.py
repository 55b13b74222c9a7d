"""Count what a training step communicates: which collectives, over which axis, how many bytes.

XLA writes the collectives into the program that it compiles for each device, so for JAX and Keras
on JAX they are counted without running anything (`count`, `count_train_step`). PyTorch decides as
it goes, so there a step is watched while it runs (`watch`). What a device has to send follows from
the algorithm (`sent_bytes`).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from distlab.errors import check_fit, of_type
from distlab.layouts.collectives import hlo
from distlab.layouts.collectives.communication import (
    Collective,
    Communication,
    axes_of_groups,
    sent_bytes,
)
from distlab.layouts.collectives.watching import watch
from distlab.layouts.readers import mesh_of
from distlab.layouts.view import Mesh

__all__ = [
    "Collective",
    "Communication",
    "count",
    "count_train_step",
    "sent_bytes",
    "watch",
]


def __dir__() -> list[str]:
    return list(__all__)


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
        What one call communicates, per device. A collective in a loop of known length counts as
        often as the loop runs.

    Raises:
        TypeError: If the arguments do not fit the function, or there are some for what has been
            compiled already.

    Example:
        >>> import jax
        >>> count(jax.jit(lambda x: x + 1), 1.0)
        no communication
    """
    if not callable(function) and not hasattr(function, "as_text"):
        raise TypeError(
            f"Expected a function, or what was lowered or compiled, not {of_type(function)}: "
            "write count(step, x, y), not count(step(x, y))."
        )
    if not hasattr(function, "as_text"):
        check_fit(function, args, kwargs)
    elif args or kwargs:
        raise TypeError(
            "What is compiled or lowered already takes no arguments here: its shapes are fixed. "
            "Write count(compiled), or give the function itself and its arguments."
        )
    import jax

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

    `fit` draws one random order of the examples more if it has something to build. So after this
    call a shuffling `fit` meets the examples in a different order than it would have without.

    Args:
        model: A compiled Keras model (`model.compile(...)` has been called).
        x: One global batch, as `fit` would cut it.
        y: Its targets.
        sample_weight: Its weights.

    Returns:
        What one step communicates, per device.

    Raises:
        TypeError: If `model` is not one of Keras.
        RuntimeError: If Keras runs on another backend, or the model has not been compiled or
            runs eagerly.
    """
    if type(model).__module__ == "builtins":  # before frameworks are imported for it
        raise TypeError(f"Expected a Keras model, not {of_type(model)}.")
    import jax
    import keras

    if keras.backend.backend() != "jax":
        raise RuntimeError(
            f"Keras runs on {keras.backend.backend()}; its training step can be counted on JAX "
            'only. Set os.environ["KERAS_BACKEND"] = "jax" before Keras is imported.'
        )
    if not hasattr(model, "compiled"):
        raise TypeError(f"Expected a Keras model, not {type(model).__name__}.")
    if not model.compiled:
        raise RuntimeError("Call model.compile(...) first: a training step needs an optimizer.")
    if model.run_eagerly or not model.jit_compile:
        raise RuntimeError(
            "This model runs without XLA (run_eagerly or jit_compile=False in model.compile), so "
            "there is no compiled step to look at."
        )
    data = (x, y) if sample_weight is None else (x, y, sample_weight)
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
    shardings = mesh = None
    if distribution is not None:
        mesh = distribution.device_mesh
        shardings = (None, jax.tree.map(lambda value: value.sharding, state))

    def batch(value: Any) -> Any:
        sharding = None
        if distribution is not None:
            sharding = distribution.get_data_layout(value.shape).backend_layout
        dtype = jax.dtypes.canonicalize_dtype(value.dtype)
        return jax.ShapeDtypeStruct(value.shape, dtype, sharding=sharding)

    step = jax.jit(model.train_step, donate_argnums=0, out_shardings=shardings)
    return count(step.lower(state, jax.tree.map(batch, data)), mesh=mesh)


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
    if found.kind == "collective-permute":
        axes = _axes_between(found.groups, mesh)
        devices = math.prod(mesh.size(axis) for axis in axes) if mesh and axes else 2
    elif found.groups:
        axes = axes_of_groups(found.groups, mesh)
        devices = len(found.groups[0])
    else:
        axes = tuple(name for name, size in mesh.axes if size > 1) if mesh else ()
        devices = len(mesh.devices) if mesh else 1
    return Collective(found.kind, axes, devices, found.shapes, found.times, found.known)


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
