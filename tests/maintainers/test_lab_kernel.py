"""What `make lab` has every kernel run first: no notices from TensorFlow, but all else is shown."""

import os

import nbformat
from _tools import TOOLS
from nbclient import NotebookClient

FIT = """
import keras, numpy
model = keras.Sequential([keras.layers.Dense(3)])
model.compile("sgd", "mse", jit_compile=True)
_ = model.fit(numpy.ones((64, 4)), numpy.ones((64, 3)), verbose=0)
"""
WRONG = "tf.ones(2) + tf.ones(3)"
# After the first look at the devices TensorFlow would refuse them had it started.
DEVICES = "import distlab\nprint(len(distlab.virtual_devices(3, 'tensorflow')))"


def play(*sources: str) -> list[list[str]]:
    """Run cells in a new kernel; return what each shows, an error by its name."""
    # Under pytest ipykernel would not show what is written from C++.
    unset = {"PYTEST_CURRENT_TEST", "PYTHONSTARTUP", "TF_CPP_MIN_LOG_LEVEL"}
    env = {name: value for name, value in os.environ.items() if name not in unset}
    env["KERAS_BACKEND"] = "tensorflow"
    env["PYTHONSTARTUP"] = str(TOOLS / "jupyter" / "startup.py")
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    client = NotebookClient(
        nbformat.v4.new_notebook(cells=cells),
        timeout=300,
        kernel_name="python3",
        allow_errors=True,
        coalesce_streams=True,
    )
    client.execute(env=env)
    return [[output.get("text") or output.ename for output in cell.outputs] for cell in cells]


def test_tensorflow_starts_without_notices_and_what_goes_wrong_is_shown():
    before = "before = set(globals())"
    names = "print(*sorted(n for n in before if n[0] != '_'))"
    outputs = play(before, names, "import tensorflow as tf", DEVICES, FIT, WRONG)
    assert outputs[:5] == [[], ["In Out exit get_ipython open quit\n"], [], ["3\n"], []]
    warning, error = outputs[5]
    assert warning.startswith("W0000 ")
    assert "Incompatible shapes: [2] vs. [3]" in warning
    assert error == "InvalidArgumentError"


def test_a_kernel_of_an_environment_without_distlab_starts_as_ever():
    absent = "import sys\nsys.modules['distlab'] = None"
    [], [notices], [number] = play(absent, "import tensorflow as tf", "print(len(tf.__name__))")
    assert "absl::InitializeLog" in notices  # else the other test shows nothing
    assert number == "10\n"
