"""Virtual CPU devices for JAX and TensorFlow; real accelerators when there are enough."""

import importlib.util
import os
import subprocess
import sys
import warnings
from types import ModuleType
from typing import Any

from distlab import frameworks
from distlab.errors import brief, check_count, check_flag

MAX_DEVICES = 1024
"""The most virtual devices handed out: JAX starts 1,000 in a second and 10,000 in minutes."""


@brief
def virtual_devices(n: int, framework: str = "", *, accelerators: bool = True) -> list[Any]:
    """Configure and return `n` devices of `framework`, virtual CPU devices as a rule.

    Call it before anything else has made the framework start: both frameworks fix the number of
    devices at their first operation. On a machine with `n` or more real accelerators the first
    `n` of those are returned instead, and the CPU is left as it is; with fewer, accelerators are
    hidden from the framework so that nothing lands on them by default. JAX runs virtual devices
    with two threads each (`PJRT_NPROC`), since with fewer it can hang, and compiles for them with
    less optimization, in a third of the time, unless `XLA_FLAGS` says otherwise.

    Args:
        n: How many devices, from 1 to 1,024.
        framework: `"jax"` or `"tensorflow"`. PyTorch has no virtual devices: it uses one process
            per device.
        accelerators: Whether to take real ones when there are enough. `JAX_PLATFORMS=cpu` and
            `CUDA_VISIBLE_DEVICES=-1` hide them as they always do.

    Returns:
        A list of `n` devices: `jax.Device` for JAX, `tf.config.LogicalDevice` for TensorFlow.
        Calling again with the same arguments returns the same devices.

    Raises:
        TypeError: If `n` is not an integer (a bool is not), or `framework` is not given or not a
            string, or `accelerators` is not a bool.
        ValueError: If `n` is below 1 or above 1,024, or the framework is not one of the two.
        ModuleNotFoundError: If the framework is not installed.
        RuntimeError: If the framework has already started with other devices.

    Example:
        >>> import distlab
        >>> len(distlab.virtual_devices(8, "jax"))
        8
    """
    n = check_count(n, "n", 1, 'virtual_devices(8, "jax")', MAX_DEVICES)
    if framework == "":
        raise TypeError(f'Whose devices? Say virtual_devices({n}, "jax"), or "tensorflow".')
    check_flag(accelerators, "accelerators")
    if framework in ("torch", "pytorch", "PyTorch"):
        raise ValueError(
            "PyTorch has no virtual devices: it runs one process per device. "
            'Expected "jax" or "tensorflow".'
        )
    frameworks.check_framework(framework, ("jax", "tensorflow"))
    if backend := frameworks.other_backend(framework):
        warnings.warn(f"Keras will not use these devices: {backend}.", stacklevel=3)
    module = frameworks.load(framework)
    with frameworks.without_chatter():
        if framework == "jax":
            return _jax_devices(module, n, accelerators)
        return _tensorflow_devices(module, n, accelerators)


def _jax_devices(jax: ModuleType, n: int, accelerators: bool) -> list[Any]:
    if _jax_started():
        return _pick(jax.local_devices(), n, accelerators, "JAX")
    if accelerators and _count_jax_accelerators(jax) >= n:
        return list(jax.local_devices()[:n])
    variables = jax_variables(n)
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        jax.config.update("jax_num_cpu_devices", n)
        jax.config.update("jax_platforms", "cpu")
        return list(jax.local_devices())
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def jax_variables(n: int) -> dict[str, str]:
    """What the environment has to say when JAX starts with `n` virtual devices.

    `PJRT_NPROC`: JAX launches and executes on one pool of threads, by default one per device or
    core, whichever is more. A program that runs more than 32 steps ahead fills the pool with
    launches that wait for an execution, for which no thread is left; JAX 0.10.2 then aborts after
    40 s. With two threads per device there is always one to execute.

    `XLA_FLAGS`: LLVM optimizes at level 1, and XLA's older emitters write the loops, unless these
    flags are set there. Most of a lesson's time was compiling (JAX 0.10.2); steps take no longer.
    """
    from importlib.metadata import version  # a third of the time of `import distlab`

    wanted = os.environ.get("PJRT_NPROC") or os.environ.get("NPROC") or ""
    asked = int(wanted) if wanted.isdecimal() else os.cpu_count() or 1
    flags = os.environ.get("XLA_FLAGS", "")
    wishes = {"--xla_backend_optimization_level": "1"}
    major, minor, *_ = version("jax").split(".")
    if (int(major), int(minor)) < (0, 11):  # XLA ends a process that sets a flag it doesn't know
        wishes["--xla_cpu_use_fusion_emitters"] = "false"
    for flag, value in wishes.items():
        if flag not in flags:
            flags = f"{flags} {flag}={value}".lstrip()
    return {"PJRT_NPROC": str(max(2 * n, asked)), "XLA_FLAGS": flags}


