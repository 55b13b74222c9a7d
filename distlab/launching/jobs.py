"""The jobs that go on, also those that no name is left for: a cell that launches may run twice."""

import logging
import weakref

from distlab.errors import notebook_shell
from distlab.launching.kernel.job import Job
from distlab.launching.kernel.record import JobRecord

_logger = logging.getLogger("distlab")
_launched: "weakref.WeakKeyDictionary[JobRecord, tuple[str, int]]" = weakref.WeakKeyDictionary()
"""What each job runs, and the execution of a cell that has launched it. A job that goes on is held
by what steers it, and by nothing here once it is over."""
_handles: "weakref.WeakValueDictionary[str, Job]" = weakref.WeakValueDictionary()


def jobs() -> list[Job]:
    """Return the jobs of this process that are not over, the one launched first in front.

    Example:
        >>> import time, distlab
        >>> job = distlab.launch(time.sleep, 2, args=(60,))
        >>> distlab.jobs() == [job]
        True
        >>> for job in distlab.jobs():
        ...     job.cancel()
        >>> distlab.jobs()
        []
    """
    return [_handles.get(record.name) or Job(record) for record in _going_on()]


def keep(job: Job, target: object) -> None:
    """Have `jobs` know of a job; say so if another cell's job of the same target goes on.

    Jobs that a `with` statement ends are not spoken of: nobody loses them. Nor are those of one
    run of a cell, which means to have several.
    """
    name, shell = str(getattr(target, "__qualname__", target)), notebook_shell()
    cell = shell.execution_count if shell else 0
    for index, other in enumerate(_going_on()):
        before, then = _launched[other]
        if before == name and then != cell and not other.ends_with_block:
            words = "An earlier job of %s still runs: distlab.jobs()[%d].cancel() ends it."
            _logger.warning(words, name, index)
            break
    _launched[job._record], _handles[job._record.name] = (name, cell), job


def _going_on() -> list[JobRecord]:
    live = [record for record in list(_launched) if record.how is None]
    return sorted(live, key=lambda record: record.began)
