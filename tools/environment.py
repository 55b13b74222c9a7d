"""Makes and keeps the project's environment: `.venv`, from the pins in `constraints.txt`."""

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pip_install import InstallError, Pip, settings

PINS_CHANGED = "the pinned packages have changed"
GIGABYTE = 10**9
# Measured, with the downloads that are kept until the installation succeeded.
SPACE = {"cpu": 6, "cuda": 14}
CUDA_NOTICE = """\
Note: pip takes PyTorch's build for NVIDIA GPUs, and this machine shows none. It works, but it
downloads some 2.5 GB more than the CPU build. To have the CPU build instead press Ctrl-C and see
"A smaller PyTorch" in README.md. Going on."""


class Environment:
    """The environment of one checkout.

    A file inside `.venv` says what it was made from. It is written last, so an environment whose
    making was cut short has an empty one and is made again; a `.venv` without the file belongs to
    somebody else and is left alone.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.folder = self.root / ".venv"
        self.cache = self.root / ".cache"
        self.stamp = self.folder / "distlab-environment.json"
        self.pins = self.root / "constraints.txt"
        scripts, suffix = ("Scripts", ".exe") if os.name == "nt" else ("bin", "")
        self.python = self.folder / scripts / f"python{suffix}"

    def project(self) -> dict[str, Any]:
        """Returns pyproject.toml."""
        return tomllib.loads((self.root / "pyproject.toml").read_text(encoding="utf-8"))

    def wanted(self) -> dict[str, str]:
        """Returns what an environment made now would be made from."""
        project = self.project()
        names = ("dependencies", "optional-dependencies", "scripts")
        tables = [project["build-system"], *(project["project"].get(name) for name in names)]
        digest = hashlib.sha256(json.dumps(tables, sort_keys=True).encode())
        digest.update(self.pins.read_bytes())
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        return {
            "requirements": digest.hexdigest(),
            "python": f"Python {version} in {sys.base_prefix}",
            "place": str(self.folder),
        }

    def made_from(self) -> dict[str, str]:
        """Returns what `.venv` was made from, nothing if it is not complete."""
        try:
            stamp: dict[str, str] = json.loads(self.stamp.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return stamp

    def outdated(self) -> str:
        """Says why `.venv` can't be used as it is; an empty string if it can."""
        made, wanted = self.made_from(), self.wanted()
        if not self.folder.exists():
            return "there is none"
        if not made:
            return "the last run did not finish it"
        if made["place"] != wanted["place"]:
            return "the project has moved"
        # An environment that works is kept whatever `python3` means today, unless asked otherwise.
        if os.environ.get("PYTHON") and made["python"] != wanted["python"]:
            return f"it has {made['python']}, not {wanted['python']}"
        if not self.runs():
            return "its Python no longer runs"
        if made["requirements"] != wanted["requirements"]:
            return PINS_CHANGED
        return ""

    def runs(self) -> bool:
        """Whether the environment's Python starts."""
        if Path(sys.prefix) == self.folder:
            return True
        with contextlib.suppress(OSError):
            return subprocess.run([self.python, "-I", "-S", "-c", ""], check=False).returncode == 0
        return False

    def ensure(self) -> None:
        """Makes or updates `.venv` where that is needed.

        Raises:
            InstallError: It could not be made; the message says what to do.
        """
        if not self.outdated():
            return
        with self.lock() as held:
            if reason := self.outdated():
                self.make(reason, held)

    @contextlib.contextmanager
    def lock(self) -> Iterator[list[int]]:
        """Holds the checkout's lock, so that two runs never write one environment.

        The system drops it with the last process that has the file open, however that one ends.

        Yields:
            The file descriptors a child must inherit to hold the lock as well.
        """
        self.cache.mkdir(exist_ok=True)
        with (self.cache / "environment.lock").open("a") as file:
            if sys.platform == "win32":
                import msvcrt

                msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
                yield []
            else:
                import fcntl

                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    print("Another run is making the environment: waiting for it.", flush=True)
                    fcntl.flock(file, fcntl.LOCK_EX)
                yield [file.fileno()]

    def make(self, reason: str, held: list[int]) -> None:
        """Makes the environment, or updates it where only the pinned packages have changed."""
        stamp = self.wanted()
        fresh = reason != PINS_CHANGED
        print(f"{'Making' if fresh else 'Updating'} the environment .venv: {reason}.", flush=True)
        shutil.rmtree(self.cache / "tmp", ignore_errors=True)
        if fresh:
            self.create(held)
        else:
            stamp["python"] = self.made_from()["python"]
        run = Pip(self.python, self.cache, held, before_writing=lambda: self.stamp.write_text(""))
        pins = ["-c", str(self.pins)]
        # setuptools builds the one package of the set that comes as source only.
        run.install([*pins, "pip", "setuptools", *self.project()["build-system"]["requires"]])
        if fresh and run.takes_cuda(self.pinned("torch")):
            print(CUDA_NOTICE, flush=True)
            self.check_space("cuda")
        options = ["--progress-bar", "raw", "--no-build-isolation", *pins]
        run.install([*options, "-e", f"{self.root}[dev]"])
        self.quieten_lab()
        if hasattr(os, "sync"):
            os.sync()  # The stamp must not outlive a power cut that the packages did not.
        unfinished = self.stamp.with_suffix(".new")
        unfinished.write_text(json.dumps(stamp, indent=1), encoding="utf-8")
        unfinished.replace(self.stamp)
        for name in ("pip", "tmp"):
            shutil.rmtree(self.cache / name, ignore_errors=True)
        print("The environment is ready.", flush=True)

    def discard(self) -> None:
        """Removes `.venv`, in one step: a removal cut short leaves nothing that looks like one."""
        if self.folder.exists():
            if any(self.folder.iterdir()) and not self.stamp.exists():
                raise InstallError(
                    f"{self.folder} was not made by this tool. Move it away or delete it, then run"
                    " the same command again."
                )
            self.folder.rename(self.cache / f"removed-{os.getpid()}")
        for removed in self.cache.glob("removed-*"):
            shutil.rmtree(removed)

    def remove(self) -> None:
        """Removes the environment, everything cached, and the site."""
        with self.lock():
            self.discard()
            shutil.rmtree(self.root / "build", ignore_errors=True)
            for entry in self.cache.iterdir():
                if entry.is_dir():
                    shutil.rmtree(entry)

    def create(self, held: list[int]) -> None:
        """Replaces `.venv` by an empty environment."""
        self.discard()
        self.check_space("cpu")
        self.folder.mkdir()
        self.stamp.write_text("")
        base = getattr(sys, "_base_executable", sys.executable)
        command = [base, "-I", "-m", "venv", self.folder]
        made = subprocess.run(
            command,
            env=settings(self.cache),
            capture_output=True,
            text=True,
            check=False,
            pass_fds=held,
        )
        if made.returncode:
            print(made.stdout + made.stderr, file=sys.stderr)
            raise InstallError(f"{base} could not make an environment; its own words are above.")

    def check_space(self, build: str) -> None:
        """Raises InstallError where the disk is too small for what comes."""
        free = shutil.disk_usage(self.root).free
        if free < SPACE[build] * GIGABYTE:
            raise InstallError(
                f"The environment needs about {SPACE[build]} GB and {self.root} has"
                f" {free / GIGABYTE:.1f} GB left: free some space, then run the same command again."
            )

    def pinned(self, name: str) -> str:
        """Returns the pinned requirement of a package, its bare name if it has none."""
        lines = self.pins.read_text(encoding="utf-8").splitlines()
        return next((line for line in lines if line.startswith(f"{name}==")), name)

    def quieten_lab(self) -> None:
        """Keeps JupyterLab from asking the network for news, and the reader whether it may."""
        overrides = self.folder / "share" / "jupyter" / "lab" / "settings" / "overrides.json"
        overrides.parent.mkdir(parents=True, exist_ok=True)
        news = {"fetchNews": "false", "checkForUpdates": False}
        setting = {"@jupyterlab/apputils-extension:notification": news}
        overrides.write_text(json.dumps(setting, indent=1), encoding="utf-8")
