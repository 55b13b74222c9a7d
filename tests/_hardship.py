"""A kernel under hard conditions: a small disk, few processes, another clock."""

import os
import subprocess
from pathlib import Path

import pytest
from _processes import Kernel, family, wait_gone

ROOT = os.geteuid() == 0
STRANGER = 65534
"""A user who owns nothing here."""

RUN = "attempt(lambda: distlab.run(lambda: 5, 2, quiet=True))"
WELL = ["ok", [5, 5]]
"""What a kernel says after RUN: it is still of use."""


def ended(kernel: Kernel, place: Path | None = None) -> None:
    """Let a kernel end by itself; nothing of it may be left, nor anything in a directory."""
    below = family(kernel.process.pid)
    kernel.tell()
    assert kernel.process.wait(20) == 0, kernel.process.stderr.read()
    assert wait_gone(below, 10) == []
    if place is not None:
        assert list(place.iterdir()) == []


def _possible(wrapper: list[str]) -> list[str]:
    """The command, or a skipped test where this system does not allow it."""
    tried = subprocess.run([*wrapper, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"{' '.join(wrapper[:3])}: {tried.stderr.strip()}")
    return wrapper


def small_disk(place: Path, size: str) -> list[str]:
    """What gives a kernel a disk of `size` at `place`, which nobody else sees."""
    user = [] if ROOT else ["--user", "--map-root-user"]
    mount = f'mount -t tmpfs -o size={size} none "$0" && exec "$@"'
    return _possible(["unshare", *user, "--mount", "sh", "-c", mount, str(place)])


def counted_alone() -> list[str]:
    """What starts a kernel whose user has no other processes, so that a limit on them is exact.

    Root is not limited at all: there it becomes another user, who may still read what is root's.
    """
    if not ROOT:
        return _possible(["unshare", "--user", "--map-current-user"])
    user = str(60_000 + os.getpid() % 5_000)
    capabilities = [
        f"--{kind}=-all,+dac_override" for kind in ("inh-caps", "ambient-caps", "bounding-set")
    ]
    return _possible(
        ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *capabilities]
    )


def other_clock(seconds: int) -> list[str]:
    """What starts a kernel whose monotonic clock is `seconds` ahead of that of others."""
    user = [] if ROOT else ["--user", "--map-root-user"]
    clock = ["--time", f"--monotonic={seconds}", "--fork", "--kill-child"]
    return _possible(["unshare", *user, *clock])
