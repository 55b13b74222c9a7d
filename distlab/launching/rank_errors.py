"""Failures of ranks: what is raised, and which failed first and which only followed."""

import re
import textwrap
from dataclasses import dataclass
from typing import Any

from distlab.errors import in_brief, listed
from distlab.launching.tracebacks import without_libraries


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

    The message begins with the first failure and its traceback, in which frames of libraries are
    only counted: `failures` have all. Failures that are alike are told once.

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
            parts.append(f"{why}: {name_ranks(rest)}")
            parts += [_told(one.name, [one], [one]) for one in others if one.traceback]
        super().__init__("\n\n".join(parts))

    def _tell(self, failures: list[RankFailure], headline: str) -> list[str]:
        parts = []
        for number, group in enumerate(alike(failures)):
            trace, told_above = group[0].traceback, number == 0 and group[0].what in headline
            if told_above and not trace and not group[0].output:
                continue
            same = f"{'each with this' if number else 'with the same'} error" if trace else "alike"
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
    """Words less addresses, ranks, and those that tell of a lost connection, which are chance."""
    lines = (_MISMATCH.sub("they differ", _CHANCE.sub("", line)) for line in text.splitlines())
    return "\n".join("a peer is gone" if PEER_GONE.search(line) else line for line in lines)


_CHANCE = re.compile(r"\b0x[0-9a-f]+|(?<=\brank )\d+")
_MISMATCH = re.compile(r"(?<=Detected mismatch between collectives on ranks\.).*")
"""In which PyTorch tells each rank of itself and another one."""
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
        parts.append(_indent(without_libraries(trace)))
    outputs: dict[str, list[RankFailure]] = {}
    for each in speakers:
        outputs.setdefault(each.output, []).append(each)
    for output, ranks in outputs.items():
        if output:
            parts.append(f"  {name_ranks(ranks)} had printed last:\n{_indent(output)}")
    return "\n".join(parts)


def _indent(text: str) -> str:
    return textwrap.indent(text.rstrip(), "    ", lambda _: True)
