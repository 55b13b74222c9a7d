"""The solver's lines: which files are the solver's, and which line is under way."""

import linecache
import re
import sysconfig
import types
from collections.abc import Iterable
from os import sep
from pathlib import Path
from typing import NamedTuple, Self

_OTHERS = (
    str(Path(__file__).parent),
    "<frozen ",
    *(sysconfig.get_path(kind) + sep for kind in ("stdlib", "purelib", "platlib")),
)
"""Files that are not the solver's."""
_CELL = re.compile(r"Cell In\[\d+\]|\d+\.py")
"""What IPython calls a cell, with a history and without."""


def is_solvers(frame: types.FrameType) -> bool:
    """Whether a frame runs lines that the solver has written."""
    return not frame.f_code.co_filename.startswith(_OTHERS)


class Place(NamedTuple):
    """A line of the solver's: the name of its file or cell, its number, and its text."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        line = f"line {self.line}: {self.text}" if self.line else ""
        named = "" if _CELL.fullmatch(self.file) else self.file
        return ", ".join(filter(None, (named, line)))

    @property
    def short(self) -> str:
        """The number alone: `line 7`."""
        return f"line {self.line}"

    @classmethod
    def at(cls, file: str, line: int | None) -> Self:
        """A line by its file and its number; code without numbers of lines has none."""
        text = linecache.getline(file, line).strip() if line else ""
        return cls(Path(file).name, line or 0, text)

    @classmethod
    def innermost(cls, frames: Iterable[tuple[types.FrameType, int | None]]) -> Self:
        """The first that is the solver's, of frames and their lines from the inside out.

        If there is none, it has no text.
        """
        for frame, line in frames:
            if is_solvers(frame):
                return cls.at(frame.f_code.co_filename, line)
        return cls(*NOWHERE)


NOWHERE = Place("", 0, "")
"""No line of the solver's."""
