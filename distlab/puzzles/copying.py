"""A solver's function as text that runs again elsewhere: with what it uses of its notebook."""

import ast
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
        name = _collect(solve, found, imports, {})
    except (OSError, TypeError):  # written where no source is kept, such as `python -c`
        return ""
    imports.add("from distlab import puzzles")
    parts = ["\n".join(sorted(imports)), *found.values()]
    return "\n\n\n".join(parts) + f"\n\n\nprint(puzzles.check({number}, {name}))\n"


def _collect(
    function: Callable[..., Any],
    found: dict[str, str],
    imports: set[str],
    named: dict[str, Any],
) -> str:
    """Take note of a function or a class, after all that it uses; return its name."""
    name, source = _source(function)
    if _taken(name, function, named):
        return name
    found[name] = ""  # it may use itself
    for used, value in _used(function).items():
        if _taken(used, value, named):
            continue
        if isinstance(value, types.ModuleType):
            here = "" if used == value.__name__ else f" as {used}"
            imports.add(f"import {value.__name__}{here}")
        elif isinstance(value, types.FunctionType | type) and _is_solvers(value, function):
            del named[used]
            own = _collect(value, found, imports, named)
            if own != used:  # a closure knows it by its own name
                named[used] = value
                found[used] = f"{used} = {own}"
        elif isinstance(value, types.FunctionType | type | types.BuiltinFunctionType):
            here = "" if used == value.__name__ else f" as {used}"
            imports.add(f"from {value.__module__} import {value.__name__}{here}")
        elif isinstance(value, _PLAIN):
            found[used] = f"{used} = {value!r}"
    found[name] = found.pop(name) or source.rstrip()
    return name


def _source(function: Callable[..., Any]) -> tuple[str, str]:
    """The name and the text of a function itself, not of one that it wraps or is wrapped by."""
    if not isinstance(function, types.FunctionType):
        return function.__name__, textwrap.dedent(inspect.getsource(function))
    name = function.__code__.co_name
    if name == "<lambda>":
        raise TypeError("A lambda has no source of its own.")
    source = textwrap.dedent(inspect.getsource(function.__code__))
    start = ast.parse(source).body[0].lineno  # after its decorators: what they made is collected
    return name, "".join(source.splitlines(keepends=True)[start - 1 :])


def _taken(name: str, value: object, named: dict[str, Any]) -> bool:
    """Whether a name has its value in the text; from now on it has.

    Raises:
        TypeError: If the name has a different value there, as in two functions with locals.
    """
    if name in named and named[name] is not value:
        raise TypeError(f"{name} has different values in different functions.")
    known = name in named
    named[name] = value
    return known


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
        used |= {name: cell.cell_contents for name, cell in outside.items() if _filled(cell)}
        used |= {name: method.__globals__[name] for name in names if name in method.__globals__}
    return used


def _filled(cell: types.CellType) -> bool:
    """Whether a variable of an enclosing function has a value yet."""
    try:
        cell.cell_contents  # noqa: B018 - there is no other way to ask
    except ValueError:
        return False
    return True


def _names(code: types.CodeType) -> list[str]:
    names = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names += _names(constant)
    return names
