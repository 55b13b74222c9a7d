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
    """A line of the solver's, by its file and number; code without numbers of lines has 0."""

    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        text = f"{self.short}: {linecache.getline(*self).strip()}" if self.line else ""
        name = Path(self.file).name
        return ", ".join(filter(None, ("" if _CELL.fullmatch(name) else name, text)))

    @property
    def short(self) -> str:
        """The number alone: `line 7`."""
        return f"line {self.line}"

    @classmethod
    def innermost(cls, frames: Iterable[tuple[types.FrameType, int | None]]) -> Self:
        """The first line that is the solver's, of frames from the inside out; else an empty one."""
        own = (cls(frame.f_code.co_filename, n or 0) for frame, n in frames if is_solvers(frame))
        return next(own, cls())
