"""What pictures and tables say in another language than English, from one table for each."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

_chosen = ""


def use_language(language: str) -> None:
    """Choose the language of the pictures and tables that follow.

    Args:
        language: `ko`, or `en`.

    Raises:
        ValueError: If there is no table for the language.
    """
    global _chosen
    known = sorted(path.stem for path in Path(__file__).with_name("phrasebook").glob("*.json"))
    if language not in ("en", *known):
        raise ValueError(f"There is no language {language!r}: expected en, {', '.join(known)}.")
    _chosen = "" if language == "en" else language


def is_english() -> bool:
    """Whether pictures and tables are in English, as they are unless another is chosen."""
    return not _chosen


def said(english: str) -> str:
    """Return what a picture or a table says in the language that is chosen.

    A text that is a word of the table becomes its translation; of others the phrases are replaced
    that the table has. What a caller wrote, such as the name of a weight, stays.
    """
    if not _chosen or not english:
        return english
    words, phrases = _table(_chosen)
    text = words.get(english, english)
    if text == english:
        for pattern, translated in phrases:
            text = pattern.sub(translated, text)
    return text


def in_english(text: Any) -> Any:
    """Return the English of a word in the language that is chosen: it names the same thing."""
    words, _ = _table(_chosen) if _chosen else ({}, ())
    return next((english for english, word in words.items() if word == text), text)


@cache
def _table(language: str) -> tuple[dict[str, str], tuple[tuple[re.Pattern[str], str], ...]]:
    path = Path(__file__).with_name("phrasebook") / f"{language}.json"
    stored = json.loads(path.read_text(encoding="utf-8"))
    return stored["words"], tuple((re.compile(p), text) for p, text in stored["phrases"].items())
