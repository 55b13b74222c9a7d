"""A second MirroredStrategy in a process: its first step stops."""

import distlab

distlab.virtual_devices(4, "tensorflow")

import tensorflow as tf  # noqa: E402


def total(count):
    strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(count)])

    @tf.function
    def step():
        return tf.distribute.get_replica_context().all_reduce("sum", tf.ones(count))

    return strategy.experimental_local_results(strategy.run(step))[0].numpy().tolist()


assert total(2) == [2.0, 2.0]
try:
    assert total(4) == [4.0] * 4
    print("WORKS")
except tf.errors.OpError:
    print("the second one failed")
