"""Brings the lessons back to what the repository ships; what a reader has written is kept."""

import json
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from trust import FOLDER, git, shipped

NO_GIT = f"""\
Nothing was changed: only git knows what the lessons were, and it is missing, or this folder is no
clone. Copy what you want to keep of {FOLDER}/ to work/, then unpack the archive over this folder
once more."""


def sources(notebook: bytes) -> list[tuple[str, str]] | None:
    """Returns what a reader writes, each cell's kind and source; None for what is no notebook."""
    try:
        cells: list[dict[str, Any]] = json.loads(notebook)["cells"]
        return [(cell["cell_type"], "".join(cell["source"])) for cell in cells]
    except (ValueError, KeyError, TypeError):
        return None


def versions(root: Path, name: str) -> Iterator[bytes]:
    """Yields what there is of a lesson beside HEAD: the file, and what git's index holds of it."""
    file = root / FOLDER / name
    if file.exists():
        yield file.read_bytes()
    staged = git(root, "cat-file", "blob", f":./{FOLDER}/{name}")
    if staged is not None:
        yield staged


def keep(work: Path, name: str, notebook: bytes) -> Path:
    """Writes a reader's version into `work/` and returns the file, never one that was there."""
    folder = work / Path(name).parent  # one folder for each language: links work from there
    folder.mkdir(parents=True, exist_ok=True)
    for number in count(1):
        path = folder / f"{Path(name).stem}_mine{f'_{number}' * (number > 1)}.ipynb"
        if not path.exists():
            path.write_bytes(notebook)
            return path
        if path.read_bytes() == notebook:
            return path
    raise AssertionError("unreachable")


def clean(root: Path) -> int:
    """Brings the lessons back, says what it did, and returns the exit code."""
    lessons = shipped(root)
    if not lessons:
        print(NO_GIT, file=sys.stderr)
        return 1
    changed = git(root, "diff", "--name-only", "-z", "--relative", "HEAD", "--", FOLDER) or b""
    names = {path.removeprefix(f"{FOLDER}/") for path in changed.decode().split("\0") if path}
    for name in sorted(names & set(lessons)):
        original = git(root, "cat-file", "blob", lessons[name]) or b""
        theirs = {found for found in versions(root, name) if sources(found) != sources(original)}
        files = [keep(root / "work", name, found) for found in sorted(theirs)]
        kept = [path.relative_to(root / "work").as_posix() for path in files]
        if git(root, "checkout", "--quiet", "HEAD", "--", f"{FOLDER}/{name}") is None:
            print(f"{name}: git could not bring it back.", file=sys.stderr)
            return 1
        told = (
            f"your version is work/{' and work/'.join(kept)}" if kept else "only outputs differed"
        )
        print(f"{name} is as shipped again; {told}.")
    if names & set(lessons):
        print("Where JupyterLab has one of them open: File, Reload Notebook from Disk.")
    else:
        print("All lessons are as shipped.")
    return 0
