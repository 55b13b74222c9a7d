"""Says in the notebooks and in README.md where on GitHub they live; says it anew; takes it back.

The stamp is two things: the address that the set-up cell installs from, and a badge that opens the
notebook in Colab, under the notebook's title and in README.md's section Lessons.

It needs no environment, only Python: whoever has a wrong address hears so at once.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

from badges import with_badge, with_badges, without_badges
from cells import source_of, with_source, written
from setup_cell import address_in, setup_cell
from translation_pages import translations

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "notebooks"
REPOSITORY = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,37}[A-Za-z0-9])?/[A-Za-z0-9_.-]{1,100}")
# However git names a repository on GitHub: https, ssh, or user@host:path.
ORIGIN = re.compile(
    r"(?:\w+://)?(?:[^/]*[@.])?github\.com(?::\d+)?[:/]/?([^/:]+/[^/]+?)(?:\.git)?/?", re.IGNORECASE
)
SOURCE = re.compile(r"((?:git\+|git clone )https://github\.com/)[\w.-]+/[\w.-]+")
LESSONS = re.compile(r"^## Lessons\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)


class StampError(Exception):
    """Nothing was written; the message says why."""


def stamped_notebook(path: Path, repository: str) -> str:
    """Returns the file of a notebook with the stamp, without it where the repository is ''."""
    text = path.read_text(encoding="utf-8")
    try:
        notebook = json.loads(text)
    except ValueError as error:
        raise StampError(f"{path.name} is no notebook: {error}.") from error
    if written(notebook) != text:
        raise StampError(f"{path.name} is not tidy: run `make check` first.")
    setup = next((cell for cell in notebook["cells"] if cell["cell_type"] == "code"), None)
    if setup is None or address_in("".join(setup["source"])) is None:
        raise StampError(f"{path.name} does not begin with the set-up cell.")
    cell = setup_cell(f"git+https://github.com/{repository}" if repository else "")
    setup["source"] = cell.splitlines(keepends=True)
    first = notebook["cells"][0]
    notebook["cells"][0] = with_source(first, with_badge(source_of(first), repository, path.name))
    return written(notebook)


def stamped_readme(text: str, repository: str) -> str:
    """Returns README.md with the repository in its commands and a badge behind each lesson."""
    text = SOURCE.sub(rf"\g<1>{repository or 'OWNER/NAME'}", text)
    text = without_badges(text)
    section = LESSONS.search(text)
    if section is None:
        raise StampError("README.md has no section Lessons, where the badges go.")
    if not repository:
        return text
    badges = with_badges(section[0], repository)
    return text[: section.start()] + badges + text[section.end() :]


def repository_at(address: str) -> str:
    """Returns the OWNER/NAME that one of git's addresses names.

    Raises:
        StampError: It is not on GitHub, which is where Colab opens notebooks from.
    """
    if found := ORIGIN.fullmatch(address):
        return found[1]
    shown = re.sub(r"(?<=://)[^/@]*@", "", address)  # which may be a password
    raise StampError(
        f"{shown} is not the address of a repository on GitHub, from where Colab opens notebooks."
        " If they are there, too, name the place: make stamp REPO=OWNER/NAME."
    )


def origin() -> str:
    """Returns the address that this clone comes from.

    Raises:
        StampError: There is no such remote.
    """
    command = ["git", "-C", str(ROOT), "remote", "get-url", "origin"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", "") or str(error)
        raise StampError(
            f"git names no remote origin here ({said.strip()}):"
            " name the place, make stamp REPO=OWNER/NAME."
        ) from error


def named(name: str) -> str:
    """Returns the OWNER/NAME that somebody gave, as such or as one of git's addresses."""
    return repository_at(name) if ":" in name else name


def stamp(repository: str) -> list[Path]:
    """Stamps every notebook and README.md, and their translations.

    Args:
        repository: OWNER/NAME on GitHub, or an empty string to remove the stamp.

    Returns:
        The files that changed.

    Raises:
        StampError: The name is no repository's, or a file can't be stamped; none was written.
    """
    name = repository.partition("/")[2]
    if repository and (
        not REPOSITORY.fullmatch(repository) or name in (".", "..") or name.endswith(".git")
    ):
        raise StampError(f"{repository!r} is not of the form OWNER/NAME, as in ada/distlab.")
    readme = ROOT / "README.md"
    new = {readme: stamped_readme(readme.read_text(encoding="utf-8"), repository)}
    for path in sorted(FOLDER.glob("*.ipynb")):
        new[path] = stamped_notebook(path, repository)
    english = {str(path.relative_to(ROOT)): text for path, text in new.items()}
    for translation in translations(ROOT, english):
        for name, text in translation.all_written().items():
            new[ROOT / name] = text
    changed = [path for path, text in new.items() if path.read_text(encoding="utf-8") != text]
    for path in changed:
        path.write_text(new[path], encoding="utf-8", newline="\n")
    return changed


def main(arguments: list[str]) -> int:
    """Stamps with the one argument given, or with where this clone comes from."""
    if len(arguments) > 1:
        usage = "usage: make stamp, or with REPO=OWNER/NAME, or with REPO=--clear"
        print(usage, file=sys.stderr)
        return 2
    try:
        repository = named(arguments[0]) if arguments else repository_at(origin())
        changed = stamp("" if repository == "--clear" else repository)
    except StampError as error:
        print(f"{error} Nothing was changed.", file=sys.stderr)
        return 1
    names = "\n".join(f"  {path.relative_to(ROOT)}" for path in changed)
    print(f"Changed:\n{names}" if names else "Changed nothing: all was as asked.")
    if changed and repository != "--clear":
        place = f"https://github.com/{repository}"
        print(f"Commit and push them to the branch main of {place}, which must be public.")
    elif changed:
        print("Commit and push them.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
