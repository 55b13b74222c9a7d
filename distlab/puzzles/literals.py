"""Values as Python text that makes them again."""

import math
from typing import Any

_PLAIN = (bool, int, str, bytes, type(None))
_BRACKETS: dict[type, tuple[str, str]] = {list: ("[", "]"), set: ("{", "}"), dict: ("{", "}")}


def literal(value: Any) -> str:
    """A value as text: numbers, words, None, and lists, tuples, sets and mappings of these.

    Args:
        value: Any value; only the plain types themselves are taken, not classes made from them.

    Returns:
        An expression.

    Raises:
        TypeError: If there is no such text.

    Example:
        >>> literal([1, "a", float("inf")])
        "[1, 'a', float('inf')]"
    """
    return _literal(value, ())


def _literal(value: Any, around: tuple[int, ...]) -> str:
    kind = type(value)
    if kind in _PLAIN:
        return repr(value)
    if kind is float:
        return repr(value) if math.isfinite(value) else f"float({str(value)!r})"
    if kind is tuple:
        inside = [_literal(each, around) for each in value]
        return f"({', '.join(inside)}{',' * (len(inside) == 1)})"
    if kind not in _BRACKETS:
        raise TypeError(f"a {kind.__name__} cannot be written as text")
    if id(value) in around:
        raise TypeError(f"a {kind.__name__} that contains itself cannot be written as text")
    if kind is set and not value:
        return "set()"
    around = (*around, id(value))
    inside = (
        [f"{_literal(key, around)}: {_literal(each, around)}" for key, each in value.items()]
        if kind is dict
        else [_literal(each, around) for each in value]
    )
    opening, closing = _BRACKETS[kind]
    return f"{opening}{', '.join(inside)}{closing}"
