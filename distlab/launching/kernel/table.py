"""A job as a live table in a notebook, as text elsewhere.

In JupyterLab and Colab the table is shown once and then updated in place by a thread, which ends
with the job. It needs no widgets. What a notebook stores of it depends on the moment, so a cell
that shows a job whose stored output is compared with nbval has to be tagged
`nbval-ignore-output`.
"""

import threading
import time
import weakref
from typing import Any

from distlab.errors import notebook_shell
from distlab.launching.kernel import snapshot
from distlab.launching.kernel.record import JobRecord
from distlab.launching.kernel.snapshot import RIGHT, Snapshot
from distlab.tables import html_table

_PAUSE = 0.5
"""The least seconds between two updates while nothing but the time goes on."""

_MARKS = {
    "waiting": "○",
    "starting": "◌",
    "running": "●",
    "paused": "‖",
    "done": "✓",
    "failed": "✗",
    "killed": "✗",
    "lost": "✗",
    "stopped": "■",
}
_handles: "weakref.WeakKeyDictionary[JobRecord, Any]" = weakref.WeakKeyDictionary()
"""What shows a job: any number of cells with one display id."""
_threads: dict[JobRecord, threading.Thread] = {}


def show(record: JobRecord) -> None:
    """Show a job in the notebook's cell and keep it up to date, there and where it was before.

    Raises:
        NotImplementedError: If there is no notebook; IPython then shows the text.
    """
    shell = notebook_shell()
    if shell is None:
        raise NotImplementedError
    from IPython.display import display

    now = snapshot.take(record)
    bundle = _bundle(now)
    if record in _handles:
        _handles[record].display(bundle, raw=True)
    else:
        _handles[record] = display(bundle, raw=True, display_id=True)  # type: ignore[no-untyped-call]
    shell.events.register("post_run_cell", _settle)
    follow(record, now)


def follow(record: JobRecord, shown: Snapshot | None = None) -> None:
    """Keep up to date what shows a job, if anything does, until the job is over."""
    with record.changed:
        if record not in _handles or record in _threads or record.how is not None:
            return
        _threads[record] = threading.Thread(
            target=_keep_up, args=(record, shown), name="distlab-display", daemon=True
        )
    _threads[record].start()


def _keep_up(record: JobRecord, shown: Snapshot | None) -> None:
    pause = _PAUSE
    while True:
        with record.changed:
            record.changed.wait_for(lambda: record.how is not None, timeout=pause)
            over = record.how is not None
        began = time.monotonic()
        now = snapshot.take(record)
        if now != shown:
            _handles[record].update(_bundle(now), raw=True)
            shown = now
        with record.changed:
            if over and record.how is not None:
                del _threads[record]
                return
        # However many ranks there are, looking at them takes a small part of the time.
        pause = max(_PAUSE, 20 * (time.monotonic() - began))


def _settle(*_: object) -> None:
    """At the end of each cell: what it waited for is what its reader sees."""
    for record, thread in list(_threads.items()):
        if record.how is not None:
            thread.join()


def _bundle(now: Snapshot) -> dict[str, str]:
    return {"text/plain": str(now), "text/html": as_html(now)}


def as_html(now: Snapshot) -> str:
    """A snapshot as HTML, in the notebook's own colours."""
    from html import escape  # which is slow to import

    headings, *rows = now.table()
    state = headings.index("state")
    for row in rows:
        row[state] = f"{_MARKS[row[state]]} {row[state]}"
    right = [i for i, heading in enumerate(headings) if heading in RIGHT]
    after = "".join(f"<div>{escape(words)}</div>" for words in (now.more, now.problem) if words)
    return f"<div>{escape(now.headline)}</div>{html_table(headings, rows, right)}{after}"
