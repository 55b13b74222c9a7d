"""How a job is shown while somebody waits for it: not at all, unless a notebook says how."""

import importlib
from typing import TYPE_CHECKING, Protocol

from distlab.errors import notebook_shell

if TYPE_CHECKING:
    from distlab.launching.kernel.job import Job


class Waiting:
    """A wait for a job that shows nothing.

    Args:
        job: Which job.
    """

    def __init__(self, job: "Job") -> None:
        self._job = job

    def tick(self, begin: bool = True) -> None:
        """Bring what is shown up to date, if it is time to.

        Args:
            begin: Whether to show something where nothing is shown yet.
        """

    def __enter__(self) -> "Waiting":
        return self

    def __exit__(self, *_: object) -> None:
        return None


class Notebook(Protocol):
    """What a notebook shows of jobs."""

    WaitingLine: type[Waiting]

    def show(self, job: "Job") -> None:
        """Show a job as a table that keeps itself up to date."""


def notebook() -> Notebook:
    """Import what shows jobs in a notebook, which lies above this."""
    found: Notebook = importlib.import_module("distlab.launching.notebook")
    return found


def waiting(job: "Job") -> Waiting:
    """What to show during a wait for `job`, as a context manager."""
    if notebook_shell() is None:
        return Waiting(job)
    return notebook().WaitingLine(job)


def show(job: "Job") -> None:
    """Show a job in a notebook.

    Raises:
        NotImplementedError: If there is no notebook; IPython then shows the text.
    """
    if notebook_shell() is None:
        raise NotImplementedError
    notebook().show(job)
