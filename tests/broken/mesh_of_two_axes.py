"""Keras' DataParallel with a mesh of two axes: the warning about it fails."""

import jax

jax.config.update("jax_num_cpu_devices", 8)

from keras.distribution import DataParallel, DeviceMesh  # noqa: E402

DataParallel(device_mesh=DeviceMesh((4, 2), ["data", "model"]))
print("WORKS")
