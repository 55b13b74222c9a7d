"""What is broken in the frameworks, as programs that show it: a lesson warns of each.

When one is mended, its program says so, the test about it fails, and the lesson's warning can go.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
HOMES = ("KERAS_HOME", "MPLCONFIGDIR", "TORCH_HOME")
"""Where programs keep their files, if not in the home folder."""
TIMEOUT = 240
"""Seconds a program may take. The slowest takes 20 on two quiet cores."""


@dataclass(frozen=True)
class Breakage:
    """One thing that does not work.

    Attributes:
        what: What is broken, as the table says it.
        cure: What the lessons do instead.
        needs: The packages it is about, with the versions that have it, as requirements.
        sign: What the program prints while it is broken: a regular expression.
        code: The program. It prints WORKS once it is mended.
        environment: Variables it runs with.
    """

    what: str
    cure: str
    needs: tuple[str, ...]
    sign: str
    code: str
    environment: tuple[tuple[str, str], ...] = ()

    def applies(self) -> bool:
        """Whether this environment has the packages in the versions it is about."""
        needs = map(Requirement, self.needs)
        try:
            return all(need.specifier.contains(version(need.name)) for need in needs)
        except PackageNotFoundError:
            return False

    def state(self) -> str:
        """Run the program: `"broken"`, `"mended"`, or what it printed if that is neither."""
        # No TF_CONFIG, PJRT_NPROC or the like of the caller's own.
        kept = ("PATH", "HOME", "TMPDIR", "PYTHONPATH", "LD_LIBRARY_PATH", *HOMES)
        environment = {name: os.environ[name] for name in kept if name in os.environ}
        environment |= {"CUDA_VISIBLE_DEVICES": "-1", "JAX_PLATFORMS": "cpu"}
        ran = subprocess.run(
            [sys.executable, "-c", self.code],
            env=environment | dict(self.environment),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="backslashreplace",
            timeout=TIMEOUT,
            check=False,
        )
        if re.search(r"^WORKS$", ran.stdout, re.MULTILINE):
            return "mended"
        broken = re.search(self.sign, ran.stdout, re.MULTILINE)
        return "broken" if broken else ran.stdout[-3000:]


JAX = """
import jax
jax.config.update("jax_num_cpu_devices", 8)
"""
KERAS_ON_JAX = (("KERAS_BACKEND", "jax"),)
KERAS_ON_TENSORFLOW = (("KERAS_BACKEND", "tensorflow"),)
BREAKAGES = [
    Breakage(
        "`fit` of Keras 3 under `MultiWorkerMirroredStrategy`",
        "tf_keras, or a loop of one's own",
        ("keras>=3", "tensorflow>=2.20"),
        r"convert a value \(PerReplica:",
        """
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
""",
        KERAS_ON_TENSORFLOW,
    ),
    Breakage(
        "DTensor layouts in Keras 3: a layer takes no `kernel_layout`",
        "tf_keras",
        ("keras>=3", "tensorflow>=2.20"),
        "Unrecognized keyword arguments passed to Dense: {'kernel_layout'",
        """
import keras
import tensorflow as tf
from tensorflow.experimental import dtensor

mesh = dtensor.create_mesh([("batch", 1)], device_type="CPU")
keras.layers.Dense(2, kernel_layout=dtensor.Layout.replicated(mesh, 2))
print("WORKS")
""",
        KERAS_ON_TENSORFLOW,
    ),
    Breakage(
        "`DataParallel` with a mesh of two axes fails inside Keras' own warning",
        "a mesh of one axis",
        ("keras>=3", "jax"),
        "TypeError: category must be a Warning subclass",
        JAX
        + """
from keras.distribution import DataParallel, DeviceMesh

DataParallel(device_mesh=DeviceMesh((4, 2), ["data", "model"]))
print("WORKS")
""",
        KERAS_ON_JAX,
    ),
    Breakage(
        "JAX on virtual CPU devices hangs, then aborts, when a program runs far ahead",
        "`distlab.virtual_devices` and distlab's ranks set `PJRT_NPROC`",
        ("jax>=0.7",),
        "Termination timeout for `all reduce",
        """
import os
from importlib.metadata import version

if int(version("jax").split(".")[1]) >= 10:  # these wait for 40 s by default
    os.environ["XLA_FLAGS"] = (
        "--xla_cpu_collective_call_terminate_timeout_seconds=5"
        " --xla_cpu_collective_call_warn_stuck_timeout_seconds=2"
    )
"""
        + JAX
        + """
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((8,), ("data",))
x = jax.device_put(np.ones((4096, 256), "float32"), NamedSharding(mesh, P("data")))
w = jax.device_put(np.ones((256, 256), "float32"), NamedSharding(mesh, P()))
step = jax.jit(lambda w, x: w - 1e-6 * jax.grad(lambda w: ((x @ w) ** 2).mean())(w))
for _ in range(2000):
    w = step(w, x)
w.block_until_ready()
print("WORKS")
""",
    ),
    Breakage(
        "a compiled `fit` on one CPU device gets other losses than eager mode (wide layers)",
        "128 units, or a newer JAX",
        ("keras>=3", "jax<0.8"),
        "^losses differ$",
        """
import keras
import numpy as np
from keras import layers

random = np.random.RandomState(0)
x = random.rand(640, 784).astype("float32")
y = random.randint(0, 10, 640)

def losses(eager):
    keras.utils.clear_session()
    first, second = (keras.initializers.GlorotUniform(seed=seed) for seed in (3, 4))
    hidden = layers.Dense(256, activation="relu", kernel_initializer=first)
    model = keras.Sequential([keras.Input((784,)), hidden])
    model.add(layers.Dense(10, kernel_initializer=second))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss, run_eagerly=eager)
    batches = [slice(i, i + 64) for i in range(0, 640, 64)]
    return np.array([float(model.train_on_batch(x[b], y[b])) for b in batches])

difference = np.abs(losses(False) - losses(True)).max()
print(difference)
print("WORKS" if difference < 1e-4 else "losses differ")
""",
        KERAS_ON_JAX,
    ),
    Breakage(
        "a second `MirroredStrategy` in a process, with CPU devices, stops at its first step",
        "`cross_device_ops=tf.distribute.ReductionToOneDevice()`",
        ("tensorflow>=2.20",),
        "^the second one failed$",
        """
import distlab

distlab.virtual_devices(4, "tensorflow")

import tensorflow as tf

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
""",
    ),
]
