"""Silent errors of TensorFlow's DTensor."""

import functools
import itertools

from silent.row import row

ENV = (("TF_USE_LEGACY_KERAS", "1"),)
on_devices = functools.partial(row, framework="tensorflow", devices=(1, 4), env=ENV)


def over_devices():
    """A mesh of all devices, on the axis `batch`."""
    import tensorflow as tf
    from tensorflow.experimental import dtensor

    names = [device.name for device in tf.config.list_logical_devices("CPU")]
    names = [name.replace("device:", "").lstrip("/") for name in names]
    return dtensor.create_mesh([("batch", len(names))], devices=names)


@on_devices(
    "a variable that is assigned from a sum over the batch and read in the same `tf.function`",
    "what is read is the old value",
    "`DTENSOR_ENABLE_COMBINE_ALL_REDUCES_OPTIMIZATION=0` before the first operation",
    lesson="09",
)
def variable_read_after_a_sum(cured):
    import os

    os.environ["DTENSOR_ENABLE_COMBINE_ALL_REDUCES_OPTIMIZATION"] = "0" if cured else "1"
    import numpy as np
    import tensorflow as tf
    from tensorflow.experimental import dtensor

    mesh = over_devices()
    replicated = dtensor.Layout.replicated(mesh, 0)
    total, twice = (
        dtensor.DVariable(dtensor.call_with_layout(tf.zeros, replicated, shape=()))
        for _ in range(2)
    )
    by_rows = dtensor.Layout.batch_sharded(mesh, "batch", 1)
    x = dtensor.pack(np.split(np.arange(8, dtype="float32"), mesh.size), by_rows)

    @tf.function
    def step(x):
        total.assign(tf.reduce_sum(x))
        twice.assign(2.0 * total)
        twice.assign_add(tf.reduce_sum(x * x))
        return twice

    step(x)
    return {"total": total, "twice": twice}


@on_devices(
    "`DTensorDataset` of a shuffled data set, for more than one epoch",
    "from the second epoch on only the first device gets a new order: examples are missing, "
    "others come twice",
    "`shuffle(..., seed=1, reshuffle_each_iteration=False)`",
    lesson="09",
)
def shuffled_second_epoch(cured):
    import numpy as np
    import tensorflow as tf
    from tensorflow.experimental import dtensor

    mesh = over_devices()
    again = not cured
    data = tf.data.Dataset.range(64).shuffle(64, seed=1, reshuffle_each_iteration=again)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    packed = dtensor.DTensorDataset(
        data.with_options(options),
        mesh=mesh,
        layouts=dtensor.Layout.batch_sharded(mesh, "batch", 1),
        global_batch_size=16,
        batch_dim="batch",
    )
    seen = []
    for _ in range(2):
        epoch = itertools.islice(packed, 4)  # a loop after a read past the end fails, and says so
        seen = [part.numpy() for batch in epoch for part in dtensor.unpack(batch)]
    return {"different examples": len(np.unique(np.concatenate(seen)))}


@on_devices(
    "an optimizer of tf_keras for DTensor, in a `tf.function` that sums several gradients",
    "DTensor puts combined all-reduces at the place of the last; tf_keras optimizers then read the "
    "slots of the step before, so all weights but one stay a step behind",
    "`DTENSOR_ENABLE_COMBINE_ALL_REDUCES_OPTIMIZATION=0` before the first operation",
    lesson="09",
)
def optimizer_a_step_behind(cured):
    import os

    os.environ["DTENSOR_ENABLE_COMBINE_ALL_REDUCES_OPTIMIZATION"] = "0" if cured else "1"
    import numpy as np
    import tensorflow as tf
    from tensorflow.experimental import dtensor
    from tf_keras.dtensor.experimental import optimizers

    mesh = over_devices()
    replicated = dtensor.Layout.replicated(mesh, 0)
    weights = [
        dtensor.DVariable(dtensor.call_with_layout(tf.ones, replicated, shape=())) for _ in range(2)
    ]
    optimizer = optimizers.SGD(0.01, mesh=mesh)
    by_rows = dtensor.Layout.batch_sharded(mesh, "batch", 1)
    x = dtensor.pack(np.split(np.arange(8, dtype="float32"), mesh.size), by_rows)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(weights[0] * x + weights[1] * x * x)
        optimizer.minimize(loss, weights, tape=tape)

    for _ in range(3):
        step(x)
    return {"weights": weights}
