"""What is broken in the frameworks: a lesson warns of each, a program in tests/broken shows it.

When one is mended, its program says so, the test about it fails, and the lesson's warning can go.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from packaging.requirements import Requirement
from run import HOMES

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "tests" / "broken"
TIMEOUT = 240
"""Seconds a program may take. The slowest takes 20 on two quiet cores."""


@dataclass(frozen=True)
class Breakage:
    """One thing that does not work.

    Attributes:
        what: What is broken, as the table says it.
        cure: What the lessons do instead.
        needs: The packages it is about, with the versions that have it, as requirements.
        sign: What the program prints while it is broken: a regular expression.
        program: Its file in tests/broken. It prints WORKS once the thing is mended.
        environment: Variables it runs with.
    """

    what: str
    cure: str
    needs: tuple[str, ...]
    sign: str
    program: str
    environment: tuple[tuple[str, str], ...] = ()

    def applies(self) -> bool:
        """Whether this environment has the packages in the versions it is about."""
        needs = map(Requirement, self.needs)
        try:
            return all(need.specifier.contains(version(need.name)) for need in needs)
        except PackageNotFoundError:
            return False

    def state(self) -> str:
        """Run the program: `"broken"`, `"mended"`, or what it printed if that is neither."""
        # No TF_CONFIG, PJRT_NPROC or the like of the caller's own.
        kept = ("PATH", "HOME", "TMPDIR", "PYTHONPATH", "LD_LIBRARY_PATH", *HOMES)
        environment = {name: os.environ[name] for name in kept if name in os.environ}
        environment |= {"CUDA_VISIBLE_DEVICES": "-1", "JAX_PLATFORMS": "cpu"}
        ran = subprocess.run(
            [sys.executable, "-c", (PROGRAMS / f"{self.program}.py").read_text()],
            env=environment | dict(self.environment),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="backslashreplace",
            timeout=TIMEOUT,
            check=False,
        )
        if re.search(r"^WORKS$", ran.stdout, re.MULTILINE):
            return "mended"
        broken = re.search(self.sign, ran.stdout, re.MULTILINE)
        return "broken" if broken else ran.stdout[-3000:]


KERAS_ON_JAX = (("KERAS_BACKEND", "jax"),)
KERAS_ON_TENSORFLOW = (("KERAS_BACKEND", "tensorflow"),)
BREAKAGES = [
    Breakage(
        "`fit` of Keras 3 under `MultiWorkerMirroredStrategy`",
        "tf_keras, or a loop of one's own",
        ("keras>=3", "tensorflow>=2.20"),
        r"convert a value \(PerReplica:",
        "fit_on_workers",
        KERAS_ON_TENSORFLOW,
    ),
    Breakage(
        "DTensor layouts in Keras 3: a layer takes no `kernel_layout`",
        "tf_keras",
        ("keras>=3", "tensorflow>=2.20"),
        "Unrecognized keyword arguments passed to Dense: {'kernel_layout'",
        "layouts_in_keras_3",
        KERAS_ON_TENSORFLOW,
    ),
    Breakage(
        "`DataParallel` with a mesh of two axes fails inside Keras' own warning",
        "a mesh of one axis",
        ("keras>=3", "jax"),
        "TypeError: category must be a Warning subclass",
        "mesh_of_two_axes",
        KERAS_ON_JAX,
    ),
    Breakage(
        "JAX on virtual CPU devices hangs, then aborts, when a program runs far ahead",
        "`distlab.virtual_devices` and distlab's ranks set `PJRT_NPROC`",
        ("jax>=0.7",),
        "Termination timeout for `all reduce",
        "jax_far_ahead",
    ),
    Breakage(
        "a compiled `fit` on one CPU device gives different losses than eager mode (wide layers)",
        "128 units, or a newer JAX",
        ("keras>=3", "jax<0.8"),
        "^losses differ$",
        "compiled_fit",
        KERAS_ON_JAX,
    ),
    Breakage(
        "a second `MirroredStrategy` in a process, with CPU devices, stops at its first step",
        "`cross_device_ops=tf.distribute.ReductionToOneDevice()`",
        ("tensorflow>=2.20",),
        "^the second one failed$",
        "second_mirrored_strategy",
    ),
    Breakage(
        "`torch.optim.Muon(nesterov=False)` overwrites its own momentum if weights are `bfloat16`",
        "`nesterov=True`, the default, or torch 2.15",
        ("torch>=2.11,<2.15",),
        "^momentum 0.25$",
        "muon_momentum",
    ),
    Breakage(
        "`clip_grad_norm_` leaves gradients of DTensors that are `Partial` as they are",
        "`foreach=False`, or torch 2.13",
        ("torch>=2.11,<2.12",),
        "^gradient 3.0$",
        "clipped_partial",
    ),
]
