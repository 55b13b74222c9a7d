"""What a translation has to keep of its English text: links, code, numbers, shape, terms."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from markdown_text import CODE, headings, prose, targets
from translation_store import Entry

NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
TAG = re.compile(r"</?[a-z]\w*")
SHAPE = re.compile(r"^ *(?:[-*]|\d+\.) |^\||^>", re.MULTILINE)
"""How an item of a list, a row of a table and a quotation begin."""


def problems(entry: Entry, glossary: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yields what is wrong with one translation.

    Args:
        entry: The translation, beside the English text it was made from.
        glossary: English terms to what they are called in the translation's language.
    """
    if not entry.text.strip():
        yield "it is empty"
        return
    both = (entry.english, entry.text)
    yield from _compared("links", *map(targets, both))
    code, here = map(_one_line, both)
    # A sentence may name a function once more, where the English one says "it".
    again = Counter(here) - Counter(code)
    repeated = [name for name in again.elements() if name in code]
    yield from _compared("code", [*code, *repeated], here)
    yield from _compared("tags", *(_found(TAG, one) for one in both))
    levels = ([level for level, _ in headings(one)] for one in both)
    yield from _compared("levels of headings", *levels)
    shapes = ([mark.strip() for mark in _found(SHAPE, one)] for one in both)
    yield from _compared("items of lists and rows of tables", *shapes)
    # There may be more of them: digits may stand for a word, such as 8 for eight.
    there, said = (Counter(NUMBER.findall(prose(one))) for one in both)
    yield from (f"lacks the number {number}" for number in there - said)
    yield from terms(entry, glossary)


def terms_in(english: str, glossary: Mapping[str, Sequence[str]]) -> list[str]:
    """Returns the terms of the glossary that the prose of a text uses, of two the longer one.

    Example:
        >>> terms_in("Two parameter servers.", {"server": [], "parameter server": []})
        ['parameter server']
    """
    text = prose(english)
    found = []
    for term in sorted(glossary, key=len, reverse=True):
        words = re.escape(term).replace(r"\ ", r"\s+")
        many = f"{words[:-1]}(?:y|ies)" if term.endswith("y") else f"{words}(?:e?s)?"
        pattern = re.compile(rf"(?<![\w-]){many}(?![\w-])", re.IGNORECASE)
        if pattern.search(text):
            found.append(term)
            text = pattern.sub(" ", text)
    return found


def terms(entry: Entry, glossary: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yields the terms that a translation does not translate as the glossary does.

    Args:
        entry: The translation. Its `free` names terms that it may translate differently.
        glossary: English terms to what they are called in the translation's language.
    """
    said = prose(entry.text).lower()
    used = terms_in(entry.english, glossary)
    for term in used:
        if term not in entry.free and not any(form.lower() in said for form in glossary[term]):
            yield f"translates {term!r} as none of: {', '.join(glossary[term])}"
    for term, reason in entry.free.items():
        if term not in used:
            yield f"is free to translate {term!r}, which the English text does not have"
        elif not reason.strip():
            yield f"is free to translate {term!r}, and does not say why"


def _compared(what: str, english: Sequence[object], text: Sequence[object]) -> Iterator[str]:
    """Yields how two lists differ, whatever their order."""
    there, here = Counter(english), Counter(text)
    if lost := there - here:
        yield f"lacks {what}: {', '.join(map(str, lost.elements()))}"
    if added := here - there:
        yield f"has {what} that the English text does not have: " + ", ".join(
            map(str, added.elements())
        )


def _one_line(text: str) -> list[str]:
    """Returns the code of a text; inline code may go from one line to the next."""
    return [
        code if code.startswith("```") else " ".join(code.split()) for code in CODE.findall(text)
    ]


def _found(pattern: re.Pattern[str], text: str) -> list[str]:
    """Returns what a pattern finds in a text outside of its code."""
    return pattern.findall(CODE.sub("`", text))
