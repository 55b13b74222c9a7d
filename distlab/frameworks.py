"""A framework by name: imported without chatter, or a clear error; and JAX shown its group."""

import contextlib
import functools
import gc
import importlib
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from distlab.errors import closest, in_one_line, of_type

FRAMEWORKS = ("jax", "tensorflow", "torch")
_ALSO_CALLED = {"pt": "torch", "tf": "tensorflow"}

# Said at every start, on every healthy machine, or by an error that follows. Anything else, warning
# or error, is passed on.
_CHATTER: tuple[str, ...] = (
    r"^WARNING: All log messages before absl::InitializeLog\(\) is called are written to STDERR",
    r"^I\d{4} ",  # absl's INFO lines
    r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: I ",  # TensorFlow's own INFO lines
    r"^To enable the following instructions: .* rebuild TensorFlow",
    r"Unable to register cu(FFT|DNN|BLAS) factory",
    r"computation placer already registered",
    r"^/job:\w+/replica:\d+/task:\d+$",  # those TensorFlow's group still waits for
    r"Input of GeneratorDatasetOp::Dataset will not be optimized",  # every fit with NumPy data
    # Two threads that say it at once break one another's lines.
    r"^(\[Gloo\] Rank )+(\d+ is connected to \d+ peer ranks.*)?$",
    r"^(\[Gloo\] Rank )*\d+ is connected to \d+ peer ranks",
    # It is for PyTorch's own logs; a machine without a network may know no name for 127.0.0.1.
    r"\[c10d\] The hostname of the client socket cannot be retrieved",
    # On the way to an error that says the same: "Distributed package doesn't have NCCL built in".
    r"UserWarning: Attempted to get default timeout for nccl backend, but NCCL support is not comp",
    r"^  timeout = _get_default_timeout\(backend\)$",
)
# A failure where there is an NVIDIA GPU; what every machine without one has to say.
_CHATTER_WITHOUT_GPU = (
    r"failed call to cuInit",
    r"Could not find cuda drivers on your machine",
)
_LONGEST_CHATTER = 10_000
"""Characters; what is longer is no chatter."""
_NVIDIA_DEVICES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg")

_FILTER = """
import re, sys
chatter = re.compile(sys.argv[1].encode())
for line in sys.stdin.buffer:
    if not chatter.search(line):
        sys.stderr.buffer.write(line)
        sys.stderr.buffer.flush()
"""


def check_framework(framework: object, known: tuple[str, ...] = FRAMEWORKS) -> str:
    """Return `framework` if it is one of `known`, as `check_name` does, and installed here.

    Raises:
        ModuleNotFoundError: If it is not installed.
    """
    framework = check_name(framework, known)
    if framework not in sys.modules and importlib.util.find_spec(framework) is None:
        raise ModuleNotFoundError(
            f"{framework} is not installed for {sys.executable}. "
            f"Install it there with: {Path(sys.executable).name} -m pip install {framework}",
            name=framework,
        )
    return framework


def check_name(framework: object, known: tuple[str, ...] = FRAMEWORKS) -> str:
    """Return `framework` if it is one of `known`, installed or not.

    Raises:
        TypeError: If it is not a string.
        ValueError: If it is not one of `known`.
    """
    expected = " or ".join(repr(name) for name in known)
    if not isinstance(framework, str):
        hint = " A function's arguments go into args." * isinstance(framework, tuple | list)
        raise TypeError(f"framework must be {expected}, not {of_type(framework)}.{hint}")
    if framework in known:
        return framework
    near = _ALSO_CALLED.get(framework.lower()) or closest(framework, known)
    advice = f"did you mean {near!r}?" if near in known else f"expected {expected}."
    advice += " Name the one that Keras computes with." if framework.lower() == "keras" else ""
    raise ValueError(f"Unknown framework {framework!r}: {advice}")


def other_backend(framework: str) -> str:
    """What to do where Keras is imported and computes with another framework; else nothing."""
    ask = getattr(getattr(sys.modules.get("keras"), "config", None), "backend", lambda: framework)
    if (backend := ask()) == framework:
        return ""
    return (
        f'it runs on {backend}. Set os.environ["KERAS_BACKEND"] = "{framework}" before Keras is '
        "imported: restart the kernel, or start Python again"
    )


