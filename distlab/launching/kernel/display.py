"""What a notebook shows of a job: its table where it is asked for, a line where it is waited for.

Both are shown once and then brought up to date in place by a thread, which ends with the job; they
need no widgets. The line comes after half a second of waiting, and below what the ranks have
printed after a silence. As what a notebook stores of them depends on the moment,
`DISTLAB_PROGRESS=off` leaves the line out, and a cell that shows a table has to be tagged
`nbval-ignore-output` where outputs are compared.
"""

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from distlab.errors import in_one_line, notebook_shell
from distlab.launching.kernel import failures, snapshot
from distlab.launching.kernel.record import JobRecord
from distlab.launching.kernel.status import ENDED

VARIABLE = "DISTLAB_PROGRESS"
_PAUSE = 0.5
"""Seconds without the line, and then between two updates."""
_SILENCE = 5.0
"""Seconds without a word of the ranks, after which the line comes below their last one."""
_LONG = 5.0
"""Seconds after which a wait may be a hang, and the line says where the ranks are."""
_PLACES = 4
"""In how many places of their code a line says that ranks are."""
_T = TypeVar("_T")
View = Callable[[JobRecord], dict[str, str]]
"""What is shown of a job, by MIME type."""

_shown: "weakref.WeakKeyDictionary[JobRecord, dict[View, Any]]" = weakref.WeakKeyDictionary()
"""The handle of each view, which any number of cells may show, and what it shows."""
_cells: "weakref.WeakKeyDictionary[JobRecord, int]" = weakref.WeakKeyDictionary()
"""The last cell that has a job's line below all that it shows."""
_threads: dict[JobRecord, threading.Thread] = {}


def show(record: JobRecord, view: View = snapshot.table) -> None:
    """Show a job in the notebook's cell and keep it up to date, there and where it was before.

    Raises:
        NotImplementedError: If there is no notebook; IPython then shows the text.
    """
    if notebook_shell() is None:
        raise NotImplementedError
    from IPython.display import display

    with record.changed:
        views, now = _shown.setdefault(record, {}), view(record)
        if view is snapshot.line:  # another one, further down
            drop_line(record)
        if view in views:
            handle = views[view][0]
            handle.display(now, raw=True)
        else:
            handle = display(now, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        views[view] = handle, now
    follow(record)


def drop_line(record: JobRecord) -> None:
    """Take away a job's line: it goes further down, or an error is about to say more."""
    with record.changed:
        _cells.pop(record, None)
        if snapshot.line in _shown.get(record, {}):
            handle, _ = _shown[record].pop(snapshot.line)
            handle.update({"text/plain": "", "text/html": ""}, raw=True)


def follow(record: JobRecord) -> None:
    """Keep up to date what shows a job, if anything does, until the job is over."""
    with record.changed:
        if record not in _shown or record in _threads or record.how is not None:
            return
        _threads[record] = threading.Thread(
            target=_keep_up, args=[record], name="distlab-display", daemon=True
        )
    _threads[record].start()


def _keep_up(record: JobRecord) -> None:
    look = _LONG
    while True:
        with record.changed:
            over = record.changed.wait_for(lambda: record.how is not None, timeout=_PAUSE)
        began = max(status.started or record.began for status in record.statuses())
        waited = time.monotonic() - began
        seen = record in _cells or snapshot.table in _shown[record]
        if not over and seen and waited > look:
            if places := failures.whereabouts(record, failures.still_running(record)):
                record.places = f"seen at {waited:.0f} s: {'; '.join(places[:_PLACES])}"
            look = waited + max(_LONG, waited / 4)
        with record.changed:
            for view, (handle, before) in list(_shown[record].items()):
                if (now := view(record)) != before:
                    handle.update(now, raw=True)
                    _shown[record][view] = handle, now
            if over and record.how is not None:  # it may have been started again
                del _threads[record]
                return


@contextlib.contextmanager
def waiting(
    record: JobRecord, cancel: Callable[[], None] | None = None
) -> Iterator[Callable[..., None]]:
    """Within it a cell shows what it waits for, if that lasts and what is given is called.

    That has one argument: whether something has been printed since the last call.

    An interrupt calls `cancel`, if given, and says what becomes of the job.
    """
    shell = notebook_shell()
    # Only the main thread's displays are sure to land in the cell that waits.
    main = threading.current_thread() is threading.main_thread()
    wanted = main and shell is not None and os.environ.get(VARIABLE, "").lower() not in ("off", "0")
    quiet_from = time.monotonic() + _PAUSE

    def tick(printed: bool = False) -> None:
        nonlocal quiet_from
        if printed:
            quiet_from = time.monotonic() + _SILENCE
            _cells.pop(record, None)
            record.places = ""
        elif wanted and time.monotonic() > quiet_from:
            if _cells.get(record) != shell.execution_count:
                show(record, snapshot.line)
            _cells[record] = shell.execution_count

    try:
        yield tick
    except (KeyboardInterrupt, RuntimeError) as error:
        if not _is_interrupt(error):
            raise
        live = sum(status.state not in (*ENDED, "waiting") for status in record.statuses())
        words = f"{live} rank{'s' * (live != 1)} {'was' if live == 1 else 'were'} stopped"
        if cancel is not None or record.ends_with_block:
            places = _despite_interrupts(
                lambda: failures.whereabouts(record, failures.still_running(record)), again=False
            )
            if cancel is not None:
                _despite_interrupts(cancel, again=True)
            if places:
                words += f": {'; '.join(places[:_PLACES])}"
        elif record.how is None:
            words = "the job goes on: cancel() ends it"
        else:
            words = "the job is over"
        raise in_one_line(f"interrupted; {words}") from None
    finally:
        thread = _threads.get(record)
        if record.how is not None and thread is not None:  # its last word belongs to this cell
            thread.join()


def _is_interrupt(error: BaseException) -> bool:
    # In the middle of Condition.wait an interrupt leaves its lock open, which fails then.
    return KeyboardInterrupt in (type(error), type(error.__context__))


def _despite_interrupts(what: Callable[[], _T], again: bool) -> _T | None:
    """Do what an interrupt asks for although more interrupts come: begin it again, or leave it."""
    while True:
        try:
            return what()
        except (KeyboardInterrupt, RuntimeError) as error:
            if not _is_interrupt(error):
                raise
            if not again:
                return None
