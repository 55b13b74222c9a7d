"""DTensor layouts in Keras 3: a layer takes none."""

import keras
from tensorflow.experimental import dtensor

mesh = dtensor.create_mesh([("batch", 1)], device_type="CPU")
keras.layers.Dense(2, kernel_layout=dtensor.Layout.replicated(mesh, 2))
print("WORKS")
