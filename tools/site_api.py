"""The pages about distlab's public surface, which Sphinx fills from the docstrings."""

import dataclasses
import importlib
import inspect
from types import ModuleType
from typing import Any

ABOUT = (
    "What distlab promises to keep: every name on these pages, and no other. The text is that of"
    " the docstrings, which `help` shows, too. A test runs their examples.\n"
)


def first_line(thing: object) -> str:
    """Returns the first line of a docstring."""
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def members(module: ModuleType) -> list[str]:
    """Returns the public names of a module: functions, then classes, then constants."""

    def kind(name: str) -> int:
        thing = getattr(module, name)
        return inspect.isclass(thing) + 2 * (not callable(thing))

    return sorted(module.__all__, key=kind)


def entry(module: ModuleType, name: str) -> str:
    """Returns the directive that documents one name."""
    thing = getattr(module, name)
    path = f"{module.__name__}.{name}"
    if inspect.isclass(thing):
        lines = [f".. autoclass:: {path}", "   :members:"]
    elif callable(thing):
        lines = [f".. autofunction:: {path}"]
    else:
        return "\n".join(["```python", f"{name} = {constant(thing)}", "```", ""])
    return "\n".join(["```{eval-rst}", *lines, "```", ""])


def constant(thing: Any) -> str:
    """Returns a constant as code: a record's fields, or what a dictionary of records has.

    Example:
        >>> from distlab.costs import Plan
        >>> print(constant({"small": Plan(data=4, tensor=2, batch=16)}))
        {
            'small': Plan(data=4, tensor=2, ...),
        }
    """
    if isinstance(thing, dict):
        lines = [
            f"    {key!r}: {type(value).__name__}({', '.join(fields(value)[:2])}, ...),\n"
            for key, value in thing.items()
        ]
        return f"{{\n{''.join(lines)}}}"
    lines = [f"    {field},\n" for field in fields(thing)]
    return f"{type(thing).__name__}(\n{''.join(lines)})"


def fields(thing: Any) -> list[str]:
    """Returns the fields of a record that it does not have by default, as arguments."""
    return [
        f"{field.name}={getattr(thing, field.name)!r}"
        for field in dataclasses.fields(thing)
        if getattr(thing, field.name) != field.default
    ]


def page(module: ModuleType) -> str:
    """Returns the page about one module."""
    about = "\n".join(["```{eval-rst}", f".. automodule:: {module.__name__}", "```", ""])
    entries = [f"## {name}\n\n{entry(module, name)}" for name in members(module)]
    return "\n".join([f"# {module.__name__}\n", about, *entries])


def surface() -> list[ModuleType]:
    """Returns distlab and its public modules, as completion offers them."""
    top = importlib.import_module("distlab")
    named = [getattr(top, name) for name in dir(top) if name not in top.__all__]
    return [top, *filter(inspect.ismodule, named)]


def pages() -> dict[str, str]:
    """Returns the pages, by their names."""
    made = {module.__name__: page(module) for module in surface()}
    rows = [f"| [{m.__name__}]({m.__name__}.md) | {first_line(m)} |" for m in surface()]
    head = ["# API\n", ABOUT, "| module | what it is for |", "| --- | --- |"]
    return {"index": "\n".join([*head, *rows, ""]), **made}
