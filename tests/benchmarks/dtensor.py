"""How long a DTensor step takes in our lesson's loop and in the published tutorial's.

    python tests/benchmarks/dtensor.py [--repeat 20]

Prints a Markdown table of medians, for eight virtual devices, the digits and batches of 128. Both
loops have the same model, optimizer and input pipeline. They take turns, an epoch each, so a slow
moment of the machine meets both. The peer is the method of
https://www.tensorflow.org/tutorials/distribute/dtensor_keras_tutorial, in our words: split and
pack each batch with TensorFlow's operations, hand the model to the step, read the metric and show
it after every step. Run it on a machine that does nothing else.
"""

import argparse
import contextlib
import io
import json
import logging
import os
import statistics
import subprocess
import sys
from collections.abc import Callable

from table import Row, median, show

os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
COMBINE = "DTENSOR_ENABLE_COMBINE_ALL_REDUCES_OPTIMIZATION"
BATCH = 128


class Loops:
    """A model with its optimizer and data, and the two ways to train it for an epoch."""

    def __init__(self) -> None:
        import distlab

        distlab.virtual_devices(8, "tensorflow", accelerators=False)
        import tensorflow as tf
        import tf_keras
        from tensorflow.experimental import dtensor
        from tf_keras.dtensor.experimental import optimizers

        from distlab import datasets

        self.tf, self.tf_keras, self.dtensor = tf, tf_keras, dtensor
        logging.getLogger("absl").setLevel(logging.ERROR)
        images, labels = datasets.load("digits")[0]
        data = tf.data.Dataset.from_tensor_slices((images, labels))
        self.batches = (
            data.map(lambda x, y: (tf.cast(x, tf.float32) / 255.0, y), tf.data.AUTOTUNE)
            .cache()
            .shuffle(len(images))
            .batch(BATCH, drop_remainder=True)
            .prefetch(tf.data.AUTOTUNE)
        )
        self.mesh = dtensor.create_mesh([("batch", 8)])
        self.sharded = [dtensor.Layout.batch_sharded(self.mesh, "batch", r) for r in range(1, 5)]
        replicated = [dtensor.Layout.replicated(self.mesh, rank) for rank in range(3)]
        tf_keras.utils.set_random_seed(1337)

        def dense(units: int, activation: str | None = None) -> object:
            return tf_keras.layers.Dense(
                units, activation, kernel_layout=replicated[2], bias_layout=replicated[1]
            )

        flatten = tf_keras.layers.Flatten(input_shape=(28, 28, 1))
        self.model = tf_keras.Sequential([flatten, dense(128, "relu"), dense(10)])
        self.optimizer = optimizers.Adam(0.01, mesh=self.mesh)
        self.accuracy = tf_keras.metrics.SparseCategoricalAccuracy(mesh=self.mesh)
        self.our_step = self._make_our_step()
        self.their_step = self._make_their_step()

    def _make_our_step(self) -> Callable:
        tf, model, optimizer = self.tf, self.model, self.optimizer
        cross_entropy = self.tf_keras.losses.sparse_categorical_crossentropy

        @tf.function
        def step(images, labels, weights):
            with tf.GradientTape() as tape:
                logits = model(images, training=True)
                each = cross_entropy(labels, logits, from_logits=True)
                loss = tf.reduce_sum(weights * each) / tf.reduce_sum(weights)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            self.accuracy.update_state(labels, logits, sample_weight=weights)
            return loss

        return step

    def _make_their_step(self) -> Callable:
        tf = self.tf
        cross_entropy = self.tf_keras.losses.sparse_categorical_crossentropy

        @tf.function
        def step(model, images, labels, optimizer, metrics):
            with tf.GradientTape() as tape:
                logits = model(images, training=True)
                total = tf.reduce_sum(cross_entropy(labels, logits, from_logits=True))
            gradients = tape.gradient(total, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            for metric in metrics.values():
                metric.update_state(labels, logits)
            return {"loss": total / len(images)}

        return step

    def pack(self, array: object) -> object:
        """Pack slices of a NumPy array: views, no copies."""
        import numpy as np

        slices = np.split(array, 8)
        mine = [slices[place["batch"]] for place in self.mesh.local_device_locations()]
        return self.dtensor.pack(mine, self.sharded[array.ndim - 1])

    def pack_example(self, images: object, labels: object) -> list:
        """Pack a batch and the weights of its examples, as the lesson does."""
        import numpy as np

        weights = (np.arange(BATCH) < len(images)).astype("float32")
        return [self.pack(array) for array in (images, labels, weights)]

    def split_and_pack(self, images: object, labels: object) -> list:
        """Split tensors with an operation of TensorFlow, then pack."""
        parts = (self.tf.split(tensor, 8) for tensor in (images, labels))
        layouts = (self.sharded[3], self.sharded[0])
        return [self.dtensor.pack(*pair) for pair in zip(parts, layouts, strict=True)]

    def our_epoch(self) -> None:
        self.accuracy.reset_state()
        bar = self.tf_keras.utils.Progbar(len(self.batches))
        losses = []
        for number, batch in enumerate(self.batches.as_numpy_iterator()):
            losses.append(self.our_step(*self.pack_example(*batch)))
            bar.update(number + 1, finalize=False)
        results = {"loss": float(losses[-1]), "accuracy": float(self.accuracy.result())}
        bar.update(len(self.batches), values=results.items(), finalize=True)

    def their_epoch(self) -> None:
        metrics = {"accuracy": self.accuracy}
        self.accuracy.reset_state()
        bar = self.tf_keras.utils.Progbar(None)
        number, results = 0, {}
        for images, labels in self.batches:
            packed = self.split_and_pack(images, labels)
            results |= self.their_step(self.model, *packed, self.optimizer, metrics)
            results |= {name: metric.result() for name, metric in metrics.items()}
            bar.update(number, values=results.items(), finalize=False)
            number += 1
        bar.update(number, values=results.items(), finalize=True)


def measure(repeat: int) -> dict[str, float]:
    """Return medians: seconds a step in each loop, and of each loop's parts."""
    with contextlib.redirect_stdout(io.StringIO()):
        loops = Loops()
        loops.our_epoch()  # compiles
        loops.their_epoch()
        ours, theirs = [], []
        for _ in range(repeat):
            ours.append(median(loops.our_epoch, 1) / len(loops.batches))
            theirs.append(median(loops.their_epoch, 1) / len(loops.batches))
        images, labels = next(iter(loops.batches))
        arrays = images.numpy(), labels.numpy()
        example = loops.pack_example(*arrays)
        return {
            "ours": statistics.median(ours),
            "theirs": statistics.median(theirs),
            "our pack": median(lambda: [loops.pack(array) for array in arrays], 5 * repeat),
            "their pack": median(lambda: loops.split_and_pack(images, labels), 5 * repeat),
            "step": median(lambda: loops.our_step(*example).numpy(), 5 * repeat),
            "metric": median(lambda: loops.accuracy.result().numpy(), 5 * repeat),
        }


def measure_in_process(combine: str, repeat: int) -> dict[str, float]:
    """Measure in a process of its own: DTensor reads the setting once."""
    command = [sys.executable, __file__, "--repeat", str(repeat), "--raw"]
    output = subprocess.check_output(command, env=os.environ | {COMBINE: combine}, text=True)
    return json.loads(output.splitlines()[-1])


def rows(repeat: int) -> list[Row]:
    apart = measure_in_process("0", repeat)
    combined = measure_in_process("1", repeat)
    loop, bound = "the tutorial's loop", "at most 1 times"
    return [
        Row("a step, all-reduces apart", apart["ours"], apart["theirs"], loop, bound,
            apart["ours"] <= apart["theirs"], "ms"),
        Row("a step, all-reduces combined", combined["ours"], combined["theirs"], loop, bound,
            combined["ours"] <= combined["theirs"], "ms"),
        Row("packing a batch", apart["our pack"], apart["their pack"], "split and pack", "", None,
            "ms"),
        Row("the same", apart["our pack"], apart["step"], "one step, and wait",
            "at most 0.2 times", apart["our pack"] <= 0.2 * apart["step"], "ms"),
        Row("the same", apart["our pack"], apart["metric"], "reading a metric", "", None, "ms"),
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=20, help="epochs, for the medians")
    parser.add_argument("--raw", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.raw:
        print(json.dumps(measure(options.repeat)))
        return
    show(lambda: rows(options.repeat))


if __name__ == "__main__":
    main()
