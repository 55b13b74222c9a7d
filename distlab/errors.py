"""What a job raises when it did not come to a good end, with all that its ranks left behind."""

import re
from dataclasses import dataclass
from typing import Any

from distlab.public import readers_line


@dataclass(frozen=True)
class RankFailure:
    """How one rank failed, or what it was doing when it had to be ended.

    Attributes:
        rank: Its rank.
        name: Its rank in words, with its task where there are several kinds.
        what: What happened, in a few words: `ValueError: bad input`, `was ended by SIGSEGV`.
        traceback: Its Python traceback, or at a timeout its stack; empty if it left none.
        output: The last lines it printed, less this traceback.
        time: When, in seconds of `time.monotonic`.
    """

    rank: int
    name: str
    what: str
    traceback: str
    output: str
    time: float

    def __str__(self) -> str:
        return _told(self.name, [self], [self])


class WorkerError(RuntimeError):
    """One or more ranks of a job failed.

    The message begins with the first failure and its traceback. Failures that are alike are told
    once.

    Attributes:
        cause: The exception of the first rank to fail, if it could be sent over; else None. It is
            not the `__cause__`, which Python would print above the message that has all of it.
        failures: One `RankFailure` per rank that failed by itself, the first to fail first. The
            later ones may have failed for the same reason, or because the first was gone.
        others: One per rank that was ended because of it, and had not failed before.
        results: What the ranks returned that did come to a good end; None for the others.
    """

    cause: BaseException | None = None

    def __init__(
        self,
        headline: str,
        failures: list[RankFailure],
        others: list[RankFailure],
        results: list[Any],
    ) -> None:
        self.failures = failures
        self.others = others
        self.results = results
        parts = [headline, *self._tell(failures, headline)]
        if others:
            why = "As a result, these were" if failures else "These were"
            parts.append(f"{why} stopped: {', '.join(other.name for other in others)}")
            parts += [str(other) for other in others if other.traceback]
        super().__init__("\n\n".join(parts))

    def _tell(self, failures: list[RankFailure], headline: str) -> list[str]:
        parts = []
        for number, group in enumerate(alike(failures)):
            told_above = number == 0 and not group[0].traceback and f": {group[0].what}" in headline
            if told_above and not group[0].output:
                if group[1:]:
                    parts.append(f"{name_ranks(group)} failed alike")
                continue
            same = "with the same error" if group[0].traceback else "alike"
            words = [name_ranks(group), "later" if number else "", same if group[1:] else ""]
            parts.append(_told(", ".join(filter(None, words)), group, group[:1]))
        return parts

    def __reduce__(self) -> tuple[Any, ...]:
        message = str(self)
        return _restore, (type(self), message, self.failures, self.others, self.results)

    def _render_traceback_(self) -> list[str]:
        """In IPython: the reader's line and the message, without the lines of distlab."""
        return [*filter(None, [readers_line(self)]), f"{type(self).__name__}: {self}"]


class JobTimeoutError(WorkerError, TimeoutError):
    """A job was not over in time. `failures` hold the Python stack of every rank that ran."""

    def _tell(self, failures: list[RankFailure], headline: str) -> list[str]:  # noqa: ARG002
        # How far each had come is in its output, which is worth telling of every one.
        return [
            _told(name_ranks(group) + (", each" if group[1:] else ""), group, group)
            for group in alike(failures)
        ]


def _restore(kind: type[WorkerError], message: str, *rest: Any) -> WorkerError:
    error = kind.__new__(kind, message)
    RuntimeError.__init__(error, message)
    error.failures, error.others, error.results = rest
    return error


def alike(failures: list[RankFailure]) -> list[list[RankFailure]]:
    """Failures in groups of the same words and the same traceback, in the order of their first."""
    groups: dict[tuple[str, str], list[RankFailure]] = {}
    for failure in failures:
        words = (_ADDRESS.sub("", failure.what), _ADDRESS.sub("", failure.traceback))
        groups.setdefault(words, []).append(failure)
    return list(groups.values())


_ADDRESS = re.compile(r"\b0x[0-9a-f]+")


def name_ranks(failures: list[RankFailure]) -> str:
    """Some ranks in words: `rank 1`, `ranks 0, 1 and 3`, `ranks 0 to 7`."""
    ordered = sorted(failures, key=lambda one: one.rank)
    if len(ordered) == 1 or any(one.name != f"rank {one.rank}" for one in ordered):
        return _listed([one.name for one in ordered])
    runs: list[list[int]] = []
    for one in ordered:
        if runs and one.rank == runs[-1][-1] + 1:
            runs[-1].append(one.rank)
        else:
            runs.append([one.rank])
    words: list[str] = []
    for run in runs:
        words += [f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run)
    return f"ranks {_listed(words)}"


def _listed(words: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _told(who: str, group: list[RankFailure], speakers: list[RankFailure]) -> str:
    """What some ranks have in common, and then what each of the speakers had printed."""
    what, trace = group[0].what, group[0].traceback
    parts = [f"{who}: {what.partition(chr(10))[0] if trace else what}"]
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
    return "\n".join(f"    {line}" for line in text.rstrip().splitlines())
