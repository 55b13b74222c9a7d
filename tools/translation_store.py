"""What is kept of a translation: for each block the English text it was made from, and its own.

`translations/ko/00_start_here.json` has the cells of `notebooks/00_start_here.ipynb` by their ids,
`translations/ko/README.json` the blocks of README.md by their section and number, and so for docs.
"""

import csv
import difflib
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from markdown_text import CODE

ROOT = Path(__file__).resolve().parent.parent
CURRENT, STALE, MISSING = "current", "stale", "missing"
ALIKE = 0.5
"""Two texts are versions of one block of a page if this much of them is the same."""


@dataclass(frozen=True)
class Entry:
    """One stored translation.

    Attributes:
        english: The text it was made from.
        text: The translation. Its links lead where the English ones do.
        free: Terms of the glossary that this text may translate differently, each with a reason.
    """

    english: str
    text: str
    free: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Match:
    """A cell of Markdown, or a block of a page, with its translation or one of an earlier text.

    Attributes:
        key: A cell's id, or a block's section and number.
        english: Its text, without what `make stamp` adds.
        entry: What is stored for it, if anything.
    """

    key: str
    english: str
    entry: Entry | None

    @property
    def state(self) -> str:
        """`current`, `stale` or `missing`."""
        if self.entry is None:
            return MISSING
        return CURRENT if normalised(self.entry.english) == normalised(self.english) else STALE


@dataclass(frozen=True)
class Language:
    """A language that pages are translated to.

    Attributes:
        code: Its folder's name, such as `ko`.
        name: What its readers call it.
        note: The second paragraph of a page: what is still in English.
        code_note: What it says besides, where code and outputs are in English, too.
        untranslated: The paragraph above a block that is still in English.
        row: The same for a row of a table, in brackets behind its first cell.
    """

    code: str
    name: str
    note: str
    code_note: str
    untranslated: str
    row: str


def normalised(english: str) -> str:
    r"""Returns a text without what a reader does not see: where its lines are broken.

    Code keeps its lines.

    Example:
        >>> normalised("One\nline.\n\n\nTwo `a  b`. ")
        'One line.\n\nTwo `a  b`.'
    """
    parts = CODE.split(english.strip())
    for place in range(0, len(parts), 2):
        paragraphs = re.split(r"\n[ \t]*\n\s*", parts[place])
        parts[place] = "\n\n".join(re.sub(r"\s+", " ", part) for part in paragraphs)
    return "".join(parts).strip()


def known_languages(root: Path = ROOT) -> dict[str, Language]:
    """Returns the languages in `translations/languages.json` by their codes; none without it."""
    path = root / "translations" / "languages.json"
    if not path.exists():
        return {}
    stored = json.loads(path.read_text(encoding="utf-8"))
    return {code: Language(code, **words) for code, words in stored.items()}


def stored_at(root: Path, language: str, page: str) -> Path:
    """Returns the file with a page's translation, there or not."""
    return root / "translations" / language / f"{Path(page).stem}.json"


def languages_of(root: Path, page: str) -> list[Language]:
    """Returns the languages that a page has been translated to."""
    known = known_languages(root).values()
    return [one for one in known if stored_at(root, one.code, page).exists()]


def load(path: Path) -> dict[str, Entry]:
    """Returns the stored translations of a page by their keys; none if there is no file."""
    if not path.exists():
        return {}
    entries = {}
    for key, kept in json.loads(path.read_text(encoding="utf-8")).items():
        english, text = ("\n".join(kept[name]) for name in ("english", "text"))
        entries[key] = Entry(english, text, kept.get("free", {}))
    return entries


def dumped(entries: dict[str, Entry]) -> str:
    """Returns the file's text: JSON with a line for each line, so that git shows what changed."""
    stored: dict[str, object] = {}
    for key, entry in entries.items():
        stored[key] = {
            "sha256": hashlib.sha256(normalised(entry.english).encode()).hexdigest(),
            "english": entry.english.split("\n"),
            "text": entry.text.split("\n"),
            **({"free": entry.free} if entry.free else {}),
        }
    return json.dumps(stored, ensure_ascii=False, indent=1) + "\n"


def matched(
    units: Mapping[str, str], entries: Mapping[str, Entry]
) -> tuple[list[Match], dict[str, Entry]]:
    """Finds the translation of each cell or block.

    A block that has only moved keeps its translation, whatever its number is now. One that was
    changed gets the translation of the text that is most like it.

    Args:
        units: The English texts by their keys.
        entries: What is stored.

    Returns:
        A match for each text, in order, and the entries that belong to none any more.
    """
    left = dict(entries)
    found: dict[str, Entry] = {}
    texts = {key: normalised(entry.english) for key, entry in entries.items()}
    for is_same_key in (True, False):
        for unit, english in units.items():
            if unit not in found:
                keys = [unit] if is_same_key else list(left)
                text = normalised(english)
                if same := [key for key in keys if key in left and texts[key] == text]:
                    found[unit] = left.pop(same[0])
    for unit in units.keys() & left.keys():
        if unit not in found and " " not in unit:  # a cell keeps its id, whatever it says
            found[unit] = left.pop(unit)
    likely = [
        (likeness, unit, key)
        for unit in units.keys() - found.keys()
        for key, entry in left.items()
        if (likeness := _likeness(units[unit], entry.english)) >= ALIKE
    ]
    for _, unit, old in sorted(likely, reverse=True):
        if unit not in found and old in left:
            found[unit] = left.pop(old)
    return [Match(unit, text, found.get(unit)) for unit, text in units.items()], left


def _likeness(one: str, other: str) -> float:
    """Returns how much of two texts is the same, from 0 to 1."""
    return difflib.SequenceMatcher(None, one.split(), other.split(), autojunk=False).ratio()


def rekeyed(matches: Sequence[Match]) -> dict[str, Entry]:
    """Returns the entries in the order of the page and under its keys.

    Where only the breaks of lines have changed, the stored English text follows.
    """
    entries = {}
    for match in matches:
        if match.entry:
            is_current = match.state == CURRENT
            english = match.english if is_current else match.entry.english
            entries[match.key] = replace(match.entry, english=english)
    return entries


def glossary(root: Path, language: str) -> dict[str, list[str]]:
    """Returns the terms of `translations/glossary.csv` with what a language calls them.

    Returns:
        The English term, in small letters, to its translations: the usual one first.
    """
    text = (root / "translations" / "glossary.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return {row["term"].lower(): row[language].split("|") for row in rows if row[language]}
