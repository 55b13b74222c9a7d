# Where distlab is missing, as on Colab, this cell installs it. Elsewhere it does nothing.
import importlib
import subprocess
import sys
from pathlib import Path

SOURCE = ""

try:
    importlib.import_module("distlab.devices")
except ImportError:
    wheels = sorted(Path().glob("distlab-*.whl"), key=lambda file: file.stat().st_mtime)
    folders = [Path(name).resolve() for name in (".", "..", "distlab")]
    checkouts = [folder for folder in folders if (folder / "distlab/devices.py").exists()]
    found = next(filter(None, [SOURCE, *wheels[-1:], *checkouts]), None)
    if not found:
        message = "distlab is missing: put its wheel or checkout beside this notebook and run again"
        raise ModuleNotFoundError(message) from None
    command = [sys.executable, "-m", "pip", "install", str(found)]
    pip = subprocess.run(command, capture_output=True, text=True)
    if pip.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{pip.stdout}{pip.stderr}") from None
    sys.modules.pop("distlab", None)
    importlib.invalidate_caches()