def load(framework: str) -> ModuleType:
    """Import an installed framework without its start-up chatter."""
    if framework in sys.modules:
        return sys.modules[framework]
    try:
        with without_chatter(), without_collections():
            return importlib.import_module(framework)
    except KeyboardInterrupt:  # Python keeps what was imported until then
        raise in_one_line(
            f"interrupted; {framework} is imported halfway and cannot be used: restart the kernel, "
            "or start Python again"
        ) from None


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Keep Python from looking for garbage while the block runs.

    An import leaves little of it, and the search takes a quarter of the time of TensorFlow's.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextlib.contextmanager
def without_chatter() -> Iterator[None]:
    """Keep frameworks' start-up chatter off standard error while the block runs.

    Frameworks write it from C++ to file descriptor 2, where Python cannot filter it. For the
    length of the block that descriptor leads to a child process that drops the known lines and
    passes all others on. A child, not a thread: the last words of a crash must get through.
    """
    try:
        stderr = os.dup(2)
    except OSError:  # a process without a standard error has no chatter either
        yield
        return
    command = [sys.executable, "-I", "-S", "-c", _FILTER, _pattern()]
    # In a group of its own: it is not what somebody wants to interrupt who presses Ctrl-C.
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, process_group=0
    )
    assert child.stdin is not None
    _flush_stderr()
    os.dup2(child.stdin.fileno(), 2)
    child.stdin.close()
    try:
        yield
    finally:
        _flush_stderr()
        os.dup2(stderr, 2)
        os.close(stderr)
        # It ends when the last copy of the pipe is closed. A process that the block left behind
        # may hold one; its output goes on through the filter, and we do not wait for it.
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=5)


def is_chatter(line: str) -> bool:
    """Whether a line of output is one that every healthy start of a framework brings."""
    # A search takes a tenth of a second per megabyte.
    return len(line) <= _LONGEST_CHATTER and re.search(_pattern(), line) is not None


@functools.cache
def _pattern() -> str:
    patterns = _CHATTER
    if not any(Path(device).exists() for device in _NVIDIA_DEVICES):
        patterns += _CHATTER_WITHOUT_GPU
    return "|".join(f"(?:{pattern})" for pattern in patterns)


def _flush_stderr() -> None:
    if sys.stderr is not None:
        sys.stderr.flush()


def show_jax_its_group(listen: str | None) -> None:
    """Have `jax.distributed.initialize()` find this process's place without arguments.

    JAX asks each known subclass of its `ClusterEnv`, such as that of Slurm, whether it recognises
    the environment. The class is not exported; without it the arguments are in
    `JAX_COORDINATOR_ADDRESS`, `JAX_NUM_PROCESSES` and `JAX_PROCESS_ID`, which ours reads.

    Args:
        listen: The address on which JAX's CPU collectives listen. By themselves, and with None,
            they listen where the machine's host name leads, which may be another network, this
            machine alone, or nowhere; JAX has no setting for it.
    """
    from jax._src import clusters
    from jaxlib import _jax

    known = clusters.ClusterEnv._cluster_types
    if known[0].name == "distlab":
        return

    class DistlabCluster(clusters.ClusterEnv):  # type: ignore[misc]
        name = "distlab"

        @classmethod
        def is_env_present(cls) -> bool:
            return "JAX_PROCESS_ID" in os.environ

        @classmethod
        def get_coordinator_address(cls, **_: object) -> str:
            return os.environ["JAX_COORDINATOR_ADDRESS"]

        @classmethod
        def get_process_count(cls) -> int:
            return int(os.environ["JAX_NUM_PROCESSES"])

        @classmethod
        def get_process_id(cls) -> int:
            return int(os.environ["JAX_PROCESS_ID"])

    # First in line: a job inside a Slurm allocation is still distlab's own group.
    known.insert(0, known.pop())
    if listen is not None:
        make = _jax.make_gloo_tcp_collectives
        _jax.make_gloo_tcp_collectives = functools.partial(make, hostname=listen)
