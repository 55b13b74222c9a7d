"""Writes translated pages: the English ones, with those blocks replaced that are translated.

Code and outputs are the English page's, byte for byte, but for lessons whose code is translated
(translated_code.py). A block whose translation is missing, or was made from an earlier text, stays
English under a visible mark; of a cell only those paragraphs and rows that have changed.
"""

import json
import posixpath
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from badges import repository_in, with_badge, with_badges, without_badges
from cells import source_of, with_source, written
from markdown_text import HEADING, TARGET, Block, anchor, blocks, headings, is_switch, outside_code
from translated_code import code_file, with_words
from translation_store import (
    CURRENT,
    ROOT,
    Entry,
    Language,
    Match,
    known_languages,
    languages_of,
    load,
    matched,
    normalised,
    stored_at,
)

README = "README.md"


def pages(root: Path = ROOT) -> list[str]:
    """Returns the English pages that can be translated, as paths below the root."""
    found = [*sorted(root.glob("docs/*.md")), *sorted(root.glob("notebooks/*.ipynb"))]
    return [README, *(path.relative_to(root).as_posix() for path in found)]


def place(page: str, language: str) -> str:
    """Returns where a page's translation is, as a path below the root.

    Example:
        >>> place("README.md", "ko"), place("docs/machines.md", "ko"), place("README.md", "en")
        ('README.ko.md', 'docs/ko/machines.md', 'README.md')
    """
    folder, name = posixpath.split(page)
    if language == "en":
        return page
    if not folder:
        return f"{name.removesuffix('.md')}.{language}.md"
    return posixpath.join(folder, language, name)


def switch(page: str, code: str, languages: Iterable[Language]) -> str:
    """Returns the line that leads from a page in one language to the same page in the others.

    Args:
        page: The English page.
        code: The language that the line is for, `en` or a code of `languages`.
        languages: Those that the page has been translated to.
    """
    up = "../" * place(page, code).count("/")
    names = [("en", "English"), *((one.code, one.name) for one in languages)]
    parts = [name if this == code else f"[{name}]({up}{place(page, this)})" for this, name in names]
    return " · ".join(parts)


def with_switches(root: Path = ROOT) -> dict[str, str]:
    """Returns the English pages in Markdown, each with the line that leads to its translations.

    Args:
        root: The project's folder. A page's line, if it has one, begins with `English`.
    """
    found = {}
    for page in pages(root):
        if page.endswith(".md"):
            line = switch(page, "en", languages_of(root, page))
            parts = blocks((root / page).read_text(encoding="utf-8"))
            found[page] = "".join(
                (line if is_switch(one.text) else one.text) + one.gap for one in parts
            )
    return found


def units(page: str, text: str) -> dict[str, str]:
    """Returns what of an English page is translated, by its keys, without what `make stamp` adds.

    Args:
        page: The page's path.
        text: The page's text.
    """
    if page.endswith(".md"):
        found = blocks(without_badges(text))
        return {block.key: block.text for block in found if block.number}
    cells = json.loads(text)["cells"]
    sources = {cell["id"]: source_of(cell) for cell in cells if cell["cell_type"] == "markdown"}
    title = cells[0]["id"]
    return sources | {title: with_badge(sources[title], "", "")}


def translated_blocks(entry: Entry) -> dict[str, str]:
    """Returns the paragraphs, headings and rows of a cell, normalised, with their translations.

    Returns:
        Nothing if the translation has different parts than the text it was made from.
    """
    english, translated = blocks(entry.english), blocks(entry.text)
    if [_kind(block) for block in english] != [_kind(block) for block in translated]:
        return {}
    pairs = zip(english, translated, strict=True)
    return {normalised(one.text): other.text for one, other in pairs}


def _kind(block: Block) -> tuple[bool, str]:
    """Returns whether a block is copied, and how it begins if it is no plain paragraph."""
    return block.number > 0, block.text[0] if block.text[0] in "#|<-" else ""


