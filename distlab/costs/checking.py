"""What sizes have to be, in the words of the errors about them."""

import math
from dataclasses import fields
from numbers import Integral, Real
from types import NoneType
from typing import Any, get_args


def held(owner: Any, *zero: str) -> None:
    """Hold the numbers and flags of a dataclass to their types: above 0, but for those in `zero`.

    They become numbers of Python's: NumPy's would overflow without a word where FLOPs are counted.

    Raises:
        TypeError: If one is of another type.
        ValueError: If one is too small, or not finite.
    """
    for name, kind in ((field.name, field.type) for field in fields(owner)):
        value, kinds = getattr(owner, name), get_args(kind) or (kind,)
        if value is None and NoneType in kinds:
            continue
        if int in kinds:
            object.__setattr__(owner, name, whole(name, value, least=0 if name in zero else 1))
        elif float in kinds:
            object.__setattr__(owner, name, number(name, value, zero=name in zero))
        elif bool in kinds and not isinstance(value, bool):
            raise TypeError(f"{name}={value!r}: give True or False")


def whole(name: str, value: Any, least: int = 1) -> int:
    """Return the value as an int; raise unless it is a whole number of at least so much."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name}={value!r}: give a whole number")
    if value < least:
        raise ValueError(f"{name}={value}: give at least {least}")
    return int(value)


def number(name: str, value: Any, zero: bool = False) -> float:
    """Return the value; raise unless it is a finite number above 0, or with `zero` at least 0."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name}={value!r}: give a number")
    if not math.isfinite(value) or value < 0 or (value == 0 and not zero):
        raise ValueError(f"{name}={value}: give {'at least 0' if zero else 'more than 0'}")
    return value if isinstance(value, int) else float(value)


def divisible(name: str, value: int, by: str, divisor: int, cure: str = "") -> None:
    """Raise a ValueError unless one size divides the other."""
    if divisor > 0 and value % divisor:
        raise ValueError(
            f"{name}={value} is not divisible by {by}={divisor}: choose sizes that divide"
            + (f", {cure}" if cure else "")
        )


def one_of(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    """Raise a ValueError unless the value is one of those allowed."""
    if isinstance(value, bool) or value not in allowed:
        raise ValueError(f"{name}={value!r}: give one of {', '.join(map(repr, allowed))}")


def of_kind(name: str, value: Any, kind: type) -> None:
    """Raise a TypeError unless the value is of that kind."""
    if not isinstance(value, kind):
        raise TypeError(f"{name}={value!r}: give a costs.{kind.__name__}")
