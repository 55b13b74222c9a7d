"""What becomes of a job that nobody holds any more: a thread sees to it, never the reader's own.

Python calls a finalizer wherever the last reference goes, perhaps in the middle of a cell, and an
interrupt that comes within it is lost. Nothing of Python's is run there: a queue takes a note.
"""

import atexit
import contextlib
import logging
import os
import queue
import threading
import weakref
from typing import Any

from distlab.launching.kernel.client import Client

_logger = logging.getLogger("distlab")
_gone: "queue.SimpleQueue[weakref.ref[Any]]" = queue.SimpleQueue()
_known: "dict[weakref.ref[Any], tuple[Client, str]]" = {}
_watched_by: int | None = None
"""The process whose thread does the forgetting: a fork has none."""


def when_gone(record: object, client: Client, job: str) -> None:
    """Have a client forget a job as soon as nobody holds its record, or when this process ends."""
    global _watched_by
    _known[weakref.ref(record, _gone.put)] = client, job
    if _watched_by != os.getpid():
        with contextlib.suppress(RuntimeError):  # a limit on processes: the next job tries again
            threading.Thread(target=_watch, name="distlab-forgetting", daemon=True).start()
            _watched_by = os.getpid()
            atexit.register(_forget_all, _watched_by)


def _watch() -> None:
    while True:
        _forget(_gone.get())


def _forget_all(process: int) -> None:
    if process == os.getpid():
        for reference in list(_known):
            _forget(reference)


def _forget(reference: "weakref.ref[Any]") -> None:
    if reference not in _known:
        return
    client, job = _known.pop(reference)
    try:
        client.forget(job)
    except Exception:
        _logger.warning("What a job has left could not be removed.", exc_info=True)