@dataclass
class Translation:
    """All pages of one language.

    Attributes:
        language: The language.
        root: The project's folder.
    """

    language: Language
    root: Path = ROOT

    def text(self, page: str) -> str:
        """Returns an English page's text."""
        return (self.root / page).read_text(encoding="utf-8")

    def words(self, page: str) -> dict[str, str]:
        """Returns the translated remarks of a lesson's code; none if it has its English ones."""
        path = code_file(self.root, self.language.code, page)
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}

    def matches(self, page: str) -> tuple[list[Match], dict[str, Entry]]:
        """Returns a match for each unit of a page, and the entries that belong to none."""
        entries = load(stored_at(self.root, self.language.code, page))
        return matched(units(page, self.text(page)), entries)

    @cached_property
    def pages(self) -> list[str]:
        """The English pages of which at least one block has been translated."""
        code = self.language.code
        return [page for page in pages(self.root) if stored_at(self.root, code, page).exists()]

    def all_written(self) -> dict[str, str]:
        """Returns the text of every translated page by its path below the root."""
        return {place(page, self.language.code): self.written(page) for page in self.pages}

    def written(self, page: str) -> str:
        """Returns a page's translation: the file's text."""
        line = switch(page, self.language.code, languages_of(self.root, page))
        given = {match.key: self._block(page, match) for match in self.matches(page)[0]}
        if page.endswith(".md"):
            return self._markdown(page, given, line)
        notebook = json.loads(self.text(page))
        cells = notebook["cells"]
        stamp = repository_in(source_of(cells[0]))
        words = self.words(page)
        for at, cell in enumerate(cells):
            if cell["cell_type"] == "markdown":
                cells[at] = with_source(cell, given[cell["id"]])
        if words:
            there = self.root / place(page, self.language.code)
            earlier = json.loads(there.read_text(encoding="utf-8")) if there.exists() else None
            with_words(notebook, words, self.language.code, earlier or {"cells": []})
        title, *rest = source_of(cells[0]).split("\n\n")
        at = 2 if rest[:1] == [self.language.untranslated] else 1
        note = self.language.note + ("" if words else self.language.code_note)
        first = "\n\n".join([title, line, *rest[:at], note, *rest[at:]])
        name = place(page, self.language.code).removeprefix("notebooks/")
        cells[0] = with_source(cells[0], with_badge(first, stamp, name))
        return written(notebook)

    def _markdown(self, page: str, given: dict[str, str], line: str) -> str:
        """Returns a Markdown page with the given blocks, and the badges of the English one."""
        english = self.text(page)
        stamp = repository_in(english)
        parts = []
        introduction = False
        for block in blocks(without_badges(english)):
            text = block.text
            if is_switch(block.text):
                text = line
            elif block.number:
                text = given[block.key]
            else:
                text = outside_code(text, lambda part: self._mended(page, part))
            if stamp and block.number and block.section == "Lessons":
                text = with_badges(text, stamp)
            parts.append(text + block.gap)
            if introduction:
                parts.append(f"{self.language.note}{self.language.code_note}\n\n")
            introduction = is_switch(block.text)
        return "".join(parts)

    def _block(self, page: str, match: Match) -> str:
        """Returns what stands for a unit: its translation, or English text with a mark."""
        if match.entry is None:
            text = self._marked(match.english)
        elif match.state == CURRENT:
            text = match.entry.text
        else:
            text = self._renewed(match.english, match.entry)
        return outside_code(text, lambda part: self._mended(page, part))

    def _renewed(self, english: str, entry: Entry) -> str:
        """Returns a changed cell: paragraphs and rows that have not changed stay translated."""
        there = translated_blocks(entry)
        new = blocks(english)
        if not any(block.number and normalised(block.text) in there for block in new):
            return self._marked(english)
        parts = []
        is_english = False
        for block in new:
            text = there.get(normalised(block.text))
            if block.number and text is None and not (is_english and block.text[0] != "|"):
                text = self._marked(block.text)
            is_english = block.number > 0 and normalised(block.text) not in there
            parts.append((block.text if text is None else text) + block.gap)
        return "".join(parts).rstrip("\n")

    def _marked(self, english: str) -> str:
        """Returns an English text that says that it is not translated."""
        if english.startswith("|"):
            head, bar, rest = english[1:].partition("|")
            return f"|{head.rstrip()} *({self.language.row})* {bar}{rest}"
        title, gap, rest = english.partition("\n\n")
        if HEADING.fullmatch(title):
            return "\n\n".join([title, self.language.untranslated]) + gap + rest
        return f"{self.language.untranslated}\n\n{english}"

    def _mended(self, page: str, part: str) -> str:
        """Returns a text whose links lead from the translated page to where the English ones do."""
        up = "../" * place(page, self.language.code).count("/")

        def mend(target: str) -> str:
            path, hash_mark, fragment = target.partition("#")
            if ":" in path or path.startswith("/"):
                return target
            aim = (
                posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
            )
            fragment = self._anchor(aim, fragment)
            if not path:
                return f"#{fragment}"
            if aim in self.pages:
                aim = place(aim, self.language.code)
            return f"{up}{aim}{hash_mark}{fragment}"

        return TARGET.sub(lambda found: mend(found[0]), part)

    def _anchor(self, page: str, fragment: str) -> str:
        """Returns the anchor in a translated page for one of the English page."""
        if not fragment or page not in self.pages:
            return fragment
        is_notebook = page.endswith(".ipynb")
        for match in self.matches(page)[0]:
            if match.entry and match.state == CURRENT:
                titles = zip(headings(match.english), headings(match.entry.text), strict=False)
                for (_, english), (_, translated) in titles:
                    if anchor(english, is_notebook) == fragment:
                        return anchor(translated, is_notebook)
        return fragment


def translations(root: Path = ROOT) -> list[Translation]:
    """Returns the translation to each language that the project has."""
    return [Translation(one, root) for one in known_languages(root).values()]
