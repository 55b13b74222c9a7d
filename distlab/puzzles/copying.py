"""A solver's function as text that runs again elsewhere: with what it uses of its notebook."""

import ast
import dis
import inspect
import linecache
import sys
import textwrap
import types
from collections.abc import Callable, Iterable
from typing import Any

from distlab.puzzles.literals import literal


class NoTextError(Exception):
    """A solution that cannot be written as text; the words say why."""


def as_text(number: int, solve: Callable[..., Any]) -> str:
    """A solution as a program: imports, the functions and values that it uses, the check.

    Args:
        number: Of the puzzle.
        solve: The solver's function.

    Returns:
        Text.

    Raises:
        NoTextError: If it cannot be written so that it runs again.
    """
    if not isinstance(solve, types.FunctionType):
        words = {
            types.MethodType: "a method, whose object is not part of the text",
            types.BuiltinFunctionType: "built in, and has no source",
        }.get(type(solve), f"no function but an object of the class {type(solve).__name__}")
        raise NoTextError(f"it is {words}")
    found: dict[str, str] = {}
    imports: set[str] = set()
    try:
        name = _collect(solve, found, imports, {})
    except (
        OSError,
        SyntaxError,
        TypeError,
    ) as error:  # written where no source is kept: `exec`, `python -c`
        raise NoTextError(f"its source is not kept ({error})") from None
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
        else:
            try:
                found[used] = f"{used} = {literal(value)}"
            except TypeError as error:
                raise NoTextError(f"it uses {used}, and {error}") from None
    found[name] = found.pop(name) or source.rstrip()
    return name


def _source(function: Callable[..., Any]) -> tuple[str, str]:
    """The name and the text of a function itself, not of one that it wraps or is wrapped by."""
    if not isinstance(function, types.FunctionType):
        return function.__name__, textwrap.dedent(_source_of_class(function)[1])
    name = function.__code__.co_name
    if name == "<lambda>":
        raise NoTextError("it is, or uses, a lambda; use def")
    source = textwrap.dedent(inspect.getsource(function.__code__))
    start = ast.parse(source).body[0].lineno  # after its decorators: what they made is collected
    return name, "".join(source.splitlines(keepends=True)[start - 1 :])


def _source_of_class(owner: Any) -> tuple[str, str]:
    """The file and the text of a class, which may be in a cell: there only its methods know it.

    Raises:
        OSError: If it is not found.
    """
    try:
        return inspect.getfile(owner), inspect.getsource(owner)
    except (OSError, TypeError):
        codes = [each.__code__ for each in vars(owner).values() if inspect.isfunction(each)]
    for code in codes:
        lines = linecache.getlines(code.co_filename)
        for node in ast.walk(ast.parse("".join(lines))):
            if not isinstance(node, ast.ClassDef) or node.name != owner.__name__:
                continue
            start = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            end = node.end_lineno or start
            if start <= code.co_firstlineno <= end:
                return code.co_filename, "".join(lines[start - 1 : end])
    raise OSError(f"that of the class {owner.__name__} is not found")


def _taken(name: str, value: object, named: dict[str, Any]) -> bool:
    """Whether a name has its value in the text; from now on it has.

    Raises:
        NoTextError: If the name has a different value there, as in two functions with locals.
    """
    if name in named and named[name] is not value:
        raise NoTextError(f"{name} is not the same in all functions that it uses")
    known = name in named
    named[name] = value
    return known


def _is_solvers(value: Any, function: Callable[..., Any]) -> bool:
    return bool(value.__module__ == function.__module__)


def _is_written(method: types.FunctionType, owner: type) -> bool:
    """Whether a method is in the text of its class, not made by a decorator or a base class."""
    return method.__code__.co_filename == _source_of_class(owner)[0]


def _used(function: Callable[..., Any]) -> dict[str, Any]:
    """The names outside of a function or class that its code uses, with their values."""
    methods = [function]
    used: dict[str, Any] = {}
    tree = ast.parse(_source(function)[1]).body[0]
    if isinstance(function, type):
        functions = [each for each in vars(function).values() if inspect.isfunction(each)]
        methods = [each for each in functions if _is_written(each, function)]
        known = vars(sys.modules[function.__module__])
        evaluated: Iterable[ast.AST] = [tree]
    else:
        known = function.__globals__
        evaluated = [tree.args] if isinstance(tree, ast.FunctionDef) else []
    for name in {name for each in evaluated for name in _read(each)} & known.keys():
        used[name] = known[name]
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


def _read(tree: ast.AST) -> list[str]:
    """The names that a piece of a program reads: defaults of arguments, say."""
    every = [each for each in ast.walk(tree) if isinstance(each, ast.Name)]
    return [each.id for each in every if isinstance(each.ctx, ast.Load)]


def _names(code: types.CodeType) -> list[str]:
    """The global names in code, without those of attributes: `me.x` needs no global x."""
    names = [
        step.argval
        for step in dis.get_instructions(code)
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    ]
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names += _names(constant)
    return names
