"""Says in the notebooks and in README.md where on GitHub they live; says it anew; takes it back.

The stamp is two things: the address that the set-up cell installs from, and a badge that opens the
notebook in Colab, under the notebook's title and in README.md's section Lessons.

It needs no environment, only Python: whoever has a wrong address hears so at once.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

import translations
from badges import with_badge, with_badges, without_badges
from cells import source_of, with_source, written
from setup_cell import address_in, setup_cell

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "notebooks"
REPOSITORY = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,37}[A-Za-z0-9])?/(?!\.{1,2}$|.*\.git$)[A-Za-z0-9_.-]{1,100}"
)
# However git names a repository on GitHub: https, ssh, or user@host:path.
ORIGIN = re.compile(
    r"(?:\w+://)?(?:[^/]*[@.])?github\.com(?::\d+)?[:/]/?([^/:]+/[^/]+?)(?:\.git)?/?", re.IGNORECASE
)
SOURCE = re.compile(r"((?:git\+|git clone )https://github\.com/)[\w.-]+/[\w.-]+")
LESSONS = re.compile(r"^## Lessons\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)


def stamped_notebook(path: Path, repository: str) -> str:
    """Returns the file of a notebook with the stamp, without it where the repository is ''."""
    text = path.read_text(encoding="utf-8")
    notebook = json.loads(text)
    if written(notebook) != text:
        raise SystemExit(f"{path.name} is not tidy: run `make check` first. Nothing was changed.")
    setup = next((cell for cell in notebook["cells"] if cell["cell_type"] == "code"), None)
    if setup is None or address_in("".join(setup["source"])) is None:
        raise SystemExit(f"{path.name} does not begin with the set-up cell. Nothing was changed.")
    cell = setup_cell(f"git+https://github.com/{repository}" if repository else "")
    setup["source"] = cell.splitlines(keepends=True)
    first = notebook["cells"][0]
    notebook["cells"][0] = with_source(first, with_badge(source_of(first), repository, path.name))
    return written(notebook)


def stamped_readme(text: str, repository: str) -> str:
    """Returns README.md with the repository in its commands and a badge behind each lesson."""
    text = without_badges(SOURCE.sub(rf"\g<1>{repository or 'OWNER/NAME'}", text))
    return (
        LESSONS.sub(lambda found: with_badges(found[0], repository), text) if repository else text
    )


def repository_at(address: str) -> str:
    """Returns the OWNER/NAME that one of git's addresses names.

    Raises:
        SystemExit: It is not on GitHub, which is where Colab opens notebooks from.
    """
    if found := ORIGIN.fullmatch(address):
        return found[1]
    shown = re.sub(r"(?<=://)[^/@]*@", "", address)  # which may be a password
    raise SystemExit(
        f"{shown} is not the address of a repository on GitHub, from where Colab opens notebooks."
        " If they are there, too, name the place: make stamp REPO=OWNER/NAME. Nothing was changed."
    )


def origin() -> str:
    """Returns the address that this clone comes from.

    Raises:
        SystemExit: There is no such remote; git says so itself.
    """
    command = ["git", "-C", str(ROOT), "remote", "get-url", "origin"]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if ran.returncode:
        raise SystemExit("Name the place, make stamp REPO=OWNER/NAME. Nothing was changed.")
    return ran.stdout.strip()


def stamp(repository: str) -> list[str]:
    """Stamps every notebook and README.md, and their translations.

    Args:
        repository: OWNER/NAME on GitHub, or an empty string to remove the stamp.

    Returns:
        The files that changed, as paths below the root.

    Raises:
        SystemExit: The name is no repository's, or a file can't be stamped; none was written.
    """
    if repository and not REPOSITORY.fullmatch(repository):
        form = "OWNER/NAME, as in ada/distlab"
        raise SystemExit(f"{repository!r} is not of the form {form}. Nothing was changed.")
    new = {path: stamped_notebook(path, repository) for path in sorted(FOLDER.glob("*.ipynb"))}
    readme = ROOT / "README.md"
    new[readme] = stamped_readme(readme.read_text(encoding="utf-8"), repository)
    changed = [path for path, text in new.items() if path.read_text(encoding="utf-8") != text]
    for path in changed:
        path.write_text(new[path], encoding="utf-8", newline="\n")
    return [*(path.relative_to(ROOT).as_posix() for path in changed), *translations.write(ROOT)]


def main(arguments: list[str]) -> int:
    """Stamps with the place that is named, or with where this clone comes from."""
    parser = argparse.ArgumentParser(prog="make stamp", description=__doc__.splitlines()[0])
    parser.add_argument("place", nargs="?", help="REPO=OWNER/NAME, or one of git's addresses")
    parser.add_argument("--clear", action="store_true", help="REPO=--clear takes the stamp away")
    given = parser.parse_args(arguments)
    if given.clear:
        repository = ""
    elif given.place and ":" not in given.place:
        repository = given.place
    else:
        repository = repository_at(given.place or origin())
    changed = stamp(repository)
    names = "\n".join(f"  {name}" for name in changed)
    print(f"Changed:\n{names}" if names else "Changed nothing: all was as asked.")
    if changed and repository:
        place = f"https://github.com/{repository}"
        print(f"Commit and push them to the branch main of {place}, which must be public.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
