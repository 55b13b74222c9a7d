"""Where each rank of a job stands."""

from dataclasses import dataclass

from distlab.launching.protocol.tasks import Task, services

ENDED = ("done", "failed", "killed", "stopped", "lost")
LOST = ("failed", "killed", "lost")
"""The ends after which a group cannot go on as it was."""


@dataclass
class RankStatus:
    """Where one rank stands.

    Attributes:
        rank: Its rank.
        task: Its task type and index.
        state: `waiting` for `Job.start`, `starting`, `running`, `paused`, `done`, `failed`,
            `killed` by `Job.kill`, `stopped` because the job was, or `lost` with its supervisor.
        pid: Its process id, None before it starts.
        attempt: How often it was started before.
        started: When it was started, in seconds of `time.monotonic`.
        failed: When its target failed, likewise; None if it has not, or nobody has said so.
        ended: When it ended, likewise; None while it runs.
        exitcode: Its exit status, negative for a signal; None while it runs.
        node: The node it runs on, where that is another machine than this.
        why: Why it was lost, or has failed, where no report of it says so.
    """

    rank: int
    task: Task
    state: str = "waiting"
    pid: int | None = None
    attempt: int = -1
    started: float | None = None
    failed: float | None = None
    ended: float | None = None
    exitcode: int | None = None
    node: str = ""
    why: str = ""


def label(ranks: list[RankStatus], rank: int) -> str:
    """A rank in words: with its task where the job has tasks of several types."""
    kinds = {status.task.role for status in ranks}
    return f"rank {rank}" if kinds == {"worker"} else f"rank {rank} ({ranks[rank].task})"


def is_well(ranks: list[RankStatus], rank: int) -> bool:
    """Whether a rank has come to a good end: one that only serves others is stopped at the end."""
    served = rank in services([status.task for status in ranks])
    return ranks[rank].state == "done" or (served and ranks[rank].state == "stopped")
