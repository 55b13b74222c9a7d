"""What an engine offers a job: places on its nodes, and a way to what runs there."""

import abc
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from distlab.launching.protocol.messages import AnyEvent, AnyRequest, Launch
from distlab.launching.protocol.tasks import Part


@dataclass(frozen=True)
class Work:
    """What ranks are placed for.

    Attributes:
        launch: The job.
        fork: Whether ranks may be forked from their supervisor.
        settings: The variables of this process that frameworks read.
    """

    launch: Launch
    fork: bool
    settings: dict[str, str]


class PartLostError(RuntimeError):
    """A part of a job cannot be reached any more: its node is gone, or was taken away."""


class Place(Protocol):
    """One part of a job on an engine, and the way to it."""

    part: Part
    name: str
    """Its node, in words."""

    def send(self, request: AnyRequest) -> None:
        """Pass a request on to the supervisor there. Raises PartLostError."""

    def receive(self) -> list[AnyEvent]:
        """Wait a while for events. Raises PartLostError."""


class Placement(Protocol):
    """Places for all ranks of one job."""

    @property
    def places(self) -> Sequence[Place]:
        """The places, each with some of the ranks."""

    def release(self) -> None:
        """End what is there, and give the places back."""


class PlacementError(RuntimeError):
    """No places could be found; the message says why, and what to do."""


class Engine(abc.ABC):
    """What can place ranks somewhere: `distlab.Ray`, `distlab.Slurm`."""

    @abc.abstractmethod
    def check(self, count: int) -> None:
        """Raise an error if it cannot start so many ranks from here."""

    @abc.abstractmethod
    def place(self, work: "Work", cancelled: threading.Event) -> Placement:
        """Find a place for every rank, which may take long.

        Raises PlacementError, also when `cancelled` is set meanwhile; nothing is left then.
        """
