"""Translated pages: writes them, checks them, and says which translations are out of date.

`write` (`make translations`) writes every translated page from its English page and from what is in
`translations/`. `check` looks whether that has been done, and whether the translations keep what
they have to. `stale` lists the blocks to translate, with the English text before and after.
`sheet` prints them as a sheet to fill in, and `take` stores a sheet. `code` writes a file for what
a lesson's comments and strings say; once it is filled in, the lesson has outputs of its own.
"""

import argparse
import difflib
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from translated_code import code_file, problems_of_code, renewed_words
from translation_checks import problems
from translation_pages import Translation, pages, translations, with_switches
from translation_store import (
    CURRENT,
    MISSING,
    ROOT,
    STALE,
    Entry,
    Match,
    dumped,
    glossary,
    rekeyed,
    stored_at,
)

SHEET = re.compile(
    r"^%%% ([^\n]+) (current|stale|missing)\n(.*?)^%%%\n(.*?)(?=^%%% |\Z)", re.S | re.M
)
SHEET_HEAD = """\
Each part has the English text above the line %%% and its translation below it. Where a term has to
be translated differently than translations/glossary.csv says, the translation begins with a line
such as
free: strategy = here it is no class of TensorFlow
"""
FREE = re.compile(r"\Afree: (.+?) = (.+)\n")


def made(root: Path = ROOT) -> dict[str, str | None]:
    """Returns the text of every page that is written, as paths below the root; of old ones None."""
    texts: dict[str, str | None] = {**with_switches(root)}
    for translation in translations(root):
        code = translation.language.code
        paths = [*root.glob(f"notebooks/{code}/*.ipynb"), *root.glob(f"docs/{code}/*.md")]
        texts |= {path.relative_to(root).as_posix(): None for path in sorted(paths)}
        texts |= translation.all_written()
    return texts


def outdated(root: Path = ROOT) -> list[str]:
    """Returns the pages that `write` would change, as paths below the root."""
    return [name for name, text in made(root).items() if _text(root / name) != text]


def write(root: Path = ROOT) -> list[str]:
    """Writes every translated page, and the lines of English pages that lead to them.

    What is stored follows the English page: blocks that have moved get their new keys, and
    translations of blocks that are not there any more go.

    Args:
        root: The project's folder.

    Returns:
        The files that changed, as paths below the root.
    """
    changed = [name for name, text in made(root).items() if _put(root / name, text)]
    for translation in translations(root):
        for page in translation.pages:
            path = stored_at(root, translation.language.code, page)
            if _put(path, dumped(rekeyed(translation.matches(page)[0]))):
                changed.append(path.relative_to(root).as_posix())
            if words := translation.words(page):
                _store_words(translation, page, words)
    return changed


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def _put(path: Path, text: str | None) -> bool:
    """Makes a file have a text, or removes it without one; returns whether that changed it."""
    if _text(path) == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    if text is None:
        path.unlink()
    else:
        path.write_text(text, encoding="utf-8", newline="\n")
    return True


def _store_words(translation: Translation, page: str, words: dict[str, str]) -> Path:
    """Stores the remarks of a lesson's code, those it has now, and returns where."""
    path = code_file(translation.root, translation.language.code, page)
    renewed = renewed_words(json.loads(translation.text(page)), words)
    _put(path, json.dumps(renewed, ensure_ascii=False, indent=1) + "\n")
    return path


def wrong(root: Path = ROOT) -> Iterator[str]:
    """Yields what is wrong with the stored translations, one line each."""
    for translation in translations(root):
        code = translation.language.code
        known = {stored_at(root, code, page) for page in pages(root)}
        for path in sorted((root / "translations" / code).glob("*.json")):
            if path not in known:
                yield f"{path.relative_to(root)}: there is no English page of that name"
        words = glossary(root, code)
        for page in translation.pages:
            matches, left = translation.matches(page)
            for match in matches:
                for problem in problems(match.entry, words) if match.entry else ():
                    yield f"{code} {page}: {match.key}: {problem}"
            if remarks := translation.words(page):
                english, made = map(json.loads, (translation.text(page), translation.written(page)))
                for problem in problems_of_code(english, remarks, made):
                    yield f"{code} {page}: {problem}"
            for key in left:
                yield f"{code} {page}: {key}: the English page has no such block: make translations"


def stale(root: Path = ROOT, code: str = "") -> Iterator[str]:
    """Yields a paragraph for each block that is not translated, or from an earlier text.

    Args:
        root: The project's folder.
        code: A language; all without it.
    """
    for translation in translations(root):
        if code not in ("", translation.language.code):
            continue
        for page in translation.pages:
            for match in translation.matches(page)[0]:
                if match.state != CURRENT:
                    title = f"{translation.language.code} {page}: {match.key} is {match.state}"
                    yield "\n".join([title, *_difference(match)])


