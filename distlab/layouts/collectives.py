"""Count what a training step communicates: which collectives, over which axis, how many bytes.

XLA writes the collectives into the program that it compiles for each device, so for JAX and Keras
on JAX they are counted without running anything (`count`, `count_train_step`). PyTorch decides as
it goes, so there a step is watched while it runs (`watch`). What a device has to send follows from
the algorithm (`sent_bytes`).
"""

from collections.abc import Callable
from typing import Any

from distlab.errors import brief, check_fit, of_type
from distlab.layouts.communication import Collective, Communication, sent_bytes
from distlab.layouts.readers import mesh_of
from distlab.layouts.variables import variables_of
from distlab.layouts.view import Mesh
from distlab.layouts.watching import watch

__all__ = ["Collective", "Communication", "count", "count_train_step", "sent_bytes", "watch"]


def __dir__() -> list[str]:
    return list(__all__)


def count(function: Callable[..., Any] | Any, *args: Any, **kwargs: Any) -> Communication:
    """Count the collectives in one call of a JAX function. Nothing is run.

    Args:
        function: A function, jitted or not; or what `.lower(...)` or `.compile()` returned, and
            then there are no further arguments.
        *args: What to call it with: arrays, or `jax.ShapeDtypeStruct` with a sharding.
        **kwargs: Further arguments of the function.

    Returns:
        What one call communicates, per device, over the axes of the arguments' mesh. A collective
        in a loop of known length counts as often as the loop runs. Bytes are those of the types
        that the function asks for; the table says where the CPU moves wider ones. What is compiled
        already no longer has the types asked for; the table says so where there may be others.

    Raises:
        TypeError: If the arguments do not fit the function, or there are some for what has been
            compiled already.

    Example:
        >>> import jax
        >>> count(jax.jit(lambda x: x + 1), 1.0)
        no communication
    """
    is_lowered = hasattr(function, "as_text")
    if not is_lowered and not callable(function):
        raise TypeError(
            f"Expected a function, or what was lowered or compiled, not {of_type(function)}: "
            "write count(step, x, y), not count(step(x, y))."
        )
    if is_lowered and (args or kwargs):
        raise TypeError(
            "What is compiled or lowered already takes no arguments here: its shapes are fixed. "
            "Write count(compiled), or give the function itself and its arguments."
        )
    if not is_lowered:
        check_fit(function, args, kwargs)
    import jax

    from distlab.layouts.hlo import collectives_of
    from distlab.layouts.widening import as_asked, compiled_and_before, if_widened

    program: Any = function
    if not is_lowered:
        jitted = function if hasattr(function, "lower") else jax.jit(function)
        program = jitted.lower(*args, **kwargs)
    compiled, before = program, None
    if hasattr(program, "compile"):
        compiled, before = compiled_and_before(program)
    view = _mesh_of_arguments(compiled)
    found, note = collectives_of(compiled.as_text(), view), ""
    if before is not None:
        found = as_asked(found, collectives_of(before, view))
    elif compiled is program:
        note = if_widened(compiled.as_text())
    return Communication(found, view, note)


@brief
def count_train_step(model: Any, x: Any, y: Any = None) -> Communication:
    """Count the collectives in one training step of a Keras model on JAX. Nothing is trained.

    The step is the one that `fit` compiles, under the distribution that is set now. A model that
    has not been built is built, as `fit` would.

    `fit` draws one random order of the examples more if it has something to build. So after this
    call a shuffling `fit` meets the examples in a different order than it would have without.

    Args:
        model: A compiled Keras model (`model.compile(...)` has been called).
        x: One global batch, as `fit` would cut it.
        y: Its targets.

    Returns:
        What one step communicates, per device.

    Raises:
        TypeError: If `model` is not one of Keras.
        RuntimeError: If Keras runs on another backend, or the model has not been compiled or
            runs eagerly.
        ValueError: If the batch does not divide among the devices, or a failed training step has
            lost the model's variables.
    """
    if not hasattr(model, "train_step"):  # before frameworks are imported for it
        raise TypeError(f"Expected a Keras model, not {of_type(model)}.")
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
    if present := [*model.variables, *model.optimizer.variables]:
        variables_of(present)  # which says so if a failed step has lost their values
    distribution = keras.distribution.distribution()
    axis = getattr(distribution, "batch_dim_name", None)
    if axis and jax.process_count() == 1:
        mesh, examples = distribution.device_mesh, jax.tree.leaves(x)[0].shape[0]
        size = mesh.shape[mesh.axis_names.index(axis)]
        if examples % size:
            raise ValueError(
                f"A batch of {examples} is not divisible by {size}, the size of the mesh axis "
                f"{axis!r}: give x and y a multiple of {size}."
            )
    # What fit does before its first step: variables, optimizer and metrics come to be.
    model._symbolic_build(data_batch=(x, y))
    groups = (
        model.trainable_variables,
        model.non_trainable_variables,
        model.optimizer.variables,
        model.metrics_variables,
    )

    def abstract(value: Any, sharding: Any) -> Any:
        dtype = jax.dtypes.canonicalize_dtype(value.dtype)
        return jax.ShapeDtypeStruct(value.shape, dtype, sharding=sharding)

    def batch(value: Any) -> Any:
        layout = distribution and distribution.get_data_layout(value.shape)
        return abstract(value, layout and layout.backend_layout)

    state = tuple([abstract(v.value, v.value.sharding) for v in group] for group in groups)
    shardings = None
    if distribution is not None:
        shardings = (None, jax.tree.map(lambda value: value.sharding, state))
    step = jax.jit(model.train_step, donate_argnums=0, out_shardings=shardings)
    return count(step.lower(state, jax.tree.map(batch, (x, y))))


def _mesh_of_arguments(compiled: Any) -> Mesh | None:
    import jax

    shardings = jax.tree.leaves((compiled.input_shardings, compiled.output_shardings))
    named = (each for each in shardings if isinstance(each, jax.sharding.NamedSharding))
    return next((mesh_of(sharding.mesh) for sharding in named), None)
