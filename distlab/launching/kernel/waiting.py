"""One line in a notebook's cell that says what is being waited for, and since when.

It comes after half a second of waiting, follows the job, and stays as the job's last word. As it
depends on the moment, `DISTLAB_PROGRESS=off` leaves it out where outputs are stored or compared.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from distlab.errors import interrupted, left_alone, notebook_shell
from distlab.launching.kernel import snapshot
from distlab.launching.kernel.record import JobRecord
from distlab.launching.kernel.status import ENDED

VARIABLE = "DISTLAB_PROGRESS"
_PATIENCE = 0.5
"""Seconds without the line, and then between two updates of it."""
_STYLE = (
    "font:13px/1.5 var(--jp-ui-font-family,system-ui,sans-serif);"
    "color:var(--jp-ui-font-color2,#7a7a7a)"
)


@contextlib.contextmanager
def shown(record: JobRecord) -> Iterator[Callable[..., None]]:
    """Within it a cell shows what it waits for; nothing outside a notebook.

    Yields:
        What to call again and again; told False, it shows nothing where nothing is shown yet.
    """
    # Only the main thread's displays are sure to land in the cell that waits.
    main = threading.current_thread() is threading.main_thread()
    wanted = os.environ.get(VARIABLE, "").lower() not in ("off", "0")
    if not (main and wanted and notebook_shell() is not None):
        yield lambda _=True: None
        return
    began = last = time.monotonic()

    def tick(begin: bool = True) -> None:
        nonlocal last
        if time.monotonic() - last >= _PATIENCE:
            _line.show(record, _words(record, began), begin)
            last = time.monotonic()

    try:
        yield tick
    finally:
        if last != began:
            _line.show(record, _words(record, began), begin=False)


def wait_until(
    record: JobRecord, condition: Callable[[], Any], timeout: float | None = None
) -> bool:
    """Wait until a condition holds, or the job is lost, or for some seconds; false after those."""
    with shown(record) as tick:
        return record.wait_until(lambda: condition() or record.how == "lost", timeout, tick)


@contextlib.contextmanager
def waiting(
    record: JobRecord, cancel: Callable[[], None] | None = None
) -> Iterator[Callable[..., None]]:
    """Within it a notebook says what is waited for, and an interrupt what becomes of the job.

    Args:
        record: The job.
        cancel: What ends it, if an interrupt is to do so.

    Yields:
        What to call again and again; see `shown`.
    """
    try:
        with shown(record) as tick:
            yield tick
    except (KeyboardInterrupt, RuntimeError) as error:
        # In the middle of Condition.wait an interrupt leaves its lock open, which fails then.
        if KeyboardInterrupt not in (type(error), type(error.__context__)):
            raise
        if cancel is None:
            raise left_alone(record.how is not None) from None
        live = sum(status.state not in (*ENDED, "waiting") for status in record.statuses())
        cancel()
        raise interrupted(live) from None


class _Line:
    """The line of the cell that runs now: several waits of a cell share it."""

    def __init__(self) -> None:
        self._count: int | None = None
        self._handle: Any = None
        self._words = ""
        self._record: JobRecord | None = None

    def show(self, record: JobRecord, words: str, begin: bool) -> None:
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
        self._record = record

    def _update(self, words: str) -> None:
        if words != self._words:
            self._words = words
            self._handle.update(_bundle(words), raw=True)

    def _settle(self, *_: object) -> None:
        """At the end of the cell: what stays must be true later, too."""
        notebook_shell().events.unregister("post_run_cell", self._settle)
        record, self._record = self._record, None
        if record is not None:
            now = _headline(record)
            self._update(now if record.how is not None else f"{now} when this cell ended")
        self._handle = None


def _words(record: JobRecord, began: float) -> str:
    """What has been waited for since then."""
    if record.client.ready.is_set() or record.how is not None:
        return _headline(record)
    seconds = time.monotonic() - began
    return f"{record.client.preparing}: {snapshot.duration(seconds, exact=False)}"


def _headline(record: JobRecord) -> str:
    words = snapshot.headline(record)
    starts = [status.started for status in record.statuses() if status.started is not None]
    start = min(starts, default=record.asked) - record.asked
    if start < 1 or record.how is None:
        return words
    return f"{words} (plus {snapshot.duration(start, exact=False)} to get started)"


def _bundle(words: str) -> dict[str, str]:
    from html import escape  # which is slow to import

    return {"text/plain": words, "text/html": f'<div style="{_STYLE}">{escape(words)}</div>'}


_line = _Line()
