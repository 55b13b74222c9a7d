"""What the lessons were run with: real runs, stored, from which the table in docs is made.

`python tools/works_with.py NAME` runs all lessons, breakages and the tests of the set-up cell with
the Python that runs it, and stores what came out as the column NAME; with notebooks named after it,
it runs those alone.
tools/readme.py puts the table where readers see it.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import marked
import nbformat
from breakages import BREAKAGES

ROOT = Path(__file__).resolve().parent.parent
RUNS = ROOT / "docs" / "works_with.json"
Runs = dict[str, dict[str, dict[str, str]]]
"""By the name of a set of versions, then `versions`, `lessons` or `breakages`."""
SETUP_TESTS = ROOT / "tests" / "maintainers" / "test_setup_cell.py"
PACKAGES = (
    "jax",
    "keras",
    "tensorflow",
    "tf_keras",
    "torch",
    "ray",
    "numpy",
    "scikit-learn",
    "matplotlib",
    "ipykernel",
)


def installed() -> dict[str, str]:
    """Return the version of each package that matters, without its build."""
    found = {"Python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name).split("+")[0]
        except PackageNotFoundError:
            found[name] = "none"
    return found


def lessons() -> list[Path]:
    """Return the notebooks, in order."""
    return sorted((ROOT / "notebooks").glob("*.ipynb"))


def title(path: Path) -> str:
    """Return a notebook's title."""
    first = nbformat.read(path, as_version=4).cells[0].source
    return str(first).splitlines()[0].lstrip("# ")


def run_tests(path: Path) -> str:
    """Run a notebook against its stored outputs, or a file of tests.

    Returns:
        `"passed"`, `"failed"` or `"skipped"`.
    """
    command = [sys.executable, "-m", "pytest", "--nbval", "--nbval-current-env", "-q"]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "-1", "JAX_PLATFORMS": "cpu"}
    ran = subprocess.run(
        [*command, "-p", "no:cacheprovider", str(path)],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if ran.returncode:
        print(ran.stdout, file=sys.stderr)
        return "failed"
    return "passed" if " passed" in ran.stdout else "skipped"


def run(name: str, chosen: list[str]) -> dict[str, dict[str, str]]:
    """Run every lesson and every breakage in this environment, or the chosen lessons alone."""
    found: dict[str, dict[str, str]] = {"versions": installed(), "lessons": {}, "breakages": {}}
    if chosen:
        found, here = stored()[name], found["versions"]
        if found["versions"] != {package: here[package] for package in found["versions"]}:
            raise SystemExit(f"The column {name!r} is about other versions: run all lessons.")
    for path in lessons():
        if chosen and path.name not in chosen:
            continue
        found["lessons"][path.name] = run_tests(path)
        print(f"{name}: {path.name} {found['lessons'][path.name]}", flush=True)
    if chosen:
        return found
    # Where a lesson's first cell installs distlab, these versions should stay as they are.
    found["setup"] = {SETUP_TESTS.name: run_tests(SETUP_TESTS)}
    print(f"{name}: {SETUP_TESTS.name} {found['setup'][SETUP_TESTS.name]}", flush=True)
    for breakage in BREAKAGES:
        state = breakage.state() if breakage.applies() else "other versions"
        known = ("broken", "mended", "other versions")
        found["breakages"][breakage.what] = state if state in known else "unclear"
        print(f"{name}: {breakage.what}: {state}", flush=True)
    return found


def table(runs: Runs) -> str:
    """Return the table of versions and lessons, in Markdown: one column per set of versions."""
    rows = [[name, *_states(runs, "versions", name)] for name in ("Python", *PACKAGES)]
    for path in lessons():
        link = f"[{title(path)}](../notebooks/{path.name})"
        rows.append([link, *_states(runs, "lessons", path.name)])
    return marked.table(["", *runs], rows)


def table_of_breakages(runs: Runs) -> str:
    """Return the table of what is broken, in Markdown: one column per set of versions."""
    rows = ([one.what, one.cure, *_states(runs, "breakages", one.what)] for one in BREAKAGES)
    return marked.table(["what is broken", "instead", *runs], rows)


def _states(runs: Runs, part: str, key: str) -> list[str]:
    """Return what came of one thing in each run, in the table's words."""
    marks = {"passed": "✓", "mended": "works", "other versions": "not affected"}
    words = [one[part].get(key, "not run") for one in runs.values()]
    return [marks.get(word, word) for word in words]


def stored() -> Runs:
    """Return the runs that were stored."""
    return dict(json.loads(RUNS.read_text(encoding="utf-8")))


def main() -> int:
    """Run all in this environment and store it; the exit code is 1 if there was a surprise."""
    parser = argparse.ArgumentParser(description="Run all lessons and store what came out.")
    parser.add_argument("name", help="the column's name, such as 'pinned'")
    parser.add_argument("notebooks", nargs="*", help="these alone, such as '14_name.ipynb'")
    arguments = parser.parse_args()
    name = arguments.name
    found = run(name, arguments.notebooks)
    runs = stored() | {name: found}
    RUNS.write_text(json.dumps(runs, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    text = json.dumps(found)
    return int(any(f'"{word}"' in text for word in ("failed", "mended", "unclear")))


if __name__ == "__main__":
    sys.exit(main())
