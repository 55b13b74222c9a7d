"""What is raised, and its words: failures of ranks, interrupts, wrong arguments."""

import difflib
import functools
import inspect
import linecache
import operator
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

_OWN = Path(__file__).parent
_P = ParamSpec("_P")
_R = TypeVar("_R")


# Failures of ranks.


@dataclass(frozen=True)
class RankFailure:
    """How one rank failed, or what it was doing when it had to be ended.

    Attributes:
        rank: Its rank.
        name: Its rank in words, with its task where there are several kinds.
        what: What happened, in a few words: `ValueError: bad input`, `was ended by SIGSEGV`.
        traceback: Its Python traceback, or at a timeout its stack; empty if it left none.
        output: The last lines it printed, less this traceback.
    """

    rank: int
    name: str
    what: str
    traceback: str
    output: str


class RankError(RuntimeError):
    """One or more ranks of a job failed.

    The message begins with the first failure and its traceback. Failures that are alike are told
    once.

    Attributes:
        headline: What the message begins with.
        failures: One `RankFailure` per rank that failed by itself, the first to fail first. The
            later ones may have failed for the same reason, or because the first was gone.
        others: One per rank that was ended because of it, and had not failed before.
    """

    def __init__(
        self, headline: str, failures: list[RankFailure], others: list[RankFailure]
    ) -> None:
        self.headline = headline
        self.failures = failures
        self.others = others
        told = causes(failures)
        rest = [*others, *(each for each in failures if each not in told)]
        parts = [headline, *self._tell(told, headline)]
        if rest:
            why = "As a result, these were stopped" if failures else "These were stopped"
            if failures and rest[0].what == "was still running":
                why = "These were still running, and were stopped then"
            names = [each.name for each in sorted(rest, key=lambda each: each.rank)]
            parts.append(f"{why}: {', '.join(names)}")
            parts += [_told(one.name, [one], [one]) for one in others if one.traceback]
        super().__init__("\n\n".join(parts))

    def _tell(self, failures: list[RankFailure], headline: str) -> list[str]:
        parts = []
        for number, group in enumerate(alike(failures)):
            trace, told_above = group[0].traceback, number == 0 and group[0].what in headline
            if told_above and not trace and not group[0].output:
                continue
            same = "with the same error" if trace else "alike"
            words = [name_ranks(group), "later" if number else "", same if group[1:] else ""]
            who = "" if told_above and trace else ", ".join(filter(None, words))
            parts.append(_told(who, group, group[:1]))
        return parts

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.headline, self.failures, self.others)

    def _render_traceback_(self) -> list[str]:
        """In IPython: the reader's line and the message, without the lines of distlab."""
        return in_brief(self)


class JobTimeoutError(RankError, TimeoutError):
    """A job was not over in time. `failures` hold the Python stack of every rank that ran."""

    def _tell(self, failures: list[RankFailure], headline: str) -> list[str]:  # noqa: ARG002
        # How far each had come is in its output, which is worth telling of every one.
        return [
            _told(name_ranks(group) + (", each" if group[1:] else ""), group, group)
            for group in sorted(alike(failures), key=len)  # what the others wait for, maybe
        ]


def alike(failures: list[RankFailure]) -> list[list[RankFailure]]:
    """Failures in groups of the same words and the same traceback, in the order of their first."""
    groups: dict[tuple[str, str], list[RankFailure]] = {}
    for failure in failures:
        groups.setdefault((_gist(failure.what), _gist(failure.traceback)), []).append(failure)
    return list(groups.values())


def causes(failures: list[RankFailure]) -> list[RankFailure]:
    """All but those that only lost a connection: which of them are stopped before, is chance."""
    return [each for each in failures if not PEER_GONE.search(each.what)] or failures


def _gist(text: str) -> str:
    """Words less addresses, and those in which a lost connection is told, which are chance."""
    lines = (_ADDRESS.sub("", line) for line in text.splitlines())
    return "\n".join("a peer is gone" if PEER_GONE.search(line) else line for line in lines)


_ADDRESS = re.compile(r"\b0x[0-9a-f]+")
PEER_GONE = re.compile(r"(closed|reset) by (the |remote )?peer|Socket closed|gloo.*Broken pipe")
"""What the frameworks say when another rank has closed a connection."""


def name_ranks(failures: list[RankFailure]) -> str:
    """Some ranks in words: `rank 1`, `ranks 0, 1 and 3`."""
    ordered = sorted(failures, key=lambda one: one.rank)
    if len(ordered) == 1 or any(one.name != f"rank {one.rank}" for one in ordered):
        return listed([one.name for one in ordered])
    return f"ranks {listed([str(one.rank) for one in ordered])}"


def _told(who: str, group: list[RankFailure], speakers: list[RankFailure]) -> str:
    """What some ranks have in common, if they are named, and what the speakers had printed."""
    what, trace = group[0].what, group[0].traceback
    brief = textwrap.shorten(what.partition("\n")[0], 100, placeholder=" ...")
    parts = [f"{who}: {brief if trace else what}"] if who else []
    if trace:
        parts.append(_indent(trace))
    outputs: dict[str, list[RankFailure]] = {}
    for each in speakers:
        outputs.setdefault(each.output, []).append(each)
    for output, ranks in outputs.items():
        if output:
            parts.append(f"  {name_ranks(ranks)} had printed last:\n{_indent(output)}")
    return "\n".join(parts)


def _indent(text: str) -> str:
    return textwrap.indent(text.rstrip(), "    ", lambda _: True)


# Interrupts, in one line.


def in_one_line(words: str) -> KeyboardInterrupt:
    """An interrupt of which IPython shows this message alone, and none of distlab's lines."""
    error = KeyboardInterrupt(words)
    # An attribute of the instance, so that the type stays the one that everybody catches.
    error._render_traceback_ = lambda: [f"KeyboardInterrupt: {error}"]  # type: ignore[attr-defined]
    return error


# Wrong arguments: what was given, what was meant, what is expected.


def brief(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Have IPython show what a function itself complains of, and no more, without our lines."""

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
        raise TypeError(f"{words}: write {example or f'{name}=2'}, say.")
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
    """The innermost line that the reader wrote: `line 3: distlab.run(fail, 4)`; empty if none."""
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
