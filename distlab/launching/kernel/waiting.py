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

from distlab.errors import in_one_line, notebook_shell
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
    """Within it a notebook's cell shows what it waits for, each time that what is given is called.

    Told False, that shows nothing where nothing is shown yet.
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
            _line.show(_words(record, began), begin)
            last = time.monotonic()

    try:
        yield tick
    finally:  # what stays must be true later, too
        ended = "" if record.how is not None else " when this wait ended"
        _line.show(_words(record, began) + ended, begin=False)


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
    """As `shown`; and an interrupt calls `cancel`, if given, and says what becomes of the job."""
    try:
        with shown(record) as tick:
            yield tick
    except (KeyboardInterrupt, RuntimeError) as error:
        # In the middle of Condition.wait an interrupt leaves its lock open, which fails then.
        if KeyboardInterrupt not in (type(error), type(error.__context__)):
            raise
        live = sum(status.state not in (*ENDED, "waiting") for status in record.statuses())
        words = f"{live} rank{'s' * (live != 1)} {'was' if live == 1 else 'were'} stopped"
        if cancel is not None:
            cancel()
        elif record.how is None:
            words = "the job goes on: cancel() ends it"
        else:
            words = "the job is over"
        raise in_one_line(f"interrupted; {words}") from None


class _Line:
    """The line of the cell that runs now: several waits of a cell share it."""

    def __init__(self) -> None:
        self._cell: int | None = None
        self._handle: Any = None
        self._words = ""

    def show(self, words: str, begin: bool) -> None:
        """Bring the line up to date; with `begin` show it where it is not shown yet."""
        from html import escape  # which is slow to import

        from IPython.display import display

        cell = notebook_shell().execution_count
        if cell != self._cell:
            self._cell, self._handle, self._words = cell, None, ""
        if words == self._words or (self._handle is None and not begin):
            return
        self._words = words
        html = f'<div style="{_STYLE}">{escape(words)}</div>'
        bundle = {"text/plain": words, "text/html": html}
        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(bundle, raw=True)


def _words(record: JobRecord, began: float) -> str:
    """What has been waited for since then."""
    if record.client.ready.is_set() or record.how is not None:
        return snapshot.headline(record)
    seconds = time.monotonic() - began
    return f"{record.client.preparing}: {snapshot.duration(seconds, exact=False)}"


_line = _Line()
