"""The jobs that go on, also those that no name is left for: a cell that launches may run twice."""

import logging
import threading

from distlab.launching.kernel.job import Job

_logger = logging.getLogger("distlab")
_kept: list[tuple[Job, str]] = []
_keeping = threading.RLock()


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
    with _keeping:
        _kept[:] = [(job, name) for job, name in _kept if not job.done()]
        return [job for job, _ in _kept]


def keep(job: Job, target: object) -> None:
    """Have `jobs` know of a job, and say so if another one of the same function or script goes on.

    Jobs that a `with` statement ends are not spoken of: nobody loses them.
    """
    name = str(getattr(target, "__qualname__", target))
    with _keeping:
        for index, other in enumerate(jobs()):
            if _kept[index][1] == name and not other._record.ends_with_block:
                words = "An earlier job of %s still runs: distlab.jobs()[%d].cancel() ends it."
                _logger.warning(words, name, index)
                break
        _kept.append((job, name))
