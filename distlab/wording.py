"""The words of errors about wrong arguments: what was given, what was meant, what is expected."""

import difflib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any


def shown(value: object) -> str:
    """A value for an error message: in one line, and not too long."""
    words = " ".join(repr(value).split())
    return words if len(words) <= 60 else f"{words[:57]}..."


def of_type(value: object) -> str:
    """A value and its type: `'2' of type str`."""
    return f"{shown(value)} of type {type(value).__name__}"


def closest(word: object, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known name that a word was probably meant to be, whatever its case."""
    if not isinstance(word, str):
        return None
    names = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word.lower(), names, 1, cutoff)
    return names[found[0]] if found else None


def did_you_mean(word: object, known: Iterable[str], cutoff: float = 0.6) -> str:
    """A sentence to put behind a message, with the space before it; empty if no name is close."""
    near = closest(word, known, cutoff)
    return f" Did you mean {near!r}?" if near else ""


def misfit(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], error: TypeError
) -> str | None:
    """What is wrong with the arguments of a call, where Python refused them; else None.

    Args:
        function: What was called.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        error: What the call raised.
    """
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    if parameters and parameters[0].name == "self":
        parameters, args = parameters[1:], args[1:]
    signature = signature.replace(parameters=parameters)
    if unfit(signature, args, kwargs) is None:
        return None
    name = f"{function.__qualname__.removesuffix('.__init__').rpartition('.')[2]}()"
    by_place = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    by_name = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
    known, kinds = by_place + by_name, {each.kind for each in parameters}
    unknown = [word for word in kwargs if word not in known]
    if unknown and inspect.Parameter.VAR_KEYWORD not in kinds:
        advice = did_you_mean(unknown[0], known) or _has(known)
        return f"{name} has no argument {unknown[0]!r}.{advice}"
    if len(args) > len(by_place) and inspect.Parameter.VAR_POSITIONAL not in kinds:
        most = f"at most {len(by_place)}" if by_place else "no"
        others = listed(by_name)
        if len(by_name) > 3:
            others = "the others" if by_place else f"its arguments, such as {by_name[0]!r},"
        advice = f" Give {others} by name." if by_name else _has(by_place)
        plural = "s" * (len(by_place) != 1)
        return f"{name} takes {most} positional argument{plural}, not {len(args)}.{advice}"
    given = [*by_place[: len(args)], *kwargs]
    missing = [
        each.name
        for each in parameters
        if each.default is each.empty and each.name in known and each.name not in given
    ]
    if not missing:
        return f"{error}."  # one is given twice
    if len(missing) > 1:
        return f"{name} needs {listed(missing)}, which are missing."
    return f"{name} needs {missing[0]!r}, which is missing.{_documented(function, missing[0])}"


def unfit(
    signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> str | None:
    """Why arguments do not fit a signature, in Python's words; None if they do."""
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        return str(error)
    return None


def check_fit(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise one clear TypeError, before a function of the reader's is called, if it can't be so."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # some built-in functions have none
        return
    if reason := unfit(signature, args, kwargs):
        unknown = [word for word in kwargs if word not in signature.parameters]
        advice = did_you_mean(unknown[0], signature.parameters) if unknown else ""
        given = f"{unknown[0]!r} is not one of its arguments" if advice else reason
        name = getattr(function, "__name__", repr(function))
        raise TypeError(f"The arguments do not fit {name}{signature}: {given}.{advice}")


def listed(names: Sequence[str]) -> str:
    """Names in quotes: `'a', 'b' and 'c'`."""
    quoted = [repr(name) for name in names]
    return " and ".join(filter(None, [", ".join(quoted[:-1]), *quoted[-1:]]))


def _has(names: Sequence[str]) -> str:
    return f" Its arguments are {listed(names)}." if names else " It has no arguments at all."


def _documented(function: Callable[..., Any], name: str) -> str:
    """What the docstring says of an argument, in its first sentence, with the space before it."""
    found = re.search(
        rf"^    {name}: .+(?:\n     .+)*", inspect.getdoc(function) or "", re.MULTILINE
    )
    if found is None:
        return ""
    words = " ".join(found[0].replace("`", "").split())
    return f" {words.split('. ')[0].rstrip('.:')}."
