"""The project's commands. `make NAME` runs `python tools/run.py NAME`."""

from __future__ import annotations  # an older Python gets as far as the message about it

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HELP = """\
make lab                    opens JupyterLab on the start page
make test                   runs every notebook against its stored outputs, and the package's tests
make test-all               adds wrong answers to exercises, and the maintainers' tests: real
                            servers, new environments, breakages
make check                  format, lint, types, who imports whom, tidy notebooks, their rules
make site                   makes a site of the stored notebooks and the docs: build/site;
                            ARGS=--serve shows it, ARGS=--links tries its links to elsewhere
make notebooks              runs the notebooks again, in place, and stores what they print
make translations           writes the translated pages; ARGS="stale ko" says what is out of date
make clean-notebooks        brings the lessons back; what you have changed is kept in work/
make stamp                  says where on GitHub the notebooks live, adds badges for Colab; takes
                            the place from git, or REPO=OWNER/NAME (REPO=--clear: takes it away)
make environment            makes the environment .venv and stops there
make clean                  removes the environment, everything cached, and the site

Whichever command comes first makes the environment; the others find it.
More arguments go through ARGS:  make test ARGS=tests/test_launch.py   make lab ARGS=--no-browser
The tests hide GPUs, since the stored outputs are a CPU's:  make test GPU=1 shows them.
Another Python:  make lab PYTHON=python3.12
Without make:  python tools/run.py test -k layouts
"""
ROOT = Path(__file__).resolve().parent.parent
LINT_IMPORTS = "from importlinter.cli import lint_imports_command; lint_imports_command()"
# Where each program keeps its files, below .cache: a reader's home stays as it was.
HOMES = {
    "IPYTHONDIR": "ipython",
    "JUPYTER_CONFIG_DIR": "jupyter/config",
    "JUPYTER_DATA_DIR": "jupyter/data",
    "KERAS_HOME": "keras",
    "MPLCONFIGDIR": "matplotlib",
    "TORCH_HOME": "torch",
    "TORCHINDUCTOR_CACHE_DIR": "torchinductor",
    "XDG_CACHE_HOME": "xdg",  # Jedi, which completes names
}

# What a cell shows while it waits depends on the moment: off where outputs are stored or compared.
STILL = {"DISTLAB_PROGRESS": "off", "TQDM_DISABLE": "1"}


def variables(cpu_only: bool) -> dict[str, str]:
    """Returns the environment variables the project's programs run with.

    Args:
        cpu_only: Hides GPUs from every framework.
    """
    found = dict(os.environ)
    for name in ("PYTHONHOME", "PYTHONPATH"):
        found.pop(name, None)
    for name, folder in HOMES.items():
        found.setdefault(name, str(ROOT / ".cache" / folder))
    # Whoever has data sets in the usual place goes on using it.
    if not Path("~/tensorflow_datasets").expanduser().exists():
        found.setdefault("TFDS_DATA_DIR", str(ROOT / ".cache" / "tensorflow_datasets"))
    if cpu_only:
        found.update(CUDA_VISIBLE_DEVICES="-1", JAX_PLATFORMS="cpu")
    return found


def paths(arguments: list[str]) -> list[str]:
    """Returns those of pytest's arguments that name a file or a folder, there or not."""
    before = ["", *arguments]
    return [
        word.partition("::")[0]
        for word, option in zip(arguments, before, strict=False)
        if re.search(r"/|\.(py|ipynb)\b|^(tests|notebooks)$", word)
        and not word.startswith("-")
        and not re.fullmatch("-[a-zA-Z]", option)
    ]


def commands(arguments: list[str]) -> dict[str, list[list[str]]]:
    """Returns what each command runs with the environment's Python, lists of arguments."""
    pytest = ["-m", "pytest", "--nbval", "-n", "auto"]
    # Without a path pytest takes `testpaths`: the tests and the notebooks.
    fewer = [] if paths(arguments) else ["--ignore=tests/maintainers"]
    return {
        "lab": [["tools/lab.py", *arguments]],
        "test": [[*pytest, *fewer, *arguments]],
        "test-all": [[*pytest, *arguments]],
        "check": [
            ["-m", "ruff", "format", "--check"],
            ["-m", "ruff", "check"],
            ["-m", "mypy"],
            ["tools/notebooks.py", "check"],
            ["tools/lessons.py"],
            ["tools/translations.py", "check"],
            ["-c", LINT_IMPORTS, "--no-logo", "--no-cache"],
        ],
        "notebooks": [["tools/notebooks.py", "run", *arguments]],
        "site": [["tools/site_build.py", *arguments]],
    }


def run(python: Path, name: str, arguments: list[str]) -> int:
    """Runs a command in the project's folder and returns its exit code."""
    environment = variables(cpu_only=name != "lab" and not os.environ.get("GPU"))
    if name == "test-all":
        environment["DISTLAB_WRONG_ANSWERS"] = "1"
    os.chdir(ROOT)
    # Workers would find nothing there, and not say why.
    if name.startswith("test") and (wrong := [p for p in paths(arguments) if not Path(p).exists()]):
        print(f"There is no {' and no '.join(wrong)}.", file=sys.stderr)
        return 2
    code = 0
    todo = [[str(python), *command] for command in commands(arguments)[name]]
    for command in todo:
        if len(todo) == 1 and os.name != "nt":
            # Nothing stands between the terminal and the program: Ctrl-C and exit code are its own.
            os.execve(python, command, environment)
        print("$ python", *command[1:], flush=True)
        code = max(code, subprocess.run(command, env=environment, check=False).returncode)
    return code


def main() -> int:
    """Runs the command named first on the command line."""
    if not (3, 11) <= sys.version_info[:2] < (3, 14):
        version = sys.version.split()[0]
        print(f"distlab needs Python 3.11, 3.12 or 3.13; {sys.executable} is {version}.")
        return 1
    import environment
    import shipped
    import stamp
    import translations

    name, *arguments = sys.argv[1:] or ["help"]
    try:
        if name == "help":
            print(HELP, end="")
            return 0
        if name == "clean":
            environment.discard()
            for folder in (".cache", "build"):
                shutil.rmtree(ROOT / folder, ignore_errors=True)
            return 0
        if name == "clean-notebooks":
            return shipped.bring_back(ROOT)
        if name == "stamp":
            return stamp.main(arguments)
        if name == "translations":
            return translations.main(arguments)
        if name not in ("environment", *commands([])):
            print(f"There is no command {name!r}. These are:\n\n{HELP}", end="", file=sys.stderr)
            return 2
        if environment.outdated()[0]:
            environment.ensure()
        if name == "environment":
            return 0
        return run(environment.PYTHON, name, arguments)
    except OSError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped. The same command goes on from here.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
