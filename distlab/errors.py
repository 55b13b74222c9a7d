"""Interrupts and wrong arguments: what is raised, in which words, and what IPython shows of it."""

import difflib
import functools
import inspect
import linecache
import operator
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

_OWN = Path(__file__).parent
_P = ParamSpec("_P")
_R = TypeVar("_R")


# Interrupts, in one line.


def in_one_line(words: str) -> KeyboardInterrupt:
    """An interrupt of which IPython shows this message alone, and none of distlab's lines."""
    error = KeyboardInterrupt(words)
    # An attribute of the instance, so that the type stays the one that everybody catches.
    error._render_traceback_ = lambda: [f"KeyboardInterrupt: {error}"]  # type: ignore[attr-defined]
    return error


# Wrong arguments: what was given, what was meant, what is expected.


def brief(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Have IPython show what a function itself complains of, and no more, without our lines.

    What anything else raises, the reader's own function above all, keeps its whole traceback.
    """

    @functools.wraps(function)
    def called(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            import traceback

            *_, (frame, line) = traceback.walk_tb(error.__traceback__)
            file = frame.f_code.co_filename
            is_told = linecache.getline(file, line).lstrip().startswith("raise ")
            is_called_wrongly = frame is sys._getframe()
            if is_called_wrongly or (is_told and is_own(file)):
                error._render_traceback_ = functools.partial(in_brief, error)  # type: ignore[attr-defined]
            raise

    return called


def in_brief(error: BaseException) -> list[str]:
    """The reader's line and the message, as IPython takes them from `_render_traceback_`."""
    return [*filter(None, [readers_line(error)]), f"{type(error).__name__}: {error}"]


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


def check_flag(flag: object, name: str) -> None:
    """Raise a clear error unless `flag` is True or False: any text would count as True."""
    if not isinstance(flag, bool):
        raise TypeError(f"{name} must be True or False, not {of_type(flag)}.")


def check_count(count: object, name: str, least: int, example: str = "", most: int = 512) -> int:
    """Return `count` as an int if it is one, from `least` to `most`."""
    if isinstance(count, bool) or not hasattr(type(count), "__index__"):
        words = f"{name} must be an int, not {of_type(count)}"
        meant = count if isinstance(count, str) and count.isdecimal() else 2
        raise TypeError(f"{words}: write {example or f'{name}={meant}'}, say.")
    number = operator.index(count)  # type: ignore[arg-type]
    if not least <= number <= most:
        raise ValueError(f"{name} must be from {least} to {most:,}, not {number:,}.")
    return number


def check_rank(rank: object, count: int) -> int:
    """Return `rank` as an int if it is one of `count` ranks."""
    return check_count(rank, "rank", 0, "rank=0", count - 1)


def check_path(path: object, name: str) -> Path:
    """Return `path` as an absolute one if it is a path."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"{name} must be a path (a string or a Path), not {of_type(path)}.")
    if not os.fspath(path):
        raise ValueError(f"{name} is empty: name a file or a directory.")
    return Path(path).absolute()


def check_fit(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise one clear TypeError if a function of the reader's can't be called with these."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # some built-in functions have none
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        name = getattr(function, "__name__", repr(function))
        raise TypeError(f"The arguments do not fit {name}{signature}: {error}.") from None


def check_environment(env: Mapping[str, str] | None) -> dict[str, str]:
    """Return `env` as a dict if the system can set such variables; None has none."""
    if env is None:
        return {}
    if not isinstance(env, Mapping):
        raise TypeError(f'env must be a dict such as {{"NAME": "value"}}, not {shown(env)}.')
    for name, value in env.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(
                f"env maps names to strings, but {name!r} is set to {shown(value)}: "
                f"write {{{str(name)!r}: {shown(str(value))}}}."
            )
        if not name or "=" in name or "\0" in name + value:
            words = "no '=' or NUL in a name, no NUL in a value"
            raise ValueError(f"env cannot hold {name!r}: {words}.")
    return dict(env)


def listed(words: Sequence[str]) -> str:
    """Some words as one part of a sentence: `a, b and c`."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


# Whose lines, and where they are shown.


def is_own(filename: str) -> bool:
    """Whether the code of a file, as a traceback names it, is distlab's."""
    return Path(filename).is_relative_to(_OWN)


def readers_line(error: BaseException) -> str:
    """The innermost line that the reader wrote: `line 3: distlab.run(fail, 4)`; empty if none.

    Without the file, which for a cell is a path that differs from run to run.
    """
    import traceback

    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if is_own(frame.filename) or not frame.line:
            continue
        within = "" if frame.name.startswith("<") else f", in {frame.name}"
        return f"line {frame.lineno}{within}: {frame.line}"
    return ""


def ipython_shell() -> Any:
    """IPython's shell, in a notebook or a terminal, if this process has one; else None."""
    ipython = sys.modules.get("IPython")  # importing it would cost a program half a second
    return ipython.get_ipython() if ipython is not None else None


def notebook_shell() -> Any:
    """IPython's shell if it runs in a notebook's kernel, else None."""
    shell = ipython_shell()
    return shell if getattr(shell, "kernel", None) is not None else None
