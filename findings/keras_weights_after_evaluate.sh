#!/bin/sh
# Keras on JAX: `evaluate` that fails within a `try`, and the weights of the model afterwards.
#
# Seen with Keras 3.15.1, JAX 0.10.2, two virtual CPU devices under DataParallel: 3 examples do not divide by 2, `evaluate`
# raises, and `get_weights` then raises a TypeError: the model has lost its values. model.jax_state_sync() brings them
# back, as they were. Fails if the weights are there at once, or do not come back.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq "keras==3.15.1" "jax==0.10.2" "jaxlib==0.10.2" "numpy<3"
cat > "$folder/evaluate.py" <<'PY'
import jax

jax.config.update("jax_num_cpu_devices", 2)
import keras
import numpy as np

keras.distribution.set_distribution(keras.distribution.DataParallel())
model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
model.compile(loss="mse")
before = model.get_weights()[0].item()
x = np.ones((5, 1), "float32")
failed = lost = ""
try:
    model.evaluate(x, x, batch_size=2, verbose=0)
except ValueError as error:
    failed = type(error).__name__
try:
    model.get_weights()
except TypeError as error:
    lost = str(error)
model.jax_state_sync()
print(f"Keras {keras.__version__}, JAX {jax.__version__}: evaluate: {failed}; get_weights: {lost}")
assert failed and lost and model.get_weights()[0].item() == before, (failed, lost)
PY
KERAS_BACKEND=jax JAX_PLATFORMS=cpu "$folder/venv/bin/python" "$folder/evaluate.py"
