"""Silent errors of TensorFlow's strategies, with tf_keras."""

import functools

from silent.row import row

KERAS_3 = (("KERAS_BACKEND", "tensorflow"),)
ENV = (("TF_USE_LEGACY_KERAS", "1"),)
on_devices = functools.partial(row, framework="tensorflow", devices=(1, 4), env=ENV)
on_workers = functools.partial(row, framework="tensorflow", env=ENV)


def mirrored():
    """A strategy for all devices."""
    import tensorflow as tf

    names = [device.name for device in tf.config.list_logical_devices("CPU")]
    adding = tf.distribute.ReductionToOneDevice()
    return tf.distribute.MirroredStrategy(names, cross_device_ops=adding)


def parts(strategy, *numbers):
    """A batch of numbers, spread over the replicas."""
    import tensorflow as tf

    data = tf.data.Dataset.from_tensor_slices(list(numbers)).batch(len(numbers))
    return next(iter(strategy.experimental_distribute_dataset(data)))


def one_weight(rate, loss="mse"):
    """A model that multiplies by one weight, which is 1."""
    import tf_keras

    layers = [tf_keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")]
    model = tf_keras.Sequential([tf_keras.Input((1,)), *layers])
    model.compile(tf_keras.optimizers.SGD(rate), loss)
    return model


@on_devices(
    "`tf.reduce_mean` of the losses in `strategy.run`, and `optimizer.apply_gradients`",
    "gradients are added up over replicas: multiplied by their number",
    "`tf.nn.compute_average_loss(losses, global_batch_size=...)`",
    lesson="05",
)
def mean_in_a_replica(cured):
    import tensorflow as tf
    import tf_keras

    strategy = mirrored()
    with strategy.scope():
        weight = tf.Variable(1.0)
        optimizer = tf_keras.optimizers.SGD(0.01)
        optimizer.build([weight])

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            losses = weight * x
            mean = tf.nn.compute_average_loss(losses, global_batch_size=4)
            loss = mean if cured else tf.reduce_mean(losses)
        optimizer.apply_gradients([(tape.gradient(loss, weight), weight)])

    strategy.run(step, [parts(strategy, 1.0, 2.0, 3.0, 4.0)])
    return {"weight": weight}


@on_devices(
    "`fit` under `MirroredStrategy`, with a last batch that the replicas do not divide",
    "the loss is right, the update is divided by all replicas",
    "`drop_remainder=True`",
    lesson="05",
)
def a_smaller_last_batch_on_replicas(cured):
    import numpy as np
    import tensorflow as tf

    with mirrored().scope():
        model = one_weight(0.25, loss="mae")
    x = np.ones((5, 1), "float32")
    data = tf.data.Dataset.from_tensor_slices((x, 0 * x)).batch(4, drop_remainder=cured)
    history = model.fit(data, verbose=0).history
    return {"loss": history["loss"], "weight": model.weights[0]}


@on_devices(
    "a plain `tf.Variable` made in the scope and updated by the replicas",
    "each replica has a value of its own; what is read is the first's",
    "`tf.Variable(..., aggregation=tf.VariableAggregation.SUM)`",
    lesson="05",
)
def variable_without_aggregation(cured):
    import tensorflow as tf

    strategy = mirrored()
    kind = tf.VariableAggregation.SUM if cured else tf.VariableAggregation.NONE
    with strategy.scope():
        total = tf.Variable(0.0, aggregation=kind)
    numbers = parts(strategy, *[float(number) for number in range(8)])
    strategy.run(tf.function(lambda x: total.assign_add(tf.reduce_sum(x))), [numbers])
    return {"total": total}


@on_devices(
    "an integer variable with `ON_READ` and `SUM`, saved and restored",
    "the sum is divided by the replicas, and rounded down",
    "a variable of floats",
)
def integer_sum_restored(cured):
    import tempfile

    import tensorflow as tf

    strategy = mirrored()
    with strategy.scope():
        total = tf.Variable(
            tf.constant(0, tf.float32 if cured else tf.int32),
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
            trainable=False,
        )
    numbers = parts(strategy, 1, 2, 3, 4)
    add = tf.function(lambda x: total.assign_add(tf.cast(tf.reduce_sum(x), total.dtype)))
    strategy.run(add, [numbers])
    saved = tf.train.Checkpoint(total=total)
    saved.restore(saved.save(tempfile.mkdtemp() + "/total"))
    return {"total": total}


@on_devices(
    "`tf.random` with a seed in `strategy.run`",
    "all replicas draw the same numbers",
    "`tf.random.Generator.from_seed` made in the strategy's scope",
    lesson="05",
)
def seeded_random_ops(cured):
    import numpy as np
    import tensorflow as tf

    strategy = mirrored()
    with strategy.scope():
        generator = tf.random.Generator.from_seed(1)

    @tf.function
    def noise(x):
        return generator.normal(x.shape) if cured else tf.random.normal(x.shape, seed=1)

    count = 8 // strategy.num_replicas_in_sync
    drawn = strategy.run(noise, [tf.zeros(count)])
    drawn = np.concatenate(strategy.experimental_local_results(drawn))
    return {"different numbers": len(np.unique(drawn))}


@functools.partial(row, framework="tensorflow", devices=(1, 4), env=KERAS_3)(
    "an optimizer with `clipnorm` (or `clipvalue`, `global_clipnorm`) of Keras 3 under "
    "`MirroredStrategy`",
    "each replica clips its own part of the gradient before the parts are added up",
    "tf_keras, which clips the sum",
    lesson="05",
    thread="https://github.com/tensorflow/tensorflow/issues/33929",
)
def clipped_on_replicas(cured):
    import numpy as np

    if cured:
        import tf_keras as keras
    else:
        import keras
    with mirrored().scope():
        layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
        model = keras.Sequential([keras.Input((1,)), layer])
        model.compile(keras.optimizers.SGD(0.1, clipnorm=1.5), "mse")
    x = np.full((4, 1), 2.0, "float32")
    model.fit(x, 0 * x, batch_size=4, shuffle=False, verbose=0)
    return {"weight": model.weights[0]}


@functools.partial(row, framework="tensorflow", devices=(1, 4), env=KERAS_3)(
    "`LossScaleOptimizer` of Keras 3 under `MirroredStrategy`",
    "it looks for an overflow in the first replica alone: that of another gets into all weights",
    "`LossScaleOptimizer` of tf_keras, which looks in all",
    lesson="05",
)
def overflow_on_replicas(cured):
    import numpy as np

    if cured:
        import tf_keras as keras
        from tf_keras.mixed_precision import LossScaleOptimizer
    else:
        import keras
        from keras.optimizers import LossScaleOptimizer
    with mirrored().scope():
        layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
        model = keras.Sequential([keras.Input((1,)), layer])
        model.compile(LossScaleOptimizer(keras.optimizers.SGD(0.1)), "mse")
    x = np.array([[1.0], [1.0], [1.0], [np.inf]], "float32")
    model.fit(x, np.zeros((4, 1), "float32"), batch_size=4, shuffle=False, verbose=0)
    return {"weight": model.weights[0]}


@on_workers(
    "`Dropout(..., seed=1)` under `MultiWorkerMirroredStrategy`",
    "each worker drops the same units of its examples",
    "a seed that has the worker's number in it",
    lesson="06",
)
def dropout_of_workers(cured):
    import numpy as np
    import tensorflow as tf
    import tf_keras

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    worker, size = strategy.cluster_resolver.task_id or 0, strategy.num_replicas_in_sync
    with strategy.scope():
        dropout = tf_keras.layers.Dropout(0.5, seed=1 + worker if cured else 1)
    masks = strategy.run(lambda: dropout(tf.ones((8 // size, 64)), training=True))
    everybodys = strategy.gather(masks, axis=0).numpy()
    return {"different masks": len(np.unique(everybodys, axis=0))}


@on_workers(
    "callbacks under `MultiWorkerMirroredStrategy` that are told the loss of a batch",
    "it is multiplied by the number of workers",
    '`model.distribute_reduction_method = "first"`',
    lesson="06",
)
def loss_that_callbacks_see(cured):
    import numpy as np
    import tensorflow as tf
    import tf_keras

    with tf.distribute.MultiWorkerMirroredStrategy().scope():
        model = one_weight(0.0)
    if cured:
        model.distribute_reduction_method = "first"
    told = []
    see = tf_keras.callbacks.LambdaCallback(on_batch_end=lambda _, logs: told.append(logs["loss"]))
    x = np.ones((8, 1), "float32")
    model.fit(x, 0 * x, batch_size=8, verbose=0, callbacks=[see])
    return {"loss": told}


@on_devices(
    "`BatchNormalization` under `MirroredStrategy`",
    "statistics of a replica's own part; the moving ones (of tf_keras) are a mean of them",
    "`BatchNormalization(synchronized=True)`",
    lesson="05",
)
def batch_norm_of_replicas(cured):
    import numpy as np
    import tf_keras

    with mirrored().scope():
        norm = tf_keras.layers.BatchNormalization(synchronized=cured)
        model = tf_keras.Sequential([tf_keras.Input((1,)), norm])
        model.compile(tf_keras.optimizers.SGD(0.0), "mse")
    x = np.arange(8.0, dtype="float32").reshape(-1, 1)
    losses = model.fit(x, 0 * x, batch_size=8, shuffle=False, verbose=0).history["loss"]
    return {"loss": losses, "moving variance": norm.moving_variance}


@on_devices(
    "`model.losses` (penalties of a `kernel_regularizer`) added to the loss in `strategy.run`",
    "every replica adds all of them: they count as often as there are replicas",
    "`tf.nn.scale_regularization_loss`",
    lesson="05",
)
def penalty_in_replicas(cured):
    import tensorflow as tf
    import tf_keras

    strategy = mirrored()
    with strategy.scope():
        weight = tf.Variable(1.0)
        optimizer = tf_keras.optimizers.SGD(0.1)
        optimizer.build([weight])

    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.nn.compute_average_loss(weight * x, global_batch_size=4)
            penalty = weight**2
            loss += tf.nn.scale_regularization_loss(penalty) if cured else penalty
        optimizer.apply_gradients([(tape.gradient(loss, weight), weight)])

    strategy.run(tf.function(step), [parts(strategy, 1.0, 2.0, 3.0, 4.0)])
    return {"weight": weight}


@on_workers(
    "`AutoShardPolicy.OFF` under `MultiWorkerMirroredStrategy`, with one data set for all",
    "all workers take the same examples: the second adds nothing",
    "`AutoShardPolicy.DATA`",
    lesson="06",
)
def the_same_examples_for_all(cured):
    import tensorflow as tf

    with tf.distribute.MultiWorkerMirroredStrategy().scope():
        model = one_weight(0.01)
    kind = tf.data.experimental.AutoShardPolicy
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = kind.DATA if cured else kind.OFF
    x = tf.reshape(tf.range(1.0, 9.0), (-1, 1))
    data = tf.data.Dataset.from_tensor_slices((x, 0 * x)).batch(4).with_options(options)
    history = model.fit(data, steps_per_epoch=2, verbose=0).history
    return {"loss": history["loss"], "weight": model.weights[0]}
