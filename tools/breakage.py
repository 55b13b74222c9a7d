"""One thing that is broken in a framework, as a program that shows it."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
HOMES = ("KERAS_HOME", "MPLCONFIGDIR", "TORCH_HOME")
"""Where programs keep their files, if not in the home folder."""
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
        code: The program. It prints WORKS once it is mended.
        environment: Variables it runs with.
    """

    what: str
    cure: str
    needs: tuple[str, ...]
    sign: str
    code: str
    environment: tuple[tuple[str, str], ...] = ()

    def applies(self) -> bool:
        """Whether this environment has the packages in the versions it is about."""
        for text in self.needs:
            requirement = Requirement(text)
            try:
                if not requirement.specifier.contains(version(requirement.name)):
                    return False
            except PackageNotFoundError:
                return False
        return True

    def state(self) -> str:
        """Run the program: `"broken"`, `"mended"`, or what it printed if that is neither."""
        # No TF_CONFIG, PJRT_NPROC or the like of the caller's own.
        kept = ("PATH", "HOME", "TMPDIR", "PYTHONPATH", "LD_LIBRARY_PATH", *HOMES)
        environment = {name: os.environ[name] for name in kept if name in os.environ}
        environment |= {"CUDA_VISIBLE_DEVICES": "-1", "JAX_PLATFORMS": "cpu"}
        ran = subprocess.run(
            [sys.executable, "-c", self.code],
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
