"""What a rank printed: each attempt of each rank has a file, which is read as far as is needed."""

import re
from pathlib import Path

from distlab import frameworks
from distlab.launching.protocol.files import rank_file

_MOST = 1 << 16
"""Bytes that are read at once."""
_LONGEST = 1 << 18
"""Bytes after which a line is broken: it may never end."""
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, cursor movements
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles, links
    r"|\x1b[@-_]|[\x00-\x08\x0e-\x1f\x7f-\x9f]"
)


def read_log(directory: Path, rank: int, attempt: int, include_framework_logs: bool = False) -> str:
    """All that one attempt of a rank printed."""
    try:
        text = rank_file(directory, rank, attempt, "log").read_text("utf-8", "backslashreplace")
    except FileNotFoundError:
        return ""
    lines = text.splitlines(keepends=True)
    return "".join(
        line for line in lines if include_framework_logs or not frameworks.is_chatter(line)
    )


def last_lines(directory: Path, rank: int, attempt: int) -> list[str]:
    """The last lines of a log, of which no more than the last 64 KiB are read."""
    lines = _end(directory, rank, attempt).splitlines()
    return [line for line in lines if not frameworks.is_chatter(line)]


def _end(directory: Path, rank: int, attempt: int) -> str:
    try:
        with rank_file(directory, rank, attempt, "log").open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _MOST))
            return file.read().decode("utf-8", "backslashreplace")
    except FileNotFoundError:
        return ""


def unfinished(directory: Path, rank: int, attempt: int) -> str:
    """What stands in a line of a log that has no end yet, such as a progress bar."""
    line = _end(directory, rank, attempt).rpartition("\n")[2]
    return _ESCAPES.sub("", line.rstrip("\r").rpartition("\r")[2]).strip()


def last_line(directory: Path, rank: int, attempt: int) -> str:
    """The last line of a log that says anything, without colours and control characters."""
    # A carriage return ends a line here: progress bars write one line many times over.
    lines = reversed(last_lines(directory, rank, attempt))
    return next(filter(None, (_ESCAPES.sub("", line).strip() for line in lines)), "")


class Tail:
    """The lines of a rank's log as they come."""

    def __init__(self, directory: Path, rank: int, include_framework_logs: bool = False) -> None:
        self._all = include_framework_logs
        self._directory = directory
        self._rank = rank
        self._attempt = -1
        self._position = 0
        self._rest = b""

    def new_lines(self, attempt: int, complete: bool) -> list[str]:
        """The lines added since the last call; once `complete`, one without an end counts, too."""
        lines: list[bytes] = []
        if attempt != self._attempt:
            lines += self._read(complete=True)
            self._attempt, self._position, self._rest = attempt, 0, b""
        lines += self._read(complete)
        texts = (line.decode("utf-8", "backslashreplace") for line in lines)
        return [text for text in texts if self._all or not frameworks.is_chatter(text)]

    def _read(self, complete: bool) -> list[bytes]:
        try:
            with rank_file(self._directory, self._rank, self._attempt, "log").open("rb") as file:
                file.seek(self._position)
                *lines, self._rest = (self._rest + file.read()).split(b"\n")
                self._position = file.tell()
        except FileNotFoundError:
            return []
        if self._rest and (complete or len(self._rest) >= _LONGEST):
            lines.append(self._rest)
            self._rest = b""
        return lines
