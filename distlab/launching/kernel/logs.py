"""What a rank printed: each attempt of each rank has a file, which is read as far as is needed."""

import io
import os
import re
import stat
from pathlib import Path
from typing import BinaryIO, NamedTuple

from distlab import frameworks
from distlab.launching.protocol.files import rank_file

_MOST = 1 << 16
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, cursor movements
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles, links
    r"|\x1b[@-_]|[\x00-\x08\x0e-\x1f\x7f-\x9f]"
)
_LONGEST = 1 << 18
"""Bytes after which a line is broken."""


def read_log(directory: Path, rank: int, attempt: int, include_framework_logs: bool = False) -> str:
    """All that one attempt of a rank printed; the chatter of frameworks only if asked for."""
    try:
        with _opened(directory, rank, attempt) as file:
            text = io.TextIOWrapper(file, "utf-8", "backslashreplace").read()
    except FileNotFoundError:
        return ""
    lines = text.splitlines(keepends=True)
    return "".join(
        line for line in lines if include_framework_logs or not frameworks.is_chatter(line)
    )


class Head(NamedTuple):
    """The beginning of a log.

    Attributes:
        text: What was read of it, without the chatter of frameworks.
        read: How many bytes that were.
        unread: How many bytes come after them.
    """

    text: str = ""
    read: int = 0
    unread: int = 0


def read_head(directory: Path, rank: int, attempt: int) -> Head:
    """The beginning of a log, at most 64 KiB of it."""
    try:
        with _opened(directory, rank, attempt) as file:
            head = file.read(_MOST)
            unread = file.seek(0, 2) - len(head)
    except FileNotFoundError:
        return Head()
    lines = head.decode("utf-8", "backslashreplace").splitlines(keepends=True)
    text = "".join(line for line in lines if not frameworks.is_chatter(line))
    return Head(text, len(head), unread)


def _opened(directory: Path, rank: int, attempt: int) -> BinaryIO:
    """Open a log.

    Raises:
        FileNotFoundError: If there is none, or the rank has put in its place what is no file. To
            read a named pipe could take for ever.
    """

    def opener(path: str, flags: int) -> int:
        descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
        raise FileNotFoundError(path)

    return open(rank_file(directory, rank, attempt, "log"), "rb", opener=opener)


def read_tail(directory: Path, rank: int, attempt: int, lines: int) -> str:
    """The last lines of a log, of which no more than the last 64 KiB are read."""
    return "\n".join(_last_lines(directory, rank, attempt)[-lines:])


def last_line(directory: Path, rank: int, attempt: int) -> str:
    """The last line of a log that says anything, without colours and control characters."""
    # A carriage return ends a line here: progress bars write one line many times over.
    plain = (
        _ESCAPES.sub("", line).strip() for line in reversed(_last_lines(directory, rank, attempt))
    )
    return next(filter(None, plain), "")


def _last_lines(directory: Path, rank: int, attempt: int) -> list[str]:
    try:
        with _opened(directory, rank, attempt) as file:
            file.seek(max(0, file.seek(0, 2) - _MOST))
            text = file.read().decode("utf-8", "backslashreplace")
    except FileNotFoundError:
        return []
    return [line for line in text.splitlines() if not frameworks.is_chatter(line)]


class Tail:
    """The lines of a rank's log as they come.

    Args:
        directory: The job's directory.
        rank: Which rank.
        include_framework_logs: Whether to include what frameworks always say.
    """

    def __init__(self, directory: Path, rank: int, include_framework_logs: bool = False) -> None:
        self._all = include_framework_logs
        self._directory = directory
        self._rank = rank
        self._attempt = -1
        self._position = 0
        self._rest = b""

    def new_lines(self, attempt: int, complete: bool) -> list[str]:
        """The lines added since the last call.

        Args:
            attempt: The rank's attempt now; a new one begins a new log.
            complete: Whether the log has come to its end, so that what has no line end counts.
        """
        lines: list[bytes] = []
        if attempt != self._attempt:
            lines += self._read(complete=True)
            self._attempt, self._position, self._rest = attempt, 0, b""
        lines += self._read(complete)
        texts = (line.decode("utf-8", "backslashreplace") for line in lines)
        return [text for text in texts if self._all or not frameworks.is_chatter(text)]

    def _read(self, complete: bool) -> list[bytes]:
        lines: list[bytes] = []
        try:
            with _opened(self._directory, self._rank, self._attempt) as file:
                file.seek(self._position)
                while chunk := file.read(_MOST):
                    *whole, self._rest = (self._rest + chunk).split(b"\n")
                    lines += whole
                    if len(self._rest) >= _LONGEST:  # it may never end
                        lines.append(self._rest)
                        self._rest = b""
                self._position = file.tell()
        except FileNotFoundError:
            return []
        if complete and self._rest:
            lines.append(self._rest)
            self._rest = b""
        return lines
