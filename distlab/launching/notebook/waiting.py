"""One line in a notebook's cell that says what is being waited for, and since when.

It comes after half a second of waiting, follows the job, and stays as the job's last word. As it
depends on the moment, `DISTLAB_PROGRESS=off` leaves it out where outputs are stored or compared.
"""

import html
import os
import threading
import time
from typing import TYPE_CHECKING, Any

from distlab.errors import notebook_shell
from distlab.launching.kernel import showing, snapshot

if TYPE_CHECKING:
    from distlab.launching.kernel.job import Job

VARIABLE = "DISTLAB_PROGRESS"
_PATIENCE = 0.5
"""Seconds without the line, and then between two updates of it."""
_STYLE = (
    "font:13px/1.5 var(--jp-ui-font-family,system-ui,sans-serif);"
    "color:var(--jp-ui-font-color2,#7a7a7a)"
)


class WaitingLine(showing.Waiting):
    """What a cell shows while it waits for a job; nothing outside a notebook.

    Args:
        job: Which.

    Example:
        >>> import distlab
        >>> from distlab.launching.notebook.waiting import WaitingLine
        >>> job = distlab.launch(print, 2)
        >>> with WaitingLine(job) as waiting:
        ...     while not job.done():
        ...         waiting.tick()
    """

    def __init__(self, job: "Job") -> None:
        super().__init__(job)
        self._began = time.monotonic()
        self._start: float | None = None
        """Seconds until the ranks could start, where that was waited for."""
        self._next = self._began + _PATIENCE
        # Only the main thread's displays are sure to land in the cell that waits.
        main = threading.current_thread() is threading.main_thread()
        wanted = os.environ.get(VARIABLE, "").lower() not in ("off", "0")
        self._shown = main and wanted and notebook_shell() is not None

    def tick(self, begin: bool = True) -> None:
        """Bring the line up to date, if it is time to.

        Args:
            begin: Whether to show it where it is not shown yet.
        """
        if self._shown and time.monotonic() >= self._next:
            _line.show(self._job, self._words(), self._start, begin)
            self._next = time.monotonic() + _PATIENCE

    def __exit__(self, *_: object) -> None:
        if self._began + _PATIENCE < self._next:
            _line.show(self._job, self._words(), self._start, begin=False)

    def _words(self) -> str:
        client = self._job._client
        if client.ready.is_set() or self._job.done():
            return _headline(self._job, self._start)
        self._start = time.monotonic() - self._began
        return f"{client.preparing}: {snapshot.duration(self._start, exact=False)}"


class _Line:
    """The line of the cell that runs now: several waits of a cell share it."""

    def __init__(self) -> None:
        self._count: int | None = None
        self._handle: Any = None
        self._words = ""
        self._job: Job | None = None
        self._start: float | None = None

    def show(self, job: "Job", words: str, start: float | None, begin: bool) -> None:
        """Bring the line up to date; with `begin` show it where it is not shown yet."""
        from IPython.display import display

        shell = notebook_shell()
        if shell.execution_count != self._count:
            self._count, self._handle = shell.execution_count, None
        if self._handle is not None:
            self._update(words)
        elif begin:
            self._handle = display(_bundle(words), raw=True, display_id=True)  # type: ignore[no-untyped-call]
            self._words = words
            shell.events.register("post_run_cell", self._settle)
        self._job, self._start = job, start

    def _update(self, words: str) -> None:
        if words != self._words:
            self._words = words
            self._handle.update(_bundle(words), raw=True)

    def _settle(self, *_: object) -> None:
        """At the end of the cell: what stays must be true later, too."""
        notebook_shell().events.unregister("post_run_cell", self._settle)
        job, self._job = self._job, None
        if job is not None:
            now = _headline(job, self._start)
            self._update(now if job.done() else f"{now} when this cell ended")
        self._handle = None


def _headline(job: "Job", start: float | None) -> str:
    words = snapshot.headline(job)
    if start is None or start < 1 or not job.done():
        return words
    return f"{words} (plus {snapshot.duration(start, exact=False)} to get started)"


def _bundle(words: str) -> dict[str, str]:
    line = f'<div style="{_STYLE}">{html.escape(words)}</div>'
    return {"text/plain": words, "text/html": line}


_line = _Line()
