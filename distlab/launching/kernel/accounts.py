"""What is known of a rank that did not come to a good end: its report, its exit, its last lines."""

import json
from pathlib import Path
from typing import Any

from distlab import frameworks
from distlab.launching import processes, tracebacks
from distlab.launching.kernel.logs import last_lines
from distlab.launching.kernel.status import RankStatus, label
from distlab.launching.protocol.files import rank_file
from distlab.launching.rank_errors import RankFailure

_TAIL = 20
"""How many of a rank's last lines an error shows."""


def account(
    directory: Path, ranks: list[RankStatus], status: RankStatus, what: str | None = None
) -> RankFailure:
    """What is known of a rank that did not end well; `what` happened, if that is known."""
    place = (directory, status.rank, status.attempt)
    report = read_report(*place) if status.state != "killed" else None
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
    )


def _what_happened(status: RankStatus, report: dict[str, Any] | None) -> str:
    if report is not None:
        return ": ".join(filter(None, (report["kind"], report["message"])))
    if status.state == "killed":
        return "was killed by Job.kill"
    if status.why:
        return status.why
    if status.exitcode == 0:
        return "exited with status 0 before the function returned"
    if status.exitcode is not None:
        return processes.describe_exit(status.exitcode)
    return status.state


def _read_output(directory: Path, rank: int, attempt: int, trace: str) -> str:
    """The last lines a rank printed, less its traceback, which is told beside them."""
    known = [line for line in trace.splitlines() if not frameworks.is_chatter(line)]
    text = "\n".join(last_lines(directory, rank, attempt)[-_TAIL - len(known) :])
    if known:
        text = text.replace("\n".join(known), "")
    return "\n".join(text.strip("\n").splitlines()[-_TAIL:])


def read_report(directory: Path, rank: int, attempt: int) -> dict[str, Any] | None:
    """What a rank left about its own error; None if it left nothing."""
    try:
        report: dict[str, Any] = json.loads(
            rank_file(directory, rank, attempt, "error").read_text()
        )
    except (FileNotFoundError, json.JSONDecodeError):  # it was ended while it wrote
        return None
    return report
