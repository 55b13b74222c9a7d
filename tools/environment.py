"""Makes and keeps the environment: `.venv`, with pip, from the pins in `constraints.txt`."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER, CACHE, PINS = ROOT / ".venv", ROOT / ".cache", ROOT / "constraints.txt"
TMP = str(CACHE / "tmp")  # pip unpacks gigabytes, and /tmp may be small
PYTHON = FOLDER / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
STAMP = FOLDER / "distlab-environment.json"  # what it is made from; empty while pip writes
CPU_TORCH = "https://download.pytorch.org/whl/cpu"  # builds without CUDA: 2.5 GB less to download
ELSEWHERE = ("PYTHON", "PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT")  # misdirect pip


def outdated() -> tuple[str, dict[str, str]]:
    """Returns what is said of making or updating `.venv`, "" if neither is due, and what from."""
    asked = "".join(it.read_text(encoding="utf-8") for it in (ROOT / "pyproject.toml", PINS))
    python = f"Python {sys.version_info[0]}.{sys.version_info[1]} in {sys.base_prefix}"
    now = {"place": str(FOLDER), "python": python, "requirements": asked}
    try:
        subprocess.run([PYTHON, "-I", "-S", "-c", ""], check=True)
        made = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError, subprocess.CalledProcessError):
        return "a few minutes, and 1.2 GB to download, or 3.7 GB with CUDA", now
    if not os.environ.get("PYTHON"):  # one that works is kept, whatever `python3` means today
        now["python"] = made["python"]
    new = [name for name in now if made[name] != now[name]]
    return f"new {', '.join(new)}" if new else "", now


def ensure() -> None:
    """Makes or updates `.venv` where that is needed, one run at a time."""
    Path(TMP).mkdir(parents=True, exist_ok=True)
    with (CACHE / "environment.lock").open("a") as lock:
        os.set_inheritable(lock.fileno(), True)  # pip holds it, where only this process is killed
        if sys.platform != "win32":
            import fcntl

            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print("Another run is making the environment: waiting for it.", flush=True)
                fcntl.flock(lock, fcntl.LOCK_EX)
        reason, stamp = outdated()
        if reason:
            print(f"Making the environment .venv: {reason}.", flush=True)
            make(stamp, is_update=reason == "new requirements")


def make(stamp: dict[str, str], is_update: bool) -> None:
    """Runs pip, and writes `STAMP` when all is there."""
    if not is_update:
        discard()
        if (free := shutil.disk_usage(ROOT).free / 1e9) < 6:  # 14 with CUDA
            sys.exit(f"The environment takes 6 GB, and {ROOT} has {free:.1f} GB left: free some.")
        FOLDER.mkdir()
    STAMP.write_text("")
    # The user's other settings of pip stay in force. What is downloaded stays until all is there.
    kept = {name: it for name, it in os.environ.items() if not name.startswith(ELSEWHERE)}
    kept = {"XDG_CACHE_HOME": TMP, "PIP_DISABLE_PIP_VERSION_CHECK": "1"} | kept | {"TMPDIR": TMP}
    out = Path(TMP, "pip.log").open("w") if sys.stdout.isatty() else None  # noqa: SIM115
    install = [str(PYTHON), "-m", "pip", "install", "-c", str(PINS)]
    for command in [
        [getattr(sys, "_base_executable", sys.executable), "-m", "venv", str(FOLDER)],
        # The pinned pip goes on with a broken download; the others build what comes as source.
        [*install, "pip", "setuptools", "hatchling"],
        [*install, "--no-build-isolation", "-e", f"{ROOT}[dev]"],
    ][is_update:]:
        command += cpu_torch(kept) if "-e" in command else []
        with subprocess.Popen(command, env=kept, close_fds=False, stdout=out) as pip:
            while out and pip.poll() is None:  # some hundred lines, in place of each other
                last = "".join(Path(out.name).read_text(errors="replace").splitlines()[-1:])
                n = len([*FOLDER.glob("lib/*/*/*.dist-info")])
                took = f"{time.time() - STAMP.stat().st_mtime:4.0f} s, {n:3} of about 240 packages"
                print(f"{took}  {last.strip().partition(':')[0]:46.46}", end="\r", flush=True)
                time.sleep(1)
        if is_update and pip.returncode > 0:  # pip itself gave up: every package is whole
            STAMP.write_text(json.dumps(stamp | {"requirements": ""}), encoding="utf-8")
        if pip.returncode:
            sys.exit(f"\n{command[2]} failed. Mend the cause, above: the same command goes on.")
    STAMP.write_text(json.dumps(stamp), encoding="utf-8")
    shutil.rmtree(TMP, ignore_errors=True)


def cpu_torch(variables: dict[str, str]) -> list[str]:
    """Returns pip's option for `CPU_TORCH` where it answers and pip's settings name no index."""
    if sys.platform != "linux" or shutil.which("nvidia-smi"):
        return []
    pip = [str(PYTHON), "-m", "pip"]
    settings = subprocess.check_output([*pip, "config", "list"], env=variables, text=True)
    ask = ["index", "versions", "torch", f"--index-url={CPU_TORCH}", "--retries=0", "--timeout=5"]
    in_vain = "index" in settings or subprocess.call([*pip, *ask, "-qqq"], env=variables)
    return [] if in_vain else [f"--extra-index-url={CPU_TORCH}"]


def discard() -> None:
    """Removes `.venv`, renamed first: a removal cut short leaves nothing that looks like one."""
    if FOLDER.exists() and not STAMP.exists():
        sys.exit(f"{FOLDER} was not made by this tool: move it away or delete it first.")
    shutil.rmtree(removed := FOLDER.with_suffix(".removed"), ignore_errors=True)
    if FOLDER.exists():
        shutil.rmtree(FOLDER.rename(removed))
