"""virtual_devices, in processes of their own: a framework starts only once in each."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from _interpreter import Interpreter

import distlab


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in a fresh interpreter."""
    return subprocess.run(
        [sys.executable, "-c", code],
        # Set by JAX when it is imported, for the processes that come after it, too.
        env={k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"} | environment,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=300,
        check=False,
    )


def report(code: str, **environment: str) -> dict:
    """Run `code`, which fills a dict called `out`, and return that dict and all that was said."""
    script = f"import json\nout = {{}}\n{code}\nprint('\\n' + json.dumps(out))"
    done = python(script, **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]) | {"said": done.stderr}


STARTED = """
import distlab
def attempt(key, *args, **kwargs):
    try:
        out[key] = len(distlab.virtual_devices(*args, **kwargs))
    except Exception as error:
        out[key] = [type(error).__name__, str(error)]
"""


@pytest.fixture(scope="module")
def jax() -> Iterator[Interpreter]:
    """A process that starts JAX with eight devices."""
    with contextlib.closing(Interpreter(STARTED)) as started:
        yield started


@pytest.fixture(scope="module")
def tensorflow() -> dict:
    """What is found and said where TensorFlow starts with eight devices."""
    return report("""
import distlab
devices = distlab.virtual_devices(8, "tensorflow")
import tensorflow as tf
out["same list"] = devices == tf.config.list_logical_devices("CPU")
out["names"] = [d.name for d in devices]
out["again"] = distlab.virtual_devices(8, "tensorflow") == devices
with tf.device(devices[-1].name):
    out["runs on"] = tf.constant(1.0).device.endswith("CPU:7")
""")


@pytest.fixture(scope="module")
def plain_tensorflow() -> dict:
    """What is found and said where TensorFlow has started by itself."""
    return report(f"""{STARTED}
import tensorflow as tf
tf.config.list_logical_devices()
tf.constant(1)
attempt("other", 8, "tensorflow")
attempt("same", 1, "tensorflow")
out["sum"] = float(tf.reduce_sum(tf.ones(4)))
""")


def test_import_is_quick_and_brings_no_framework(subtests):
    code = """
import sys, time
sys.path.pop(0)
before = time.process_time()  # of this process: the machine may have other work
{code}
out["seconds"] = time.process_time() - before
heavy = ("jax", "tensorflow", "torch", "keras", "numpy", "sklearn", "IPython")
out["imported"] = [name for name in heavy if name in sys.modules]
"""

    def least(code: str) -> float:
        return min(each["seconds"] for each in (report(code) for _ in range(5)))

    # Ratios, since machines differ: NumPy's import takes about 0.1 s.
    numpy = least(code.format(code="import numpy"))
    for ours, share in [("import distlab", 0.3), ("import distlab; distlab.virtual_devices", 0.7)]:
        with subtests.test(ours):
            assert report(code.format(code=ours))["imported"] == []
            assert least(code.format(code=ours)) < share * numpy


def test_a_program_that_runs_ranks_does_not_import_ipython():
    code = "import sys, distlab\ndistlab.run(int, 1)\nout['there'] = 'IPython' in sys.modules"
    assert not report(code)["there"]


def test_jax_has_exactly_the_devices_asked_for(jax, subtests):
    code = """
import distlab, jax, numpy
devices = distlab.virtual_devices({given}, "jax")
out["same list"] = devices == jax.devices()
out["kinds"] = [d.platform for d in devices]
out["again"] = distlab.virtual_devices({n}, "jax") == devices
x = jax.device_put(1.0, devices[-1]) + 1
out["runs on"] = x.devices() == {{devices[-1]}}
"""
    # A NumPy integer is an integer, too.
    for given, n, process in [("1", 1, None), ("numpy.int64(3)", 3, None), ("8", 8, jax)]:
        with subtests.test(given), contextlib.ExitStack() as stack:
            started = process or stack.enter_context(contextlib.closing(Interpreter()))
            out = started.run(code.format(given=given, n=n))
            assert out == {"same list": True, "kinds": ["cpu"] * n, "again": True, "runs on": True}


