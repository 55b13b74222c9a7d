"""A job as a live table in a notebook, as text elsewhere.

In JupyterLab and Colab the table is shown once and then updated in place by a thread, which ends
with the job. It needs no widgets. What a notebook stores of it depends on the moment, so a cell
that shows a job whose stored output is compared with nbval has to be tagged
`nbval-ignore-output`.
"""

import html
import threading
import time
import weakref
from typing import TYPE_CHECKING

from distlab.errors import notebook_shell
from distlab.launching.kernel import snapshot
from distlab.launching.kernel.snapshot import HEADINGS, Snapshot

if TYPE_CHECKING:
    from distlab.launching.kernel.job import Job

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


def show(job: "Job") -> None:
    """Show a job in the notebook's cell and keep it up to date there.

    Raises:
        NotImplementedError: If there is no notebook; IPython then shows the text.
    """
    shell = notebook_shell()
    if shell is None:
        raise NotImplementedError
    with _lock:
        table = _tables.setdefault(job, _LiveTable())
    table.show(job)
    shell.events.register("post_run_cell", _settle)


def as_html(now: Snapshot) -> str:
    """A snapshot as HTML that reads well on light and on dark pages."""
    columns = now.columns()
    lines = [f'<div class="distlab-job">{_STYLE}<div>{html.escape(now.headline)}</div>']
    lines.append('<table class="distlab-ranks"><thead>')
    lines.append(_html_row([_cell("th", name, getattr(HEADINGS, name)) for name in columns]))
    lines.append("</thead><tbody>")
    for row in now.rows:
        lines.append(_html_row([_cell("td", name, getattr(row, name)) for name in columns]))
    lines.append("</tbody></table>")
    lines += [f"<div>{html.escape(words)}</div>" for words in (now.more, now.problem) if words]
    return "\n".join([*lines, "</div>"])


def _html_row(cells: list[str]) -> str:
    return f"<tr>{''.join(cells)}</tr>"


def _cell(tag: str, name: str, words: str) -> str:
    classes = {"elapsed": "distlab-right", "memory": "distlab-right", "line": "distlab-line"}
    attribute = f' class="{classes[name]}"' if name in classes else ""
    content = html.escape(words)
    if tag == "td" and name == "state":
        mark, colour = _MARKS[words]
        style = f"color:{colour};display:inline-block;width:1.4em;font-weight:bold"
        content = f'<span aria-hidden="true" style="{style}">{mark}</span>{content}'
    return f"<{tag}{attribute}>{content}</{tag}>"


class _LiveTable:
    """All that shows one job in a notebook: any number of cells with one display id."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._id: str | None = None
        self._shown: Snapshot | None = None
        self._thread: threading.Thread | None = None

    def show(self, job: "Job") -> None:
        """Show the job in the current cell. Cells that show it already are updated with it."""
        with self._lock:
            self._publish(snapshot.take(job), again=True)
            self._watch(job)

    def settle(self, job: "Job") -> None:
        """Say how the job ended, if it is over; go on watching if it was started again."""
        with self._lock:
            if job.done():
                self._publish(snapshot.take(job))
            else:
                self._watch(job)

    def _watch(self, job: "Job") -> None:
        if self._thread is None and not job.done():
            self._thread = threading.Thread(
                target=self._keep_up, args=(job,), name="distlab-display", daemon=True
            )
            self._thread.start()

    def _keep_up(self, job: "Job") -> None:
        pause = _PAUSE
        while True:
            with job._record.changed:
                job._record.changed.wait_for(lambda: job.done(), timeout=pause)
            began = time.monotonic()
            with self._lock:
                over = job.done()
                self._publish(snapshot.take(job))
                if over:
                    self._thread = None
                    return
            # However many ranks there are, looking at them takes a small part of the time.
            pause = max(_PAUSE, 20 * (time.monotonic() - began))

    def _publish(self, now: Snapshot, again: bool = False) -> None:
        """Bring the table up to date if need be, and with `again` show it once more."""
        from IPython.display import display

        if now == self._shown and not again:
            return
        self._shown = now
        bundle = {"text/plain": str(now), "text/html": as_html(now)}
        if self._id is None:
            handle = display(bundle, raw=True, display_id=True)  # type: ignore[no-untyped-call]
            self._id = handle.display_id
        else:
            display(  # type: ignore[no-untyped-call]
                bundle, raw=True, display_id=self._id, update=not again
            )


_tables: "weakref.WeakKeyDictionary[Job, _LiveTable]" = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def _settle(*_: object) -> None:
    """At the end of each cell: what it stored, or waited for, is what its reader sees."""
    with _lock:
        tables = list(_tables.items())
    for job, table in tables:
        table.settle(job)
