"""What one rank needs to know."""

from pathlib import Path
from typing import Any

import msgspec

from distlab.launching.protocol.files import rank_file
from distlab.launching.protocol.messages import Launch


class RankSpec(msgspec.Struct, frozen=True, kw_only=True):
    """All that one rank needs to know, as it is handed over to a fresh interpreter, too.

    Attributes:
        launch: What was asked for, with all variables of this rank as its environment.
        rank: Which rank.
        attempt: How often it was started before.
        host: The address of its node.
        parent: The supervisor's process id.
        notify: The pipe that takes its words.
        gate: A pipe that ends when no other rank needs this one any more; None where none does.
    """

    launch: Launch
    rank: int
    attempt: int
    host: str
    parent: int
    notify: int
    gate: int | None

    @property
    def place(self) -> dict[str, Any]:
        """The fields by which what it says begins."""
        return {"job": self.launch.job, "rank": self.rank, "attempt": self.attempt}

    def file(self, kind: str) -> Path:
        """Where this rank keeps its `log`, `result`, `error` or `stack`."""
        return rank_file(Path(self.launch.directory), self.rank, self.attempt, kind)