def _jax_started() -> bool:
    from jax._src import xla_bridge  # JAX has no public way to ask

    return bool(xla_bridge.backends_are_initialized())


def _count_jax_accelerators(jax: ModuleType) -> int:
    """Accelerators JAX would find, counted without starting JAX in this process."""
    platforms = jax.config.jax_platforms
    if platforms and set(platforms.split(",")) == {"cpu"}:
        return 0
    if not _jax_plugins():
        return 0
    code = "import jax; print(sum(d.platform != 'cpu' for d in jax.devices()))"
    environment = dict(os.environ)
    if platforms:
        environment["JAX_PLATFORMS"] = platforms
    # The count is wanted, not the memory: the pool JAX takes by default may not be free.
    environment["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    probe = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    # A plugin whose hardware is missing, or fails to start, is no accelerator.
    return int(probe.stdout.split()[-1]) if probe.returncode == 0 else 0


def _jax_plugins() -> bool:
    """Whether anything is installed through which JAX could reach an accelerator."""
    if importlib.util.find_spec("libtpu") is not None:
        return True
    from importlib.metadata import entry_points

    return bool(entry_points(group="jax_plugins"))


def _tensorflow_devices(tf: ModuleType, n: int, accelerators: bool) -> list[Any]:
    gpus = tf.config.get_visible_devices("GPU")
    if accelerators and len(gpus) >= n:
        return list(tf.config.list_logical_devices("GPU")[:n])
    try:
        split_cpu(tf, n)
    except RuntimeError:  # TensorFlow has started
        devices = [d for d in tf.config.list_logical_devices() if d.device_type in ("CPU", "GPU")]
        return _pick(devices, n, accelerators, "TensorFlow")
    return list(tf.config.list_logical_devices("CPU"))


def split_cpu(tf: ModuleType, n: int) -> None:
    """Have TensorFlow present the CPU as `n` devices and no GPU, without starting it."""
    (cpu,) = tf.config.list_physical_devices("CPU")
    one = tf.config.LogicalDeviceConfiguration()
    tf.config.set_logical_device_configuration(cpu, [one] * n)
    tf.config.set_visible_devices([], "GPU")


def _pick(devices: list[Any], n: int, accelerators: bool, framework: str) -> list[Any]:
    """Choose `n` devices of a framework that has started, by the rule of `virtual_devices`."""
    cpus = [d for d in devices if _kind(d) == "cpu"]
    real = [d for d in devices if _kind(d) != "cpu"]
    if len(real) >= n and accelerators:
        return real[:n]
    if len(cpus) == n:
        return cpus
    there = " and ".join(
        f"{len(group)} {_kind(group[0]).upper()} device{'s' * (len(group) > 1)}"
        for group in (real, cpus)
        if group
    )
    raise RuntimeError(
        f"{framework} has already started with {there}, so it cannot have {n}: "
        "it fixes its devices at its first operation. Call virtual_devices before anything else, "
        "at the start of the program or in a kernel that was restarted."
    )


def _kind(device: Any) -> str:
    return str(getattr(device, "platform", None) or device.device_type).lower()
