"""What is left of a job that did not come to a good end, gathered into one error."""

import json
import pickle
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from distlab import processes
from distlab.errors import JobTimeoutError, RankFailure, WorkerError
from distlab.logs import read_tail
from distlab.rank import rank_file
from distlab.status import RankStatus, label

_TAIL = 20
"""How many of a rank's last lines an error shows."""


def failure(
    directory: Path, ranks: list[RankStatus], results: list[Any], headline: str | None
) -> WorkerError:
    """The error for ranks that failed, the first to fail first.

    Args:
        directory: The job's directory.
        ranks: Where its ranks stand.
        results: What they returned.
        headline: What to begin with, if it is not the first failure.
    """
    failed = [
        account(directory, ranks, status)
        for status in ranks
        if status.state in ("failed", "killed", "lost")
    ]
    failed.sort(key=lambda one: one.time)
    others = [account(directory, ranks, s) for s in ranks if s.state == "stopped"]
    if headline is None and failed:
        headline = f"{failed[0].name} of {len(ranks)} failed: {failed[0].what}"
    error = WorkerError(headline or "The job was stopped.", failed, others, results)
    if failed:
        first = ranks[failed[0].rank]
        error.__cause__ = _read_exception(directory, first.rank, first.attempt)
    return error


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
    """What is known of a rank that did not come to a good end."""
    place = (directory, status.rank, status.attempt)
    report = _read_report(*place) if status.state != "killed" else None
    if what is not None:
        pass
    elif report is not None:
        what = ": ".join(filter(None, (report["kind"], report["message"])))
    elif status.state == "killed":
        what = "was killed by Job.kill"
    elif status.status == 0:
        what = "exited with status 0 before its function returned"
    elif status.state == "lost" and status.why:
        what = status.why
    elif status.status is not None:
        what = processes.describe_exit(status.status)
    else:
        what = status.state
    return RankFailure(
        rank=status.rank,
        name=label(ranks, status.rank),
        what=what,
        traceback=report["traceback"] if report else "",
        output=read_tail(*place, _TAIL),
        time=report["time"] if report else status.ended or time.monotonic(),
    )


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
    """The Python stacks a rank wrote down when asked to, less distlab's own lines."""
    path = rank_file(directory, rank, attempt, "stack")
    if not path.exists():
        return ""
    own = str(Path(__file__).parent)
    lines = path.read_text(errors="replace").splitlines()
    bootstrap = 'File "<string>", line 1 in <module>'
    return "\n".join(line for line in lines if own not in line and bootstrap not in line)
