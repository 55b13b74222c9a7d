"""The lessons as the repository ships them: signed for JupyterLab, or brought back.

Signed is what git's HEAD holds, so that JupyterLab shows all outputs. Whoever wrote that wrote this
program as well, so trusting it adds nothing; what somebody has put beside the lessons stays as it
is.
"""

import json
import os
import subprocess
import sys
from itertools import count
from pathlib import Path

FOLDER = "notebooks"
NO_GIT = f"""\
Nothing was changed: only git knows what the lessons were, and it is missing, or this folder is no
clone. Copy what you want to keep of {FOLDER}/ to work/, then unpack the archive over this folder
once more."""


def git(root: Path, *words: str) -> bytes | None:
    """Returns what git prints about a checkout; nothing where there is no git or no checkout."""
    try:
        ran = subprocess.run(["git", "-C", root, *words], capture_output=True, check=False)
    except FileNotFoundError:
        return None
    return ran.stdout if ran.returncode == 0 else None


def shipped(root: Path) -> dict[str, bytes]:
    """Returns the lessons that git's HEAD holds, by their paths below the folder."""
    listing = git(root, "ls-tree", "-r", "-z", "--name-only", f"HEAD:./{FOLDER}") or b""
    names = [name for name in listing.decode().split("\0") if name.endswith(".ipynb")]
    return {name: git(root, "cat-file", "blob", f"HEAD:./{FOLDER}/{name}") or b"" for name in names}


def sign(root: Path) -> int:
    """Signs the lessons, unless that has been done for what is there; returns how many.

    Without git, as in an unpacked archive, the folder's notebooks are signed once, by the first
    start: later nothing tells a lesson from another notebook.
    """
    tree = git(root, "rev-parse", f"HEAD:./{FOLDER}") or b"an archive"
    done = root / ".cache" / "jupyter" / "signed"
    what = f"{tree.decode().strip()} in {os.environ.get('JUPYTER_DATA_DIR', '')}"
    if done.exists() and done.read_text(encoding="utf-8") == what:
        return 0
    import nbformat
    from nbformat.sign import NotebookNotary

    folder = root / FOLDER
    found = [*folder.glob("*.ipynb"), *folder.glob("[!.]*/*.ipynb")]
    lessons = list(shipped(root).values()) or [path.read_bytes() for path in found]
    with NotebookNotary() as notary:
        for lesson in lessons:
            notary.sign(nbformat.reads(lesson.decode(), as_version=4))
    done.parent.mkdir(parents=True, exist_ok=True)
    done.write_text(what, encoding="utf-8")
    return len(lessons)


def sources(notebook: bytes) -> list[tuple[str, str]] | None:
    """Returns what a reader writes, each cell's kind and source; None for what is no notebook."""
    try:
        cells = json.loads(notebook)["cells"]
        return [(cell["cell_type"], "".join(cell["source"])) for cell in cells]
    except (ValueError, KeyError, TypeError):
        return None


def keep(work: Path, name: str, notebook: bytes) -> str:
    """Writes a reader's version below `work/`, never over one that was there; returns its path."""
    for number in count(1):
        # One folder for each language: links work from there.
        path = (work / name).with_stem(f"{Path(name).stem}_mine{f'_{number}' * (number > 1)}")
        if not path.exists() or path.read_bytes() == notebook:
            break
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(notebook)
    return path.relative_to(work.parent).as_posix()


def bring_back(root: Path) -> int:
    """Brings the lessons back, keeps what a reader has written, and returns the exit code."""
    lessons = shipped(root)
    if not lessons:
        print(NO_GIT, file=sys.stderr)
        return 1
    changed = git(root, "diff", "--name-only", "-z", "--relative", "HEAD", "--", FOLDER) or b""
    names = {path.removeprefix(f"{FOLDER}/") for path in changed.decode().split("\0") if path}
    for name in sorted(names & set(lessons)):
        file = root / FOLDER / name
        # What git's index holds may be a third version.
        there = {git(root, "cat-file", "blob", f":./{FOLDER}/{name}")}
        there |= {file.read_bytes() if file.exists() else None}
        theirs = [one for one in there if one and sources(one) != sources(lessons[name])]
        kept = [keep(root / "work", name, one) for one in sorted(theirs)]
        if git(root, "checkout", "--quiet", "HEAD", "--", f"{FOLDER}/{name}") is None:
            print(f"{name}: git could not bring it back.", file=sys.stderr)
            return 1
        told = f"your version is {' and '.join(kept)}" if kept else "only outputs differed"
        print(f"{name} is as shipped again; {told}.")
    if names & set(lessons):
        print("Where JupyterLab has one of them open: File, Reload Notebook from Disk.")
    else:
        print("All lessons are as shipped.")
    return 0