def _difference(match: Match) -> list[str]:
    """Returns the English text before (-) and after (+), line by line."""
    before = match.entry.english.splitlines() if match.entry else []
    lines = difflib.unified_diff(before, match.english.splitlines(), n=9, lineterm="")
    return [f"  {line}" for line in list(lines)[3:]]


def sheet(translation: Translation, page: str, everything: bool) -> str:
    """Returns a sheet with the blocks of a page to translate.

    Args:
        translation: The language.
        page: The English page, as a path below the root.
        everything: Adds the blocks whose translation is current.
    """
    parts = [SHEET_HEAD]
    for match in translation.matches(page)[0]:
        if everything or match.state != CURRENT:
            text = _filled(match.entry) if match.entry else ""
            parts.append(f"%%% {match.key} {match.state}\n{match.english}\n%%%\n{text}")
    return "\n".join(parts)


def _filled(entry: Entry) -> str:
    """Returns a translation as a sheet has it, with its freedoms."""
    lines = [f"free: {term} = {reason}" for term, reason in entry.free.items()]
    return "\n".join([*lines, entry.text, ""])


def take(translation: Translation, page: str, filled: str) -> int:
    """Stores the translations of a sheet that has been filled in.

    Args:
        translation: The language.
        page: The English page, as a path below the root.
        filled: The sheet. Parts without a translation are left out.

    Returns:
        How many translations were stored.

    Raises:
        SystemExit: A part does not keep what it has to; nothing was stored.
    """
    path = stored_at(translation.root, translation.language.code, page)
    words = glossary(translation.root, translation.language.code)
    entries = rekeyed(translation.matches(page)[0])
    taken = {}
    found = []
    for key, _, english, text in SHEET.findall(filled):
        free = {}
        while said := FREE.match(text := text.lstrip()):
            free[said[1]] = said[2]
            text = text[said.end() :]
        if text.strip():
            english = english.strip("\n")
            entry = Entry(english, text.strip(), free)
            taken[key] = entry
            found += [f"{key}: {problem}" for problem in problems(entry, words)]
    if not taken:
        raise SystemExit("The sheet has no part with a translation below its line %%%.")
    if found:
        raise SystemExit("\n".join(found))
    _put(path, dumped(entries | taken))
    return len(taken)


def counts(root: Path = ROOT) -> Iterator[str]:
    """Yields a line for each translated page: how many of its blocks are in which state."""
    for translation in translations(root):
        for page in translation.pages:
            states = [match.state for match in translation.matches(page)[0]]
            told = ", ".join(f"{states.count(one)} {one}" for one in (CURRENT, STALE, MISSING))
            yield f"{translation.language.code} {page}: {told}"


def main(arguments: Sequence[str]) -> int:
    """Runs one of the commands, `write` without one."""
    known = {one.language.code: one for one in translations()}
    names = {Path(page).stem: page for page in pages()}
    parser = argparse.ArgumentParser(prog="translations.py", description=__doc__)
    commands = parser.add_subparsers(dest="command")
    for name in ("write", "check"):
        commands.add_parser(name)
    commands.add_parser("stale").add_argument("language", nargs="?", default="")
    for name in ("sheet", "take", "code"):
        command = commands.add_parser(name)
        command.add_argument("language", choices=known)
        command.add_argument("page", choices=names, metavar="page", help="README, 00_start_here...")
    commands.choices["sheet"].add_argument("--all", action="store_true", dest="everything")
    commands.choices["take"].add_argument("sheet", type=Path)
    given = parser.parse_args(arguments)
    if given.command == "check":
        lines = list(wrong())
        lines += [f"{name} is not up to date: make translations" for name in outdated()]
        print("\n".join([*lines, *counts()]))
        print(f"{len(lines)} to put right.")
        return int(bool(lines))
    if given.command == "stale":
        found = list(stale(code=given.language))
        print("\n\n".join(found) if found else "All translations are current.")
    elif given.command == "sheet":
        print(sheet(known[given.language], names[given.page], given.everything), end="")
    elif given.command == "take":
        text = given.sheet.read_text(encoding="utf-8")
        stored = take(known[given.language], names[given.page], text)
        print(f"Stored {stored} translations. Now: make translations")
    elif given.command == "code":
        translation, page = known[given.language], names[given.page]
        print(f"Fill in {_store_words(translation, page, translation.words(page))}")
    else:
        changed = write()
        print("\n".join([*(f"wrote {name}" for name in changed), *counts()]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
