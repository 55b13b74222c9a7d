"""What is left of a job that did not come to a good end, gathered into one error."""

import json
import os
import pickle
import re
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from distlab import frameworks
from distlab.errors import JobTimeoutError, RankError, RankFailure, name_ranks
from distlab.launching import processes, tracebacks
from distlab.launching.kernel.logs import last_lines
from distlab.launching.kernel.status import LOST, RankStatus, label
from distlab.launching.protocol.files import rank_file

_TAIL = 20
"""How many of a rank's last lines an error shows."""
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT)


def failure(
    directory: Path, ranks: list[RankStatus], results: list[Any], headline: str | None
) -> RankError:
    """The error for ranks that failed, the first to fail first.

    Args:
        directory: The job's directory.
        ranks: Where its ranks stand.
        results: What they returned.
        headline: What to begin with, if it is not the first failure.
    """
    failed = [status for status in ranks if status.state in LOST]
    stopped = [s for s in ranks if s.state == "stopped" and s.pid is not None]
    if failed:
        failed += [status for status in stopped if _failed_meanwhile(directory, status)]
    # Those that were to be stopped already did not fail first.
    accounts = [(s.state == "stopped", account(directory, ranks, s)) for s in failed]
    accounts.sort(key=lambda pair: (pair[0], pair[1].time))
    failures = [one for _, one in accounts]
    others = [account(directory, ranks, s) for s in stopped if s not in failed]
    if headline is None and failures:
        what = tracebacks.headline(failures[0].what)
        headline = f"{failures[0].name} of {len(ranks)} failed: {what}"
        headline += _hint(directory, ranks, failures[0])
    error = RankError(headline or "The job was stopped.", failures, others, results)
    if failures:
        first = ranks[failures[0].rank]
        # Not as its __cause__: Python would print it, too, above the text that has all of it.
        error.cause = _read_exception(directory, first.rank, first.attempt)
    return error


def _hint(directory: Path, ranks: list[RankStatus], first: RankFailure) -> str:
    """A line about ranks that had returned while the first to fail still counted on them."""
    report = rank_file(directory, first.rank, ranks[first.rank].attempt, "error")
    if not (report.exists() and _PEER_GONE.search(first.what)):
        return ""
    failed = report.stat().st_mtime
    gone = []
    for status in ranks:
        result = rank_file(directory, status.rank, status.attempt, "result")
        if result.exists() and result.stat().st_mtime < failed + _MEANWHILE:
            gone.append(account(directory, ranks, status))
    if not gone:
        return ""
    return (
        f"\n{name_ranks(gone)} returned while {first.name} still waited for "
        f"{'it' if len(gone) == 1 else 'them'}: do all ranks call the same collectives?"
    )


_PEER_GONE = re.compile(r"(closed|reset) by (the |remote )?peer|Socket closed|gloo.*Broken pipe")
_MEANWHILE = 1.0
"""A rank may close its connections so many seconds before it returns."""


def _failed_meanwhile(directory: Path, status: RankStatus) -> bool:
    """Whether a rank failed by itself before it was, or while it should have been, stopped."""
    report = _read_report(directory, status.rank, status.attempt)
    if report is not None:
        return not report["asked"]
    return status.exitcode is not None and -status.exitcode in _CRASHES


def too_long(
    directory: Path,
    ranks: list[RankStatus],
    results: list[Any],
    headline: str,
    preparing: str,
) -> JobTimeoutError:
    """The error for ranks that take too long, with the Python stack each has written down.

    Args:
        directory: The job's directory.
        ranks: Where its ranks stand.
        results: What they returned.
        headline: What to begin with.
        preparing: Why nothing has been started yet, where that is so.
    """
    accounts = []
    for status in ranks:
        if status.state in ("running", "paused", "stopped"):
            stack = _read_stack(directory, status.rank, status.attempt)
            what = "is paused" if status.state == "paused" else "was still running"
            accounts.append(replace(account(directory, ranks, status, what), traceback=stack))
    waiting = [s.rank for s in ranks if s.state in ("waiting", "starting")]
    if waiting:
        headline += f" Not started: {', '.join(label(ranks, rank) for rank in waiting)}"
        headline += f" ({preparing})." if preparing else "."
    return JobTimeoutError(headline, accounts, [], results)


