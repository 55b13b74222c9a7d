"""What a job raises when it did not come to a good end, with all that its ranks left behind."""

import json
import pickle
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distlab.rank import rank_file


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


def read_report(directory: Path, rank: int, attempt: int) -> dict[str, Any] | None:
    """What a rank left about its own error; None if it left nothing."""
    try:
        report: dict[str, Any] = json.loads(
            rank_file(directory, rank, attempt, "error").read_text()
        )
    except (FileNotFoundError, json.JSONDecodeError):  # it was ended while it wrote
        return None
    return report


class _NoImports(pickle.Unpickler):
    """Restores only what the modules of this process can: no framework starts for an error."""

    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] not in sys.modules:
            raise pickle.UnpicklingError(f"{module} is not imported here")
        return super().find_class(module, name)


def read_exception(directory: Path, rank: int, attempt: int) -> BaseException | None:
    """The rank's exception, if it could be pickled there and can be restored here."""
    try:
        with rank_file(directory, rank, attempt, "exception").open("rb") as file:
            error = _NoImports(file).load()
    except Exception:  # noqa: BLE001 - whatever a foreign class does when restored
        return None
    return error if isinstance(error, BaseException) else None


def read_stack(directory: Path, rank: int, attempt: int) -> str:
    """The Python stacks a rank wrote down when asked to, less distlab's own lines."""
    path = rank_file(directory, rank, attempt, "stack")
    if not path.exists():
        return ""
    own = str(Path(__file__).parent)
    lines = path.read_text(errors="replace").splitlines()
    bootstrap = 'File "<string>", line 1 in <module>'
    return "\n".join(line for line in lines if own not in line and bootstrap not in line)


def _indent(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.rstrip().splitlines())
