"""`fit` of Keras 3 under MultiWorkerMirroredStrategy: it cannot convert a PerReplica."""

import distlab


def fit():
    import keras
    import numpy as np
    import tensorflow as tf

    with tf.distribute.MultiWorkerMirroredStrategy().scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    x = np.zeros((4, 3), "float32")
    model.fit(x, x[:, :1], verbose=0)


if __name__ == "__main__":
    distlab.run(fit, 2, "tensorflow", quiet=True, timeout=200)
    print("WORKS")
