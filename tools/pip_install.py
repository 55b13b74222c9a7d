"""Runs pip inside the environment: short progress, a plain word about what went wrong."""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

# What pip says on the way; everything else it says is worth showing when it fails.
ROUTINE = re.compile(
    r"\s*(Collecting|Downloading|Using cached|Looking in|Obtaining|Processing|Requirement already"
    r"|Preparing|Checking|Building|Created|Stored|Getting|Installing|Attempting|Found existing"
    r"|Uninstalling|Successfully|Progress|Link requires|Saved|Resuming|WARNING: Location)\b"
)
LARGE = re.compile(r"\s*(?:Downloading|Using cached) (\S+?)-(\d\S*?)-\S+ \(([\d.]+) (MB|GB)\)")
FULL = "The disk is full. Free some space, then run the same command again."
CAUSES = (
    (r"No space left on device|Errno 28", FULL),
    (
        r"CERTIFICATE_VERIFY_FAILED",
        "The connection's certificate is not trusted. Tell pip about yours (PIP_CERT), then run the"
        " same command again.",
    ),
    (
        r"NewConnectionError|NameResolution|name resolution|ConnectTimeout|ReadTimeout|ProxyError"
        r"|Network is unreachable|Connection refused|ConnectionError|incomplete-download",
        "No package index answered. Connect to the network and run the same command again: what was"
        " downloaded is kept, and later runs need no network.",
    ),
)
NO_BUILD = (
    "Pip found no build of a package for this machine and this Python. README.md says which"
    " machines have them all; pip's settings may also name the wrong index."
)
OTHERWISE = (
    "Pip failed, and its own words are above. Mend the cause, then run the same command again."
)


class InstallError(Exception):
    """The environment could not be made; the message says what to do."""


def settings(cache: Path) -> dict[str, str]:
    """Returns the environment variables for making an environment.

    The user's pip configuration stays in force: indexes, certificates, proxies. Only what would
    send packages elsewhere is dropped.

    Args:
        cache: The project's folder for what is kept until the installation succeeded.
    """
    variables = dict(os.environ)
    for name in ("PYTHONHOME", "PYTHONPATH", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_DRY_RUN"):
        variables.pop(name, None)
    temporary = cache / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    variables.update(
        PIP_QUIET="0",
        PIP_REQUIRE_VIRTUALENV="0",
        PIP_USER="0",
        PIP_DISABLE_PIP_VERSION_CHECK="1",
        PYTHONUNBUFFERED="1",
        TMPDIR=str(temporary),
    )
    # pip asks rustc for its version, which makes rustup write to the user's home.
    variables.setdefault("RUSTUP_HOME", str(temporary / "rustup"))
    return variables


def explain(lines: list[str]) -> tuple[list[str], str]:
    """Returns what is worth showing of a failed pip's output, and what to do about it."""
    for pattern, advice in CAUSES:
        if telling := [line for line in lines if re.search(pattern, line)]:
            return telling[-1:], advice  # What follows from it only leads astray.
    telling = [line for line in lines if line.strip() and not ROUTINE.match(line)]
    unbuilt = any("no matching distribution" in line.lower() for line in lines)
    return telling[-30:], NO_BUILD if unbuilt else OTHERWISE


def show(line: str) -> None:
    """Shows one line of progress: in place on a terminal, otherwise as a line of its own."""
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns - 1
        print(f"\r\033[K{line[:width]}", end="", flush=True)
    else:
        print(line, flush=True)


class Pip:
    """The environment's pip.

    Attributes:
        python: The interpreter of the environment.
        cache: The project's folder for what is kept until the installation succeeded.
        variables: Environment variables, from `settings`, and where pip caches what it downloads:
            in the project, unless the user's configuration names a place.
        keep_open: File descriptors that pip inherits: the lock stays held while pip lives, even
            when this process is killed.
        before_writing: Called when pip has everything it needs and begins to change the
            environment.
    """

    def __init__(
        self,
        python: Path,
        cache: Path,
        keep_open: Sequence[int],
        before_writing: Callable[[], object],
    ) -> None:
        self.python = python
        self.cache = cache
        self.variables = settings(cache)
        self.keep_open = keep_open
        self.before_writing = before_writing
        command = [str(python), "-m", "pip", "config", "list"]
        configured = subprocess.run(
            command, env=self.variables, capture_output=True, text=True, check=False
        ).stdout
        if not re.search(r"\.(no-)?cache-dir=", configured):
            self.variables["PIP_CACHE_DIR"] = str(cache / "pip")

    def install(self, arguments: Sequence[str]) -> None:
        """Runs `pip install`.

        Raises:
            InstallError: pip failed.
        """
        with subprocess.Popen(
            [self.python, "-m", "pip", "install", "--no-input", *arguments],
            env=self.variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            pass_fds=self.keep_open,
        ) as process:
            try:
                lines = self.follow(process)
            except BaseException:
                process.kill()
                raise
        if process.returncode:
            telling, advice = explain(lines)
            # pip takes a write that found no room for a broken connection.
            if shutil.disk_usage(self.cache).free < 10**9:
                advice = FULL
            print("\n".join(telling), file=sys.stderr)
            raise InstallError(advice)

    def follow(self, process: subprocess.Popen[str]) -> list[str]:
        """Shows pip's progress in short and returns all that it printed."""
        lines: list[str] = []
        downloading, percent = "", -1
        terminal = sys.stdout.isatty()
        for raw in process.stdout or ():
            line = raw.rstrip()
            if progress := re.fullmatch(r"Progress (\d+) of (\d+)", line):
                now = 100 * int(progress[1]) // (int(progress[2]) or 1)
                if terminal and downloading and now != percent:
                    percent = now
                    show(f"  {downloading}: {percent} %")
                continue
            lines.append(line)
            if large := LARGE.match(line):
                downloading = f"{large[1]} {large[2]}, {large[3]} {large[4]}"
                if terminal or large[4] == "GB" or float(large[3]) > 50:
                    show(f"  {downloading}")
            elif line.startswith("WARNING: Retrying"):
                show("  no answer from the network, pip tries again")
            elif line.startswith("Installing collected packages:"):
                self.before_writing()
                show(f"  unpacking packages: {line.count(chr(44)) + 1}")
        if terminal:
            print("\r\033[K", end="", flush=True)
        return lines

    def takes_cuda(self, torch: str) -> bool:
        """Whether pip would fetch the CUDA build of torch for a machine without NVIDIA GPU.

        Args:
            torch: The pinned requirement, `torch==...`.
        """
        if platform.system() != "Linux" or shutil.which("nvidia-smi"):
            return False
        if Path("/dev/dxg").exists() or any(Path("/dev").glob("nvidia*")):
            return False
        options = ["--dry-run", "--no-deps", "--ignore-installed", "--quiet", "--report", "-"]
        asked = subprocess.run(
            [self.python, "-m", "pip", "install", *options, torch],
            env=self.variables,
            capture_output=True,
            text=True,
            check=False,
        )
        if asked.returncode:
            return False  # The installation itself will meet the same error, and show it.
        needed = json.loads(asked.stdout)["install"][0]["metadata"].get("requires_dist", [])
        return any(re.match(r"nvidia|cuda|triton", requirement) for requirement in needed)
