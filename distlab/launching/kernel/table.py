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

_PAUSE = 0.5
"""The least seconds between two updates while nothing but the time goes on."""

# The colours of Okabe and Ito that show on light and on dark; the words say the same.
_MARKS = {
    "waiting": ("○", "#7f8790"),
    "starting": ("◌", "#0c87c8"),
    "running": ("●", "#0c87c8"),
    "paused": ("‖", "#b77a00"),
    "done": ("✓", "#00966c"),
    "failed": ("✗", "#d95f02"),
    "killed": ("✗", "#d95f02"),
    "lost": ("✗", "#d95f02"),
    "stopped": ("■", "#7f8790"),
}
# Notebooks bring table styles of their own, which these rules have to outweigh.
_STYLE = """<style>
.distlab-job{font:13px/1.5 var(--jp-ui-font-family,system-ui,sans-serif);
color:var(--jp-ui-font-color1,inherit)}
.distlab-job table.distlab-ranks{margin:4px 0;border-collapse:collapse;font-size:inherit;
color:inherit;border:0;table-layout:auto}
.distlab-job table.distlab-ranks tr,.distlab-job table.distlab-ranks tr:hover{background:none}
.distlab-job table.distlab-ranks th,.distlab-job table.distlab-ranks td{padding:2px 18px 2px 0;
text-align:left;white-space:pre;border:0;vertical-align:baseline;max-width:none;color:inherit;
background:none;font-variant-numeric:tabular-nums}
.distlab-job table.distlab-ranks th{font-weight:normal;
color:var(--jp-ui-font-color2,inherit);border-bottom:1px solid rgba(128,128,128,.5)}
.distlab-job table.distlab-ranks .distlab-right{text-align:right}
.distlab-job table.distlab-ranks td.distlab-line{font-family:var(--jp-code-font-family,monospace);
font-size:12px}
</style>"""
_handles: "weakref.WeakKeyDictionary[JobRecord, Any]" = weakref.WeakKeyDictionary()
"""What shows a job: any number of cells with one display id."""
_threads: dict[JobRecord, threading.Thread] = {}
_CLASSES = {RIGHT: ' class="distlab-right"', "last line": ' class="distlab-line"'}


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
    """A snapshot as HTML that reads well on light and on dark pages."""
    from html import escape  # which is slow to import

    headings, *rows = now.table()

    def line(tag: str, row: list[str]) -> str:
        cells = ""
        for heading, words in zip(headings, row, strict=True):
            content = escape(words)
            if tag == "td" and heading == "state":
                mark, colour = _MARKS[words]
                style = f"color:{colour};display:inline-block;width:1.4em;font-weight:bold"
                content = f'<span aria-hidden="true" style="{style}">{mark}</span>{content}'
            cells += f"<{tag}{_CLASSES.get(heading, '')}>{content}</{tag}>"
        return f"<tr>{cells}</tr>"

    body = "\n".join(line("td", row) for row in rows)
    after = "".join(f"\n<div>{escape(words)}</div>" for words in (now.more, now.problem) if words)
    return (
        f'<div class="distlab-job">{_STYLE}<div>{escape(now.headline)}</div>\n'
        f'<table class="distlab-ranks"><thead>\n{line("th", headings)}\n</thead><tbody>\n'
        f"{body}\n</tbody></table>{after}\n</div>"
    )
