"""The variables that ranks start from, and those that make a supervisor another one."""

import re
from collections.abc import Mapping

from distlab.launching.protocol.variables import SCHEDULED

# Read when a framework is imported, so that a rank forked later cannot change them any more.
_READ_AT_IMPORT = re.compile(
    r"(KERAS|TF|XLA|JAX|TORCH|PYTORCH|OMP|KMP|GOMP|MKL|OPENBLAS|CUDA|NCCL|GRPC|LD|PYTHON)_?.*"
)
# Libraries set these for themselves: scikit-learn the first two when it is imported, PyTorch the
# third when its first optimizer is made, TensorFlow the fourth at every import and the next two for
# a ParameterServerStrategy, Ray the last. None of them changes what a supervisor imports.
_IRRELEVANT = (
    "KMP_DUPLICATE_LIB_OK",
    "KMP_INIT_AT_FORK",
    "TORCHINDUCTOR_CACHE_DIR",
    "TF2_BEHAVIOR",
    "TF_ENABLE_EAGER_CLIENT_STREAMING_ENQUEUE",
    "TF_PS_DISABLE_ASYNC_EXECUTOR_GLOBALLY",
    "PYTHONBREAKPOINT",
)
# JAX and Keras set these two for themselves; only TensorFlow reads them.
_TENSORFLOWS = ("TF_CPP_MIN_LOG_LEVEL", "TF_FORCE_GPU_ALLOW_GROWTH")


def environments(
    base: Mapping[str, str],
    framework: str | None,
    overrides: dict[str, str],
) -> tuple[dict[str, str], dict[str, str]]:
    """What ranks start from, before `overrides`, and what their supervisor starts with.

    This process may run Keras on another framework than its ranks do. Where it has chosen one at
    all, ranks are taken to use Keras too, and the supervisor imports it.
    """
    environment = {k: v for k, v in base.items() if not SCHEDULED.fullmatch(k)}
    supervisor = environment | overrides
    if framework is not None and "KERAS_BACKEND" not in overrides:
        environment["KERAS_BACKEND"] = framework
        if "KERAS_BACKEND" in supervisor:
            supervisor["KERAS_BACKEND"] = framework
    return environment, supervisor


def supervisors_own(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment for a supervisor: it imports frameworks, and initialises nothing."""
    own = dict(environment)
    # BLAS libraries start a thread per core when they are loaded; ranks get theirs later.
    own.setdefault("OPENBLAS_NUM_THREADS", "1")
    own["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # look for GPUs without starting CUDA
    return own


def read_at_import(environment: Mapping[str, str], framework: str | None) -> dict[str, str]:
    """The variables by which one supervisor's import of a framework differs from another's."""
    ignored = _IRRELEVANT if framework == "tensorflow" else _IRRELEVANT + _TENSORFLOWS
    return {
        name: value
        for name, value in environment.items()
        if _READ_AT_IMPORT.fullmatch(name) and name not in ignored
    }
