#!/bin/sh
# Keras: what `import keras` imports of packages that the program does not use.
#
# Seen with Keras 3.15.1, JAX 0.10.2, scikit-learn 1.9.1, pandas 3.1.1, matplotlib 3.11.2: where these (and with the
# first scipy.stats) are installed, `import keras` imports them, and takes more than twice the processor time (0.44 times
# without them). Where they cannot be imported, as here by their names, Keras works as well. Fails if Keras no longer
# imports them, or if the import without them takes more than three quarters of the time.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq "keras==3.15.1" "jax==0.10.2" "jaxlib==0.10.2" "scikit-learn==1.9.1" "pandas==3.1.1" "matplotlib==3.11.2"
cat > "$folder/seconds.py" <<'PY'
import sys
import time

OTHERS = "sklearn", "scipy.stats", "pandas", "matplotlib"
if "without" in sys.argv:
    sys.modules.update(dict.fromkeys(["sklearn", "pandas", "matplotlib"]))  # ImportError for each
begin = time.process_time()
import keras
import numpy

took = time.process_time() - begin
there = [name for name in OTHERS if sys.modules.get(name)]
keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]).predict(numpy.zeros((1, 2)), verbose=0)
print(keras.__version__, f"{took:.2f}", *there)
PY
cat > "$folder/compare.py" <<'PY'
import statistics
import subprocess
import sys

took = {}
for _ in range(4):  # the first writes byte code
    for how in ("with", "without"):
        command = [sys.executable, f"{sys.argv[1]}/seconds.py", how]
        version, seconds, *there = subprocess.check_output(command, text=True).split()
        took.setdefault(how, []).append(float(seconds))
        assert bool(there) == (how == "with"), (how, there)
        if there:
            imported = there
ratio = statistics.median(took["without"][1:]) / statistics.median(took["with"][1:])
print(f"Keras {version} imports {', '.join(imported)}; without them in {ratio:.2f} times the processor time")
assert len(imported) == 4 and ratio < 0.75, (imported, took)
PY
KERAS_BACKEND=jax JAX_PLATFORMS=cpu "$folder/venv/bin/python" "$folder/compare.py" "$folder"