def account(
    directory: Path, ranks: list[RankStatus], status: RankStatus, what: str | None = None
) -> RankFailure:
    """What is known of a rank that did not come to a good end.

    Args:
        directory: The job's directory.
        ranks: Where its ranks stand.
        status: Where this one does.
        what: What happened to it, where that is known already.
    """
    place = (directory, status.rank, status.attempt)
    report = _read_report(*place) if status.state != "killed" else None
    what = what or _what_happened(status, report)
    trace = report["traceback"] if report else ""
    if report is None and what == status.why:  # its first line says what, the others where
        what, _, trace = what.partition("\n")
    return RankFailure(
        rank=status.rank,
        name=label(ranks, status.rank),
        what=tracebacks.shortened(what),
        traceback="" if trace.strip() == what.strip() else tracebacks.shortened(trace),
        output=tracebacks.shortened(_read_output(*place, trace)),
        time=status.failed or status.ended or time.monotonic(),
    )


def _what_happened(status: RankStatus, report: dict[str, Any] | None) -> str:
    if report is not None:
        return ": ".join(filter(None, (report["kind"], report["message"])))
    if status.state == "killed":
        return "was killed by Job.kill"
    if status.why:
        return status.why
    if status.exitcode == 0:
        return "exited with status 0 before its function returned"
    if status.exitcode is not None:
        return processes.describe_exit(status.exitcode)
    return status.state


def _read_output(directory: Path, rank: int, attempt: int, trace: str) -> str:
    """The last lines a rank printed, less its traceback, which is told beside them."""
    known = [line for line in trace.splitlines() if not frameworks.is_chatter(line)]
    lines = last_lines(directory, rank, attempt)[-_TAIL - len(known) :]
    for start in range(len(lines) - len(known), -1, -1) if known else ():
        if lines[start : start + len(known)] == known:
            del lines[start : start + len(known)]
            break
    return "\n".join(lines[-_TAIL:])


def _read_report(directory: Path, rank: int, attempt: int) -> dict[str, Any] | None:
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


def _read_exception(directory: Path, rank: int, attempt: int) -> BaseException | None:
    """The rank's exception, if it could be pickled there and can be restored here."""
    try:
        with rank_file(directory, rank, attempt, "exception").open("rb") as file:
            error = _NoImports(file).load()
    except Exception:  # noqa: BLE001 - whatever a foreign class does when restored
        return None
    return error if isinstance(error, BaseException) else None


def _read_stack(directory: Path, rank: int, attempt: int) -> str:
    """The Python stacks a rank wrote down when last asked to, less distlab's own lines."""
    path = rank_file(directory, rank, attempt, "stack")
    if not path.exists():
        return ""
    last = _BETWEEN.split(path.read_text(errors="replace").strip())[-1]
    return "\n\n".join(filter(None, map(_without_own_lines, last.split("\n\n"))))


_THREAD = re.compile(r"(Current thread|Thread) 0x[0-9a-f]+")
_BETWEEN = re.compile(rf"(?<!\n)\n(?={_THREAD.pattern})")
"""Where one dump of all threads ends and the next one begins: within one there are empty lines."""


def _without_own_lines(thread: str) -> str:
    """A thread's stack less addresses and what is no line of the target's; empty if all is that."""
    lines = thread.splitlines()
    kept = [line for line in lines[1:] if not line.strip().startswith(_OWN_LINES)]
    text = "\n".join([_THREAD.sub(r"\1", lines[0]), *kept]) if kept else ""
    return tracebacks.name_cells(text)


_OWN_LINES = (
    f'File "{Path(__file__).parents[1]}{os.sep}',
    'File "<distlab>", ',
    'File "<string>", line 1 in <module>',
)