def test_jax_that_has_started_says_so_and_stays_usable(jax):
    out = jax.run("""
import jax
distlab.virtual_devices(8, "jax")
attempt("other", 4, "jax")
attempt("same", 8, "jax")
out["setting"] = jax.config.jax_num_cpu_devices
out["sum"] = float(jax.numpy.ones(4).sum())
""")
    kind, message = out["other"]
    assert kind == "RuntimeError"
    assert "JAX has already started with 8 CPU devices" in message
    assert "Call virtual_devices before anything else, at the start of the program" in message
    assert (out["same"], out["setting"], out["sum"]) == (8, 8, 4.0)


def test_jax_started_by_others_is_taken_as_it_is():
    flag = "--xla_force_host_platform_device_count=4"
    code = "import jax\njax.devices()\nattempt('same', 4, 'jax')\nattempt('other', 2, 'jax')"
    out = report(f"{STARTED}\n{code}", XLA_FLAGS=flag)
    assert out["same"] == 4
    assert "JAX has already started with 4 CPU devices" in out["other"][1]


def test_jax_without_its_accelerator_still_gets_virtual_devices():
    # The platform asked for has no hardware here; eight devices were asked for, so eight there are.
    out = report(f"{STARTED}\nattempt('n', 8, 'jax')", JAX_PLATFORMS="cuda,cpu")
    assert out["n"] == 8


def test_jax_may_run_far_ahead_of_its_virtual_devices(jax):
    # With a thread per device and no more, JAX 0.10.2 deadlocks here in fewer than 50 steps, and
    # aborts the process.
    out = jax.run("""
devices = distlab.virtual_devices(8, "jax")
import jax, numpy as np, os
from jax.sharding import Mesh, NamedSharding, PartitionSpec
mesh = Mesh(np.array(devices), ("data",))
x = jax.device_put(np.ones((512, 256), "float32"), NamedSharding(mesh, PartitionSpec("data")))
w = jax.device_put(np.eye(256, dtype="float32"), NamedSharding(mesh, PartitionSpec()))
@jax.jit
def step(w, x):
    return w - 1e-6 * jax.grad(lambda w: ((x @ w) ** 2).mean())(w)
for _ in range(200):
    w = step(w, x)
out["finite"] = bool(np.isfinite(np.asarray(w)).all())
out["left in the environment"] = [os.environ.get(n) for n in ("PJRT_NPROC", "XLA_FLAGS")]
""")
    assert out == {"finite": True, "left in the environment": [None, None]}


@pytest.mark.parametrize(
    "asked", ["", "backend_optimization_level=2", "cpu_use_fusion_emitters=true"]
)
def test_jax_compiles_quickly_unless_told_otherwise(tmp_path, asked):
    code = f"""
{STARTED}
distlab.virtual_devices(2, "jax")
import jax
out["sum"] = float(jax.jit(jax.numpy.sum)(jax.numpy.ones(3)))
"""
    flags = f"--xla_dump_to={tmp_path} {asked and f'--xla_{asked}'}"
    assert report(code, XLA_FLAGS=flags)["sum"] == 3
    (options,) = {path.read_text() for path in tmp_path.glob("*debug_options")}
    for ours in ("backend_optimization_level: 1", "cpu_use_fusion_emitters: false"):
        assert (f"xla_{ours}\n" in options) == (ours.split(":")[0] not in asked)


def test_ranks_with_virtual_devices_compile_as_quickly():
    def flags() -> str | None:
        return os.environ.get("XLA_FLAGS")

    assert distlab.run(flags, 1, "jax", devices_per_rank=2) == [
        "--xla_backend_optimization_level=1 --xla_cpu_use_fusion_emitters=false"
    ]
    assert distlab.run(flags, 1, "jax") == [None]


def test_tensorflow_has_exactly_the_devices_asked_for(tensorflow):
    assert tensorflow["names"] == [f"/device:CPU:{i}" for i in range(8)]
    assert tensorflow["same list"]
    assert tensorflow["again"]
    assert tensorflow["runs on"]


