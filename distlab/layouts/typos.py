"""Keys that match nothing: the paths that are nearest, and the key that was probably meant."""

import re
from collections.abc import Sequence
from difflib import SequenceMatcher, get_close_matches

from distlab.layouts.findings import some
from distlab.layouts.proposals import Where, line_for
from distlab.layouts.rules import FULLMATCH, MATCH, SEARCH, Rule, Rules
from distlab.layouts.variables import Variable
from distlab.layouts.view import split

ALIKE = 0.75
"""How much of two words has to agree: `kernal` and `kernel` have 0.83, `up` and `down` none."""
PARTS = re.compile(r"((?:\^|\.\*|\(\.\*/\)\?)*)(.*?)(\$?)", re.DOTALL)


def nearest(where: Where, rule: Rule, variables: Sequence[Variable]) -> tuple[str, tuple[str, ...]]:
    """Sentences about a rule that matches nothing, and the paths that its corrected key matches.

    Where that key is clear, they end in a rule to paste, with the reader's own layout.
    """
    meant = _meant(where, rule.key)
    if meant is None:
        return _near(rule.key, where.paths), ()
    key, paths = meant
    text = f" Nearest: {some(paths)}."
    for variable in variables:
        if variable.path in paths and not _fits(where.rules, rule, variable):
            return text, ()
    return f"{text} Write: {line_for(where, key, rule.axes)}", tuple(paths)


def _fits(rules: Rules, rule: Rule, variable: Variable) -> bool:
    try:
        split(variable.shape, rules.mesh, rule.axes)
    except ValueError:
        return False
    return len(rule.axes) == len(variable.shape)


def _near(key: str, paths: Sequence[str]) -> str:
    """A sentence with the paths most like a key, or with all of them."""
    plain = key.replace(".*", "").replace("\\", "").strip("^$()?/")
    names = {path: path for path in paths}
    for path in paths:  # `a/b/c` ends in `b/c`, which is what a rule tends to name
        parts = path.split("/")
        names |= {"/".join(parts[i:]): path for i in range(1, len(parts) - 1)}
    close = list(dict.fromkeys(names[name] for name in get_close_matches(plain, names, 6, 0.6)))
    return f" Nearest: {some(close)}." if close else f" There are: {some(paths)}."


def _meant(where: Where, key: str) -> tuple[str, list[str]] | None:
    """A key with its mistyped words put right, and what it matches; None if that is not clear."""
    rules, paths, _ = where
    head, stem, tail = PARTS.fullmatch(key).groups()  # type: ignore[union-attr]
    words = stem.split("/")
    found: dict[str, tuple[bool, float]] = {}
    for path in paths:
        names = path.split("/")[-len(words) :]
        if len(names) < len(words) or rules.matching(path) or not all(map(_alike, words, names)):
            continue
        better = "/".join(map(_corrected, words, names))
        same_numbers = re.findall(r"\d+", better) == re.findall(r"\d+", stem)
        found[better] = same_numbers, SequenceMatcher(None, stem, better).ratio()
    ranking = sorted(found, key=lambda each: found[each], reverse=True)
    if not ranking:
        return None
    best = ranking[0]
    if ranking[1:] and (found[best] == found[ranking[1]] or not found[best][0]):
        return None
    ways = (MATCH,) if rules.how == MATCH else (FULLMATCH, SEARCH)
    for better in (f"{head}{best}{tail}", f".*{best}", f"^(.*/)?{best}$", f"^{best}$"):
        wanted, *others = [rules.matched(better, paths, way) for way in ways]
        if wanted and all(each == wanted for each in others):
            several = re.search(r"[*+?|\[\\]", head + stem)  # the reader's key is for several
            fits = (several or len(wanted) == 1) and not any(map(rules.matching, wanted))
            return (better, wanted) if fits else None
    return None


def _matches(word: str, other: str) -> bool:
    try:
        return bool(re.fullmatch(word, other))
    except re.error:  # half of a group, which has a slash in it
        return False


def _alike(word: str, other: str) -> bool:
    return _matches(word, other) or SequenceMatcher(None, word, other).ratio() >= ALIKE


def _corrected(word: str, other: str) -> str:
    return word if _matches(word, other) else re.escape(other)
