"""Silent errors of Keras 3, on JAX but for the last."""

import contextlib
import functools

from silent.row import row

JAX = (("KERAS_BACKEND", "jax"),)
on_devices = functools.partial(row, framework="jax", devices=(1, 4), env=JAX)
on_processes = functools.partial(row, framework="jax", env=JAX)


def one_weight(rate=0.01):
    """A model that multiplies by one weight, which is 1."""
    import keras

    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
    model = keras.Sequential([keras.Input((1,)), layer])
    model.compile(keras.optimizers.SGD(rate), "mse")
    return model


def column(*numbers):
    """Numbers as a batch."""
    import numpy as np

    return np.array(numbers, "float32").reshape(-1, 1)


@on_processes(
    "`ModelParallel` over processes, with a mesh whose first axis is not that of the batch",
    "each process takes its own part for the whole batch: losses and weights differ",
    "the batch axis first, as in `DeviceMesh(shape, ['batch', 'model'], devices)`",
    lesson="14",
    devices_per_rank=2,
)
def batch_axis_second(cured):
    import jax
    import keras
    import numpy as np

    keras.distribution.initialize()
    rank, size = jax.process_index(), jax.process_count()
    devices = keras.distribution.list_devices()
    names, shape = (("batch", "model"), (size, 2)) if cured else (("model", "batch"), (2, size))
    mesh = keras.distribution.DeviceMesh(shape, names, devices)
    layouts = keras.distribution.LayoutMap(mesh)
    distribution = keras.distribution.ModelParallel(
        layout_map=layouts, batch_dim_name="batch", auto_shard_dataset=False
    )
    keras.distribution.set_distribution(distribution)
    model = one_weight()
    x = np.array_split(column(1, 2, 3, 4), size)[rank]
    history = model.fit(x, 0 * x, batch_size=len(x), shuffle=False, verbose=0).history
    return {"loss": history["loss"], "weight": model.weights[0]}


@on_processes(
    "`DataParallel` over processes, and a number of examples that the batches do not divide",
    "with a smaller last batch, losses differ between the processes, and weights from those of one",
    "`batch(..., drop_remainder=True)`, or repeat",
    lesson="14",
)
def a_smaller_last_batch_over_processes(cured):
    import keras

    keras.distribution.initialize()
    import tensorflow as tf

    keras.distribution.set_distribution(keras.distribution.DataParallel())
    model = one_weight(0.001)
    x = column(*range(1, 15))
    data = tf.data.Dataset.from_tensor_slices((x, 0 * x)).batch(8, drop_remainder=cured)
    history = model.fit(data, epochs=2, verbose=0, shuffle=False).history
    return {"losses": history["loss"], "weight": model.weights[0]}


@on_devices(
    "an `evaluate` or `predict` that fails or is interrupted, in a `try`",
    "the model has no weights afterwards",
    "`model.jax_state_sync()` in the `except`; where the first batch has failed, only a checkpoint "
    "brings them back",
    lesson="02",
    thread="https://github.com/keras-team/keras/pull/21019",
)
def weights_after_a_failed_evaluate(cured):
    import keras

    keras.distribution.set_distribution(keras.distribution.DataParallel())
    model = one_weight()
    x = column(1, 2, 3, 4, 5, 6, 7)
    try:
        model.evaluate(x, x, batch_size=4, verbose=0)  # four devices do not divide the last three
    except ValueError:
        if cured:
            model.jax_state_sync()
    with contextlib.suppress(TypeError):
        return {"weights": len(model.get_weights())}
    return {"weights": 0}


@on_devices(
    "a learning-rate schedule and `gradient_accumulation_steps`, which keep the global batch on "
    "fewer devices",
    "the schedule counts micro-batches",
    "a schedule that is as many times longer",
)
def schedule_with_accumulation(cured):
    import keras

    keras.distribution.set_distribution(keras.distribution.DataParallel())
    devices = len(keras.distribution.list_devices())
    model, each = one_weight(), 4 // devices
    last = 5 * each - 1 if cured else 4  # the last step, from 0, at the first rate
    rate = keras.optimizers.schedules.PiecewiseConstantDecay([last], [0.1, 0.0])
    accumulate = each if each > 1 else None
    optimizer = keras.optimizers.SGD(rate, gradient_accumulation_steps=accumulate)
    model.compile(optimizer, "mse")
    x = column(*[1.0] * 32)
    model.fit(x, 0 * x, batch_size=devices, shuffle=False, verbose=0)
    return {"weight": model.weights[0]}


@on_devices(
    "a `LayoutMap` rule `d1/kernel` for a layer of a `Sequential`",
    "since Keras 3.14 a rule has to match all of the path, which begins with the model's name: "
    "every device has the whole kernel",
    "`.*d1/kernel`, and `distlab.layouts.lint`",
    lesson="03",
    thread="https://github.com/keras-team/keras/pull/22164",
)
def rule_without_the_name_of_the_model(cured):
    import keras
    from keras.distribution import DeviceMesh, LayoutMap, ModelParallel, list_devices

    devices = list_devices()
    rules = LayoutMap(DeviceMesh((1, len(devices)), ["batch", "model"], devices))
    rules[".*d1/kernel" if cured else "d1/kernel"] = (None, "model")
    keras.distribution.set_distribution(ModelParallel(layout_map=rules, batch_dim_name="batch"))
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, name="d1")])
    shards = model.layers[0].kernel.value.addressable_shards
    return {"numbers on all devices": sum(shard.data.size for shard in shards)}


@row(
    "`fully_shard` of PyTorch on a Keras model",
    "Keras goes on with the weights it has: every rank has all of them",
    "DDP, or a plain PyTorch module",
    lesson="12",
    env=(("KERAS_BACKEND", "torch"),),
)
def fully_shard_of_a_keras_model(cured):
    import keras
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4, use_bias=False)])
    if cured:
        model = torch.nn.Linear(4, 4, bias=False)
    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    fully_shard(model, mesh=mesh)
    weight = model.weight if cured else model.layers[0].kernel.value
    numbers = torch.tensor((weight.to_local() if hasattr(weight, "to_local") else weight).numel())
    dist.all_reduce(numbers)
    return {"numbers on all ranks": numbers}