def test_tensorflow_that_has_started_says_so_and_stays_usable(plain_tensorflow):
    kind, message = plain_tensorflow["other"]
    assert kind == "RuntimeError"
    assert "TensorFlow has already started with 1 CPU device," in message
    assert "Call virtual_devices before anything else, at the start of the program" in message
    assert (plain_tensorflow["same"], plain_tensorflow["sum"]) == (1, 4.0)


def test_bad_arguments(subtests):
    for arguments, error, message in [
        ({"n": 0}, ValueError, "from 1 to 1,024, not 0"),
        ({"n": 10**9}, ValueError, "from 1 to 1,024"),
        ({"n": True}, TypeError, "must be an int, not True of type bool"),
        ({"n": 8.0}, TypeError, "must be an int, not 8.0 of type float"),
        ({"n": "8"}, TypeError, "must be an int, not '8' of type str"),
        ({"framework": "keras"}, ValueError, "Unknown framework 'keras': expected 'jax' or"),
        ({"framework": "JAX"}, ValueError, "Unknown framework 'JAX'"),
        ({"framework": "torch"}, ValueError, "one process per device"),
        ({"framework": None}, TypeError, "must be 'jax' or 'tensorflow', not None"),
        ({"accelerators": 1}, TypeError, "True or False, not 1"),
        ({"accelerators": None}, TypeError, "True or False, not None"),
    ]:
        with subtests.test(**arguments), pytest.raises(error, match=message):
            distlab.virtual_devices(**{"n": 8, "framework": "jax"} | arguments)


def test_a_framework_that_is_not_installed(tmp_path):
    # -S leaves out site-packages, so nothing is installed there but what the path names.
    (tmp_path / "msgspec").symlink_to(Path(msgspec.__file__).parent)
    code = f"""
import sys
from pathlib import Path
sys.path[:0] = [{str(Path(distlab.__file__).parents[1])!r}, {str(tmp_path)!r}]
import distlab
distlab.virtual_devices(8, "jax")
"""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ModuleNotFoundError: jax is not installed")
    assert "-m pip install jax" in last


def test_start_up_chatter_is_dropped_and_the_rest_is_not(tensorflow, plain_tensorflow):
    assert "absl::InitializeLog" in plain_tensorflow["said"]  # else this test shows nothing
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "-1":
        quiet = tensorflow
    else:
        code = 'import distlab; distlab.virtual_devices(8, "tensorflow")'
        quiet = report(code, CUDA_VISIBLE_DEVICES="-1")
    assert quiet["said"] == ""
    warned = python("""
import os, sys, warnings
from distlab import frameworks
with frameworks.without_chatter():
    os.write(2, b"I0000 00:00:1.5 1 port.cc:1] chatter\\n")
    os.write(2, b"W0000 00:00:1.5 1 port.cc:1] from C++\\n")
    os.write(2, b"no line end, \\xff not UTF-8")
    warnings.warn("from Python")
print("and after", file=sys.stderr)
""")
    assert "chatter" not in warned.stderr
    assert "from C++" in warned.stderr
    assert "no line end" in warned.stderr
    assert "from Python" in warned.stderr
    assert warned.stderr.endswith("and after\n")


def test_the_last_words_of_a_crash_get_through():
    done = python("""
import os
from distlab import frameworks
with frameworks.without_chatter():
    os.write(2, b"F0000 00:00:1.5 1 cpu.cc:1] no AVX here\\n")
    os.abort()
""")
    assert done.returncode < 0
    assert "no AVX here" in done.stderr


INTERRUPTED = """
import distlab, signal, sys
class Impatient:
    def find_spec(self, name, path=None, target=None):
        if name == "jax._src.api":
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Impatient())
try:
    distlab.virtual_devices(8, "jax")
except KeyboardInterrupt as error:
    print(error)
"""


def test_an_interrupted_import_says_what_to_do():
    done = python(INTERRUPTED)
    assert done.stdout == (
        "interrupted; jax is imported halfway and cannot be used: restart the kernel, "
        "or start Python again\n"
    )
    assert done.stderr == ""
