"""What a supervisor gives its jobs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from distlab.launching.protocol.messages import Message
from distlab.launching.supervisor.loop import Loop
from distlab.launching.supervisor.pool import Pool


@dataclass(frozen=True)
class Means:
    """What a supervisor gives its jobs.

    Attributes:
        loop: Where to have something done later.
        pool: What starts ranks.
        tell: Sends an event to the kernel.
        conclude: Leaves nothing of a job behind whose last rank is gone.
    """

    loop: Loop
    pool: Pool
    tell: Callable[[Message], None]
    conclude: Callable[[Any], None]
