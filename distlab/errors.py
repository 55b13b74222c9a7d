"""What a job raises when it did not come to a good end, with all that its ranks left behind."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RankFailure:
    """How one rank failed, or what it was doing when it had to be ended.

    Attributes:
        rank: Its rank.
        name: Its rank in words, with its task where there are several kinds.
        what: What happened, in a few words: `ValueError: bad input`, `was ended by SIGSEGV`.
        traceback: Its Python traceback, or at a timeout its stack; empty if it left none.
        output: The last lines it printed.
        time: When, in seconds of `time.monotonic`.
    """

    rank: int
    name: str
    what: str
    traceback: str
    output: str
    time: float

    def __str__(self) -> str:
        parts = [f"{self.name}: {self.what}"]
        if self.traceback:
            parts.append(_indent(self.traceback))
        if self.output:
            parts.append(f"  {self.name} had printed last:\n{_indent(self.output)}")
        return "\n".join(parts)


class WorkerError(RuntimeError):
    """One or more ranks of a job failed.

    The message begins with the first failure and its traceback. If the rank's exception could be
    sent over, it is the `__cause__`.

    Attributes:
        failures: One `RankFailure` per rank that failed, the first to fail first.
        others: One per rank that was ended because of it.
        results: What the ranks returned that did come to a good end; None for the others.
    """

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
        parts = [headline, *map(str, failures)]
        if others:
            why = "Because of it these were" if failures else "These were"
            parts.append(f"{why} stopped: {', '.join(other.name for other in others)}")
            parts += [str(other) for other in others if other.traceback]
        super().__init__("\n\n".join(parts))

    def __reduce__(self) -> tuple[Any, ...]:
        message = str(self)
        return _restore, (type(self), message, self.failures, self.others, self.results)

    def _render_traceback_(self) -> list[str]:
        """In IPython: the message alone, not the lines of distlab that raised it."""
        return [f"{type(self).__name__}: {self}"]


class JobTimeoutError(WorkerError, TimeoutError):
    """A job was not over in time. `failures` hold the Python stack of every rank that ran."""


def _restore(kind: type[WorkerError], message: str, *rest: Any) -> WorkerError:
    error = kind.__new__(kind, message)
    RuntimeError.__init__(error, message)
    error.failures, error.others, error.results = rest
    return error


def _indent(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.rstrip().splitlines())
