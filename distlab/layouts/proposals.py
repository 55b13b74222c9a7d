"""Rules to paste: each is tried on all paths, in the ways of all versions, before it is printed."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from distlab.layouts.rules import FULLMATCH, MATCH, SEARCH, Rules

Axes = tuple[tuple[str, ...], ...]


class Where(NamedTuple):
    """The rules that there are, all paths that they may match, and the names of the models."""

    rules: Rules
    paths: Sequence[str]
    names: Sequence[str]


def form_of(path: str) -> str:
    """Return a path without its numbers, which Keras gives to names from the second on."""
    return re.sub(r"\d+", "#", re.sub(r"_\d+(?=/|$)", "", path))


def _pattern(paths: Sequence[str]) -> str:
    """A regular expression for paths of one form."""
    parts = []
    for alike in map(set, zip(*(path.split("/") for path in paths), strict=True)):
        first = re.escape(min(alike))
        if len(alike) > 1:
            stem, *others = {re.sub(r"_\d+$", "", part) for part in alike}
            if others:
                first = re.sub(r"\d+", r"\\d+", first)
            else:  # `block`, `block_1`, `block_2`
                first = re.escape(stem) + (r"(_\d+)?" if stem in alike else r"_\d+")
        parts.append(first)
    return "/".join(parts)


def key_for(where: Where, wanted: Sequence[str], stem: str = "") -> str | None:
    """Return a key that claims just the `wanted` of all paths, whatever the version of Keras.

    Args:
        where: The rules that there are, and all paths that they may match.
        wanted: Those to match, all of one form (see `form_of`).
        stem: A regular expression for how they end. The default is one for all of each, without
            the name of the model.

    Returns:
        The key, or None if no simple one will do.
    """
    rules, paths, names = where
    head = wanted[0].partition("/")[0]
    stem = stem or _pattern([p.removeprefix(f"{head}/" * (head in names)) for p in wanted])
    ways = (MATCH,) if rules.how == MATCH else (FULLMATCH, SEARCH)
    for key in (f".*{stem}", f"^(.*/)?{stem}$", f"^{stem}$"):
        if all(rules.matched(key, paths, way) == list(wanted) for way in ways):
            return key
    return None


def rule_for(where: Where, wanted: Sequence[str], axes: Axes) -> str | None:
    """Return a line of Python that adds a rule for paths without one; None if no key is simple."""
    key = key_for(where, wanted)
    return None if key is None else line_for(where, key, axes)


def line_for(where: Where, key: str, axes: Axes) -> str:
    """Return a line of Python that adds a rule with this key."""
    if where.rules.how == MATCH:
        names = ", ".join(repr(each[0]) if each else "dtensor.UNSHARDED" for each in axes)
        return f"layout_map[{key!r}] = dtensor.Layout([{names}], mesh)"
    plain = tuple((each[0] if len(each) == 1 else each) if each else None for each in axes)
    return f"layout_map[{key!r}] = {plain!r}"


def axes_that_fit(rules: Rules, shape: Sequence[int], names: Iterable[str]) -> Axes | None:
    """Return axes for a shape: its largest dimension that the largest mesh axis divides."""
    for name in sorted(names, key=rules.mesh.size, reverse=True):
        for dimension in sorted(range(len(shape)), key=lambda i: -shape[i]):
            if shape[dimension] and shape[dimension] % rules.mesh.size(name) == 0:
                return tuple((name,) if i == dimension else () for i in range(len(shape)))
    return None
