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


def entry(place: str, name: str, thing: object) -> str:
    """Returns the directive that documents one name, as a reader spells it."""
    path = f"{place}.{name}"
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


def page(place: str, module: ModuleType) -> str:
    """Returns the page about one module, under the name that a reader imports."""
    about = "\n".join(["```{eval-rst}", f".. automodule:: {place}", "```", ""])
    names = members(module)
    entries = [f"## {name}\n\n{entry(place, name, getattr(module, name))}" for name in names]
    return "\n".join([f"# {place}\n", about, *entries])


def surface() -> dict[str, ModuleType]:
    """Returns distlab and its public modules, by the names that completion offers."""
    top = importlib.import_module("distlab")
    named = {f"distlab.{name}": getattr(top, name) for name in dir(top) if name not in top.__all__}
    return {"distlab": top} | {k: thing for k, thing in named.items() if inspect.ismodule(thing)}


def pages() -> dict[str, str]:
    """Returns the pages, by their names."""
    made = {place: page(place, module) for place, module in surface().items()}
    rows = [f"| [{place}]({place}.md) | {first_line(m)} |" for place, m in surface().items()]
    head = ["# API\n", ABOUT, "| module | what it is for |", "| --- | --- |"]
    return {"index": "\n".join([*head, *rows, ""]), **made}
