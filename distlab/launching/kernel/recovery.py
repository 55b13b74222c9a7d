"""Starting a job again when a rank or its node is lost: how often, how often so far, and why."""

import logging

_logger = logging.getLogger("distlab")


class Recovery:
    """The restarts a job is allowed, and those it has had.

    Args:
        limit: How many times its group may be started again.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.reasons: list[str] = []
        """Why it was started again, once per restart."""
        self.given_up = False
        """Whether somebody has stopped the job, so that nothing starts it again."""

    def begins(self, reason: str) -> bool:
        """Whether the job starts again because of `reason`, which is logged and counts then."""
        if self.given_up or len(self.reasons) >= self.limit:
            if self.limit and not self.given_up:
                _logger.info("No restart is left of %d: %s", self.limit, reason)
            return False
        self.reasons.append(reason)
        _logger.info("%s", self.describe(len(self.reasons)))
        return True

    def describe(self, number: int) -> str:
        """One restart in words, counted from 1."""
        return f"restart {number} of at most {self.limit}: {self.reasons[number - 1]}"
