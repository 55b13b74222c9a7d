"""The project's commands: lab, test, check."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"


def make_environment() -> None:
    """Makes `.venv` from the pins unless it is there."""
    stamp = VENV / "complete"
    if stamp.exists():
        return
    print("Making .venv from constraints.txt ...", flush=True)
    pip = [str(PYTHON), "-m", "pip", "install", "-q", "-c", str(ROOT / "constraints.txt")]
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], check=True)
    subprocess.run([*pip, "pip", "setuptools", "hatchling"], check=True)
    subprocess.run([*pip, "--no-build-isolation", "-e", f"{ROOT}[dev]"], check=True)
    stamp.touch()


def main(command: str, *arguments: str) -> int:
    """Runs one command."""
    make_environment()
    os.chdir(ROOT)
    if command == "lab":
        commands = [["jupyterlab", "--notebook-dir=notebooks", *arguments]]
    elif command == "check":
        commands = [["ruff", "check"], ["ruff", "format", "--check"], ["mypy"]]
    else:
        os.environ.update(JAX_PLATFORMS="cpu", CUDA_VISIBLE_DEVICES="-1")
        commands = [["pytest", "--nbval", *arguments]]
    codes = [subprocess.run([str(PYTHON), "-m", *command]).returncode for command in commands]
    return max(codes)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
