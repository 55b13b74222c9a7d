"""Faults that raise no error: run the programs in tests/silent, and write the page about them.

`python tools/silent_errors.py NAME` runs them all with the Python that runs it, stores what it saw
in docs/silent_errors.json as the set NAME, and writes the table of docs/silent_errors.md. With
names after it, it runs those rows alone; without any name, it writes the table. The exit code is 1
if a row has changed since it was stored, or a cure does not work.
"""

import argparse
import importlib
import json
import math
import re
import sys
from pathlib import Path
from typing import Any

import marked
from works_with import installed

ROOT = Path(__file__).resolve().parent.parent
RUNS = ROOT / "docs" / "silent_errors.json"
PAGE = ROOT / "docs" / "silent_errors.md"
SECTIONS = {
    "torch_data": ("PyTorch: collectives and DDP", ("torch",)),
    "torch_sharded": ("PyTorch: DTensor, FSDP and tensor parallelism", ("torch",)),
    "torch_pipeline": ("PyTorch: pipeline parallelism", ("torch",)),
    "jax_rows": ("JAX", ("jax",)),
    "keras_rows": ("Keras 3, mostly on JAX", ("keras", "jax")),
    "tensorflow_rows": ("TensorFlow: strategies", ("tensorflow", "tf_keras", "keras")),
    "dtensor_rows": ("TensorFlow: DTensor", ("tensorflow",)),
}
HEADS = ("what people write", "what happens", "seen", "right", "instead", "lesson")


def rows(section: str) -> dict[str, Any]:
    """Return the rows of one file of programs, by their names."""
    if (programs := str(ROOT / "tests")) not in sys.path:
        sys.path.append(programs)  # for good: ranks import them from there, too
    importlib.import_module(f"silent.{section}")
    known: dict[str, Any] = importlib.import_module("silent.row").ROWS
    return {n: row for n, row in known.items() if row.program.__module__ == f"silent.{section}"}


def look(row: Any) -> dict[str, Any]:
    """Run a row's naive program and its cure; return what came out."""
    from distlab import RankError

    try:
        naive = row.compare(cured=False)
    except RankError as error:
        kind = str(error).partition("failed: ")[2].partition(":")[0]
        return {"state": f"an error: `{kind}`"}
    found: dict[str, Any] = {"state": "right" if naive.same else "wrong", "cured": False}
    if not naive.same:
        first = naive.wrong()[0]
        found |= {"leaf": first.leaf, "on": first.where, "words": first.words}
        if math.isfinite(first.right.real):  # numbers: not another shape
            found |= {"seen": f"{first.seen.real:.5g}", "right": f"{first.right.real:.5g}"}
    found["cured"] = row.compare(cured=True).same
    return found


def changed(found: dict[str, Any], before: dict[str, Any]) -> bool:
    """Whether a row is not what it was, up to rounding."""
    for key in ("state", "leaf", "on", "cured", "seen", "right"):
        one, other = found.get(key), before.get(key)
        if key in ("seen", "right") and one and other and one != other:
            if not math.isclose(float(one), float(other), rel_tol=1e-3):
                return True
        elif one != other:
            return True
    return False


def stored() -> dict[str, Any]:
    """Return what was stored, by the names of the sets of versions."""
    return dict(json.loads(RUNS.read_text(encoding="utf-8")))


def table() -> str:
    """Return the sections of the page, in Markdown."""
    runs, lines = stored(), []
    for section, (title, packages) in SECTIONS.items():
        own = rows(section)
        versions = [
            f"{name}: " + ", ".join(f"{each} {run['versions'][each]}" for each in packages)
            for name, run in runs.items()
            if own.keys() & run["rows"].keys()
        ]
        lines += [f"## {title}", "", f"Versions, {'; '.join(versions)}. The programs are in"]
        lines += [f"`tests/silent/{section}.py`.", ""]
        cells = [
            (f"{row.what} <br>`{name}`", row.happens, *numbers(name, runs), row.cure, where(row))
            for name, row in own.items()
        ]
        lines.append(marked.table(HEADS, cells))
    return "\n".join(lines)


def numbers(name: str, runs: dict[str, Any]) -> tuple[str, str]:
    """The cells with what was seen and what is right: once, if all sets saw the same."""
    told: dict[tuple[str, str], list[str]] = {}
    for run, found in runs.items():
        if one := found["rows"].get(name):
            told.setdefault(_numbers(one), []).append(run)
    if len(told) == 1:
        return next(iter(told))
    seen = "<br>".join(f"{each} ({', '.join(of)})" for (each, _), of in told.items())
    return seen, "<br>".join(dict.fromkeys(right for _, right in told if right))


def _numbers(found: dict[str, Any]) -> tuple[str, str]:
    if found["state"] != "wrong":
        return str(found["state"]), ""
    leaf = re.sub(r"\W+", " ", found["leaf"]).strip()
    if "seen" not in found:
        return f"{leaf}: {found['words']}", ""
    return f"{leaf} {found['seen']}", str(found["right"])


def where(row: Any) -> str:
    """The cell with the lesson, and the thread upstream."""
    links = ["none"]
    if row.lesson:
        (path,) = (ROOT / "notebooks").glob(f"{row.lesson}_*.ipynb")
        links = [f"[{row.lesson}](../notebooks/{path.name})"]
    if row.thread:
        links.append(f"[upstream]({row.thread})")
    return ", ".join(links)


def written(text: str) -> str:
    """Return the page with its table made anew."""
    return marked.filled(text, {"rows": table()})


def run(name: str, chosen: list[str]) -> int:
    """Run rows and store what came out; returns how many have changed, or have no cure."""
    runs, surprises = stored(), 0
    known = runs.get(name, {"versions": {}, "rows": {}})
    here = {package: each for package, each in installed().items() if each != "none"}
    before = known["rows"]  # of several environments, where one has not all frameworks
    runs[name] = {"versions": installed() | known["versions"] | here, "rows": dict(before)}
    for section in SECTIONS:
        for each, row in rows(section).items():
            if chosen and each not in chosen:
                continue
            found = look(row)
            surprise = changed(found, before.get(each, found)) or found.get("cured") is False
            surprises += surprise
            runs[name]["rows"][each] = found
            print(f"{'CHANGED ' * surprise}{each}: {found}", flush=True)
            RUNS.write_text(json.dumps(runs, indent=1) + "\n", encoding="utf-8")
    return surprises


def main() -> int:
    """Run, store, write the page."""
    parser = argparse.ArgumentParser(description="Run what goes wrong in silence.")
    parser.add_argument("name", nargs="?", help="the set of versions, such as 'pinned'")
    parser.add_argument("rows", nargs="*", help="these alone, such as mse_loss_of_shards")
    arguments = parser.parse_args()
    surprises = run(arguments.name, arguments.rows) if arguments.name else 0
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return int(surprises > 0)


if __name__ == "__main__":
    sys.exit(main())
