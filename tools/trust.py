"""Signs the lessons that the repository ships, so that JupyterLab shows all of their outputs.

Signed is the content that git's HEAD holds. Whoever wrote it wrote this program as well, so
trusting it adds nothing; what a reader or somebody else has put beside the lessons stays as it is.
"""

import os
import subprocess
from pathlib import Path

FOLDER = "notebooks"


def git(root: Path, *words: str) -> bytes | None:
    """Returns what git prints about a checkout; nothing where there is no git or no checkout."""
    try:
        ran = subprocess.run(["git", "-C", root, *words], capture_output=True, check=False)
    except FileNotFoundError:
        return None
    return ran.stdout if ran.returncode == 0 else None


def shipped(root: Path) -> dict[str, str]:
    """Returns the lessons that git's HEAD holds, translated ones as `ko/NAME`.

    Returns:
        The path below the folder to the name of its content in git.
    """
    listing = git(root, "ls-tree", "-r", "-z", f"HEAD:./{FOLDER}") or b""
    entries = [line.partition("\t") for line in listing.decode().split("\0") if line]
    return {name: kind.split()[2] for kind, _, name in entries if name.endswith(".ipynb")}


def contents(root: Path) -> list[bytes]:
    """Returns what to sign: HEAD's lessons or, without git, those of the folder."""
    if lessons := shipped(root):
        blobs = [git(root, "cat-file", "blob", blob) for blob in lessons.values()]
        return [content for content in blobs if content is not None]
    folder = root / FOLDER
    found = [*folder.glob("*.ipynb"), *folder.glob("[!.]*/*.ipynb")]
    return [path.read_bytes() for path in sorted(found)]


def sign_lessons(root: Path) -> None:
    """Signs the lessons, unless that has been done for what is there.

    Without git, as in an unpacked archive, the folder's notebooks are signed once, by the first
    start: later nothing tells a lesson from another notebook.
    """
    tree = git(root, "rev-parse", f"HEAD:./{FOLDER}") or b"an archive"
    done = root / ".cache" / "jupyter" / "signed"
    what = f"{tree.decode().strip()} in {os.environ.get('JUPYTER_DATA_DIR', '')}"
    if done.exists() and done.read_text(encoding="utf-8") == what:
        return
    import nbformat
    from nbformat.sign import NotebookNotary

    with NotebookNotary() as notary:
        for content in contents(root):
            notary.sign(nbformat.reads(content.decode(), as_version=4))
    done.parent.mkdir(parents=True, exist_ok=True)
    done.write_text(what, encoding="utf-8")
