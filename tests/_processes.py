"""A kernel of one's own to kill, and the means to see that nothing of it is left."""

import importlib.util
import json
import os
import select
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterable, Sequence
from typing import Any

import psutil
import pytest


def require(framework: str) -> None:
    """Skip the test where a framework is missing, without importing it here where it is not."""
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")


def can(*command: str) -> bool:
    """Whether this user may run `true` by a command."""
    if shutil.which(command[0]) is None:
        return False
    return subprocess.run([*command, "true"], capture_output=True).returncode == 0


class Kernel:
    """A process that uses distlab, as a notebook's kernel does, and reports JSON lines.

    The code has a function `say(value)`, which sends a value to the test, `attempt(act)`, which
    says what comes of a call, and `hear()`, which waits for a line from the test.

    Args:
        code: What it runs, in pieces.
        by: A command that starts it, to which its own is added.
        environment: Variables to set.
    """

    PREAMBLE = """
import json, os, signal, sys, time
import distlab
def say(value):
    print("SAY" + json.dumps(value), flush=True)
def hear():
    return sys.stdin.readline().strip()
def attempt(act):
    try:
        said = ["ok", act()]
    except Exception as error:
        said = [type(error).__name__, str(error)]
    say(said)
def pids(job):
    return [s.pid for s in job.status]
def say_when_waiting(value):  # once the main thread is inside Job.wait
    import threading
    main = threading.main_thread().ident
    def watch():
        names = []
        while "wait_for" not in names:
            frame, names = sys._current_frames()[main], []
            while frame is not None:
                names.append(frame.f_code.co_name)
                frame = frame.f_back
        say(value)
    threading.Thread(target=watch, daemon=True).start()
def supervisors():
    from distlab.launching.kernel import client
    return [c.pid for c in client._clients.values()]
"""

    def __init__(self, *code: str, by: Sequence[str] = (), **environment: str) -> None:
        program = "\n".join([self.PREAMBLE, *map(textwrap.dedent, code)])
        self.process = subprocess.Popen(
            [*by, sys.executable, "-u", "-c", program],
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def heard(self) -> Any:
        """The next value the kernel says."""
        for line in self.process.stdout:
            if line.startswith("SAY"):
                return json.loads(line[3:])
        raise AssertionError(f"the kernel ended: {self.process.stderr.read()}")

    def tell(self, line: str = "") -> None:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def __enter__(self) -> "Kernel":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


def wait_gone(pids: Iterable[int], timeout: float) -> list[int]:
    """Wait until processes have ended; return those that have not after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    left = []
    for pid in pids:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        ready, _, _ = select.select([handle], [], [], max(0.0, deadline - time.monotonic()))
        os.close(handle)
        if not ready and psutil.pid_exists(pid):
            left.append(pid)
    return left


def family(pid: int) -> list[int]:
    """All descendants of a process."""
    return [child.pid for child in psutil.Process(pid).children(recursive=True)]
