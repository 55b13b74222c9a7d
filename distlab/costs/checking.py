"""What sizes have to be, in the words of the errors about them."""

import math
from numbers import Integral, Real
from typing import Any

_LEAST = 1e6
"""What is below was meant in another unit, such as gigabytes."""


def positive(owner: Any, *names: tuple[str, ...]) -> None:
    """Make all these attributes ints; raise unless they are whole numbers of at least 1.

    Those of NumPy would overflow without a word where FLOPs are counted.

    Raises:
        TypeError: If one is no whole number.
        ValueError: If one is below 1.
    """
    for name in (name for group in names for name in group):
        object.__setattr__(owner, name, whole(name, getattr(owner, name)))


def whole(name: str, value: Any, least: int = 1) -> int:
    """Return the value as an int; raise unless it is a whole number of at least so much."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name}={value!r}: give a whole number")
    if value < least:
        raise ValueError(f"{name}={value}: give at least {least}")
    return int(value)


def flags(owner: Any, *names: str) -> None:
    """Raise a TypeError unless all these attributes are True or False."""
    for name in names:
        if not isinstance(value := getattr(owner, name), bool):
            raise TypeError(f"{name}={value!r}: give True or False")


def numbers(owner: Any, *names: str, zero: bool = False) -> None:
    """Make all these attributes numbers of Python's.

    Raise unless they are finite and above 0, or with `zero` at least 0.

    Raises:
        TypeError: If one is no number.
        ValueError: If one is too small, or not finite.
    """
    for name in names:
        value = getattr(owner, name)
        if isinstance(value, bool) or not isinstance(value, Real):
            raise TypeError(f"{name}={value!r}: give a number")
        if not math.isfinite(value) or value < 0 or (value == 0 and not zero):
            raise ValueError(f"{name}={value}: give {'at least 0' if zero else 'more than 0'}")
        if not isinstance(value, int):
            object.__setattr__(owner, name, float(value))


def in_unit(name: str, value: float, unit: str, usual: str) -> None:
    """Raise a ValueError if so small a number must have been meant in another unit."""
    if 0 < value < _LEAST:
        raise ValueError(f"{name}={value:g}: give {unit}, such as {usual}")


def divisible(name: str, value: int, by: str, divisor: int, cure: str = "") -> None:
    """Raise a ValueError unless one size divides the other."""
    if divisor > 0 and value % divisor:
        raise ValueError(
            f"{name}={value} does not divide by {by}={divisor}: choose sizes that divide"
            + (f", {cure}" if cure else "")
        )


def one_of(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    """Raise a ValueError unless the value is one of those allowed."""
    if isinstance(value, bool) or value not in allowed:
        raise ValueError(f"{name}={value!r}: give one of {', '.join(map(repr, allowed))}")


def room_of(room: Any, memory: float, usual: float) -> float:
    """Return the bytes of a device that are to stay free: those given, or the usual part.

    Raises:
        TypeError: If it is no number.
        ValueError: If it is not a part of the memory, or too little to be bytes.
    """
    if room is None:
        return memory * usual
    if isinstance(room, bool) or not isinstance(room, Real):
        raise TypeError(f"room={room!r}: give bytes, as a number")
    given = float(room)
    in_unit("room", given, "bytes", "10e9 for 10 GB")
    if not 0 <= given < memory:
        raise ValueError(
            f"room={given:,.0f}: give bytes that stay free, from 0 to less than the "
            f"{memory:,.0f} of a device"
        )
    return given


def of_kind(name: str, value: Any, kind: type) -> None:
    """Raise a TypeError unless the value is of that kind."""
    if not isinstance(value, kind):
        raise TypeError(f"{name}={value!r}: give a costs.{kind.__name__}")
