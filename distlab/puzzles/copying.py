"""A solver's function as text that runs again elsewhere: with what it uses of its notebook."""

import inspect
import textwrap
import types
from collections.abc import Callable
from typing import Any

_PLAIN = (bool, int, float, str, type(None), tuple, list, dict)


def as_text(number: int, solve: Callable[..., Any]) -> str:
    """A solution as a program: imports, the functions and values that it uses, the check.

    Args:
        number: Of the puzzle.
        solve: The solver's function.

    Returns:
        Text; empty if the source cannot be found.
    """
    found: dict[str, str] = {}
    imports: set[str] = set()
    try:
        name = _collect(solve, found, imports)
    except (OSError, TypeError):  # written where no source is kept, such as `python -c`
        return ""
    imports.add("from distlab import puzzles")
    parts = ["\n".join(sorted(imports)), *found.values()]
    return "\n\n\n".join(parts) + f"\n\n\nprint(puzzles.check({number}, {name}))\n"


def _collect(function: Callable[..., Any], found: dict[str, str], imports: set[str]) -> str:
    """Take note of a function or a class, after all that it uses; return its name."""
    source = textwrap.dedent(inspect.getsource(function))
    name = function.__name__
    if name in found or name == "<lambda>":
        if name == "<lambda>":
            raise TypeError("A lambda has no source of its own.")
        return name
    found[name] = ""  # it may use itself
    for used, value in _used(function).items():
        if used in found:
            continue
        if isinstance(value, types.ModuleType):
            here = "" if used == value.__name__ else f" as {used}"
            imports.add(f"import {value.__name__}{here}")
        elif isinstance(value, types.FunctionType | type) and _is_solvers(value, function):
            _collect(value, found, imports)
        elif isinstance(value, types.FunctionType | type | types.BuiltinFunctionType):
            imports.add(f"from {value.__module__} import {value.__name__}")
        elif isinstance(value, _PLAIN):
            found[used] = f"{used} = {value!r}"
    found[name] = found.pop(name) or source.rstrip()
    return name


def _is_solvers(value: Any, function: Callable[..., Any]) -> bool:
    return bool(value.__module__ == function.__module__)


def _used(function: Callable[..., Any]) -> dict[str, Any]:
    """The names outside of a function or class that its code uses, with their values."""
    methods = [function]
    if isinstance(function, type):
        methods = [each for each in vars(function).values() if inspect.isfunction(each)]
    used: dict[str, Any] = {}
    for method in methods:
        names = _names(method.__code__)
        inner = method.__closure__ or ()
        outside = dict(zip(method.__code__.co_freevars, inner, strict=True))
        used |= {name: cell.cell_contents for name, cell in outside.items()}
        used |= {name: method.__globals__[name] for name in names if name in method.__globals__}
    return used


def _names(code: types.CodeType) -> list[str]:
    names = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names += _names(constant)
    return names
