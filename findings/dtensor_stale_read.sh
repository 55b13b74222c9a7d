#!/bin/sh
# TensorFlow DTensor: a variable that is assigned from a sum over the batch and read in the same tf.function.
#
# Seen with TensorFlow 2.21.0, a mesh of two virtual CPU devices, the sum of 0 to 7: with two sums in the function the
# read gives 0, the value before the call, where eager TensorFlow gives 28; the variable itself is 28 afterwards. With
# DTENSOR_ENABLE_COMBINE_ALL_REDUCES_OPTIMIZATION=0 the read gives 28: the sums are merged at the place of the last, and
# the read stays in front of it. Fails if either is no longer so.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq "tensorflow==2.21.0"
cat > "$folder/read.py" <<'PY'
import os

import numpy as np
import tensorflow as tf
from tensorflow.experimental import dtensor

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
mesh = dtensor.create_mesh([("batch", 2)], device_type="CPU")
replicated = dtensor.Layout.replicated(mesh, 0)
total, read = (
    dtensor.DVariable(dtensor.call_with_layout(tf.zeros, replicated, shape=())) for _ in range(2)
)
x = dtensor.pack(np.split(np.arange(8, dtype="float32"), 2), dtensor.Layout.batch_sharded(mesh, "batch", 1))


@tf.function
def step(x):
    total.assign(tf.reduce_sum(x))
    read.assign(1.0 * total)
    return tf.reduce_sum(x * x)


step(x)
print(f"TensorFlow {tf.__version__}: total {total.numpy()}, read {read.numpy()}")
assert total.numpy() == 28 and read.numpy() == float(os.environ["EXPECTED"])
PY
export TF_CPP_MIN_LOG_LEVEL=2
EXPECTED=0 "$folder/venv/bin/python" "$folder/read.py"
DTENSOR_ENABLE_COMBINE_ALL_REDUCES_OPTIMIZATION=0 EXPECTED=28 "$folder/venv/bin/python" "$folder/read.py"
