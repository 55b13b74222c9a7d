"""One silent error: a program of a few lines, wrong as people write it, right with the cure.

A row is a function of one argument: `cured` is False for what people write and True for the cure.
It returns a tree of numbers that should be the same on any number of ranks, or of devices.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import distlab
from distlab.launching.comparing import Comparison

ROWS: dict[str, "Row"] = {}


@dataclass(frozen=True)
class Row:
    """What the page says about a program, and how it is run.

    Attributes:
        program: The function.
        what: What people write.
        happens: What happens then.
        cure: What to write instead.
        lesson: The number of the lesson that shows it.
        thread: The upstream thread, if one was found.
        framework: As in `distlab.launch`.
        nprocs: On how many ranks it is run, or
        devices: on how many devices of one process.
        env: Variables it runs with.
        devices_per_rank: How many devices each of several ranks has.
    """

    program: Callable[[bool], Any]
    what: str
    happens: str
    cure: str
    lesson: str = ""
    thread: str = ""
    framework: str = "torch"
    nprocs: Sequence[int] = (1, 2)
    devices: Sequence[int] | None = None
    env: tuple[tuple[str, str], ...] = ()
    devices_per_rank: int | None = None

    def compare(self, cured: bool) -> Comparison:
        """Compare its sizes."""
        options = {"env": dict(self.env), "timeout": 240}
        if self.devices_per_rank:
            options["devices_per_rank"] = self.devices_per_rank
        return distlab.compare(
            self.program,
            self.nprocs,
            self.framework,
            [cured],
            devices=self.devices,
            **options,
        )


def row(what: str, happens: str, cure: str, **more: Any) -> Callable[..., Callable[[bool], Any]]:
    """Make a row of the function below."""

    def known(program: Callable[[bool], Any]) -> Callable[[bool], Any]:
        ROWS[program.__name__] = Row(program, what, happens, cure, **more)
        return program

    return known
