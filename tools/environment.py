"""Makes and keeps the environment: `.venv`, with pip, from the pins in `constraints.txt`."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from http.client import HTTPException
from pathlib import Path
from urllib.request import urlopen

if sys.platform != "win32":
    import fcntl

ROOT = Path(__file__).resolve().parent.parent
FOLDER, CACHE, PINS = ROOT / ".venv", ROOT / ".cache", ROOT / "constraints.txt"
PYTHON = FOLDER / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
STAMP = FOLDER / "distlab-environment.json"
"""What it was made from; empty while pip writes, so that what was cut short is made again."""
CPU_TORCH = "https://download.pytorch.org/whl/cpu"
"""The index of PyTorch's builds without CUDA, which are 2.5 GB smaller."""
ELSEWHERE = ("PYTHON", "PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT")
"""Variables that would send packages elsewhere. The user's other settings of pip stay in force."""
FAILED = """\
failed, and its own words are above. Mend the cause (network, disk, pip's settings), then run the
same command again: what was downloaded is kept. See docs/machines.md for what each machine has."""


def outdated() -> tuple[str, dict[str, str]]:
    """Returns why `.venv` has to be made or updated, "" if it has not, and what from."""
    digest = hashlib.sha256((ROOT / "pyproject.toml").read_bytes() + PINS.read_bytes())
    python = f"Python {sys.version_info[0]}.{sys.version_info[1]} in {sys.base_prefix}"
    now = {"place": str(FOLDER), "python": python, "requirements": digest.hexdigest()}
    try:
        subprocess.run([PYTHON, "-I", "-S", "-c", ""], check=True)
        made = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError, subprocess.CalledProcessError):
        return "there is none that was finished and runs", now
    if not os.environ.get("PYTHON"):  # one that works is kept, whatever `python3` means today
        now["python"] = made["python"]
    new = [name for name in now if made[name] != now[name]]
    return f"new {', '.join(new)}" if new else "", now


def ensure() -> None:
    """Makes or updates `.venv` where that is needed, one run at a time."""
    if not outdated()[0]:
        return
    (CACHE / "tmp").mkdir(parents=True, exist_ok=True)
    with (CACHE / "environment.lock").open("a") as lock:
        if sys.platform != "win32":
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print("Another run is making the environment: waiting for it.", flush=True)
                fcntl.flock(lock, fcntl.LOCK_EX)
        reason, stamp = outdated()
        if reason:
            print(f"Making the environment .venv: {reason}.", flush=True)
            make(stamp, reason == "new requirements", lock.fileno())


def make(stamp: dict[str, str], is_update: bool, lock: int) -> None:
    """Runs pip, which holds the lock as well: it goes on where only this process is killed."""
    if not is_update:
        discard()
        if (free := shutil.disk_usage(ROOT).free / 1e9) < 6:  # GB; with CUDA's packages it is 14
            sys.exit(f"The environment takes 6 GB, and {ROOT} has {free:.1f} GB left: free some.")
        FOLDER.mkdir()
    STAMP.write_text("")
    # Downloads stay in the project until all is installed, unless pip is told another place.
    variables = {"XDG_CACHE_HOME": str(CACHE), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    variables |= {name: it for name, it in os.environ.items() if not name.startswith(ELSEWHERE)}
    variables["TMPDIR"] = str(CACHE / "tmp")  # pip unpacks gigabytes, and /tmp may be small
    install = [str(PYTHON), "-m", "pip", "install", "-c", str(PINS)]
    for command in [
        [getattr(sys, "_base_executable", sys.executable), "-m", "venv", str(FOLDER)],
        # The pinned pip goes on with a broken download; the others build what comes as source.
        [*install, "pip", "setuptools", "hatchling"],
        [*install, "--no-build-isolation", "-e", f"{ROOT}[dev]"],
    ][is_update:]:
        if "-e" in command:
            command += cpu_torch(variables)
        held = () if sys.platform == "win32" else (lock,)
        ended = subprocess.run(command, env=variables, pass_fds=held, check=False).returncode
        if is_update and ended > 0:  # pip itself gave up: every package is whole
            STAMP.write_text(json.dumps(stamp | {"requirements": ""}), encoding="utf-8")
        if ended:
            sys.exit(f"{command[2]} {FAILED}")
    STAMP.write_text(json.dumps(stamp), encoding="utf-8")
    for name in ("pip", "tmp"):
        shutil.rmtree(CACHE / name, ignore_errors=True)


def cpu_torch(variables: dict[str, str]) -> list[str]:
    """Returns pip's option for `CPU_TORCH`, unless pip's settings name an index of their own."""
    config = [str(PYTHON), "-m", "pip", "config", "list"]
    said = subprocess.run(config, env=variables, stdout=subprocess.PIPE, text=True, check=True)
    if sys.platform != "linux" or shutil.which("nvidia-smi") or "index" in said.stdout:
        return []
    try:
        urlopen(f"{CPU_TORCH}/torch/", timeout=5).close()
    except (OSError, HTTPException):  # pip would try again for each package
        return []
    return ["--extra-index-url", CPU_TORCH]


def discard() -> None:
    """Removes `.venv`, renamed first: a removal cut short leaves nothing that looks like one."""
    if FOLDER.exists() and not STAMP.exists():
        sys.exit(f"{FOLDER} was not made by this tool: move it away or delete it first.")
    CACHE.mkdir(exist_ok=True)
    shutil.rmtree(removed := CACHE / "removed", ignore_errors=True)
    if FOLDER.exists():
        shutil.rmtree(FOLDER.rename(removed))
