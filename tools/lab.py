"""Starts JupyterLab on the start page, with the project's settings below those of the reader."""

import os
import shutil
import sys
import sysconfig
from pathlib import Path

from jupyterlab.labapp import main as start_jupyterlab
from shipped import sign

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = ROOT / "tools" / "jupyter"
OUR_CONFIG = ROOT / ".cache" / "jupyter" / "config"
# What JupyterLab reads from one folder only, and where it looks for it there.
COPIES = {
    "custom.css": "custom/custom.css",
    "default.jupyterlab-workspace": "lab/workspaces/default-37a8.jupyterlab-workspace",
}


def settle(config: Path) -> None:
    """Puts the first layout and the styles where JupyterLab looks; what is there stays."""
    for name, place in COPIES.items():
        if not (target := config / place).exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(SETTINGS / name, target)


def main() -> None:
    """Starts JupyterLab with the arguments of the command line."""
    config = Path(os.environ.setdefault("JUPYTER_CONFIG_DIR", str(OUR_CONFIG)))
    if config == OUR_CONFIG:
        settle(config)
    # Our settings count where neither this variable's folders nor the reader's say anything.
    folders = (os.environ.get("JUPYTER_CONFIG_PATH"), str(config), str(SETTINGS))
    os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join(filter(None, folders))
    # `python` in a cell's `!` line or in a terminal of JupyterLab's is the one that has distlab.
    os.environ["PATH"] = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    for name in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS"):  # or make would talk of itself in a terminal
        os.environ.pop(name, None)
    # IPython runs it in every kernel; a reader's own counts more.
    os.environ.setdefault("PYTHONSTARTUP", str(SETTINGS / "startup.py"))
    (ROOT / "work").mkdir(exist_ok=True)
    sign(ROOT)
    # In a container root is the usual user, and JupyterLab would end after a long installation.
    root = ["--allow-root"] if hasattr(os, "getuid") and os.getuid() == 0 else []
    # A login shell, as Jupyter starts where it has no terminal, would forget PATH.
    settings = {"shell_command": [os.environ.get("SHELL", "sh")]}
    start_jupyterlab([*root, f"--ServerApp.terminado_settings={settings}", *sys.argv[1:]])


if __name__ == "__main__":
    main()
