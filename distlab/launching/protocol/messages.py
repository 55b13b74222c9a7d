"""What kernel, supervisors, nodes and ranks tell one another: typed, one JSON object to a line.

Requests go from the kernel to a supervisor, events the other way. On a node of a Ray cluster both
pass through a `NodeActor`. Ranks say some events to their supervisor.
"""

from typing import Literal

import msgspec

from distlab.errors import shown
from distlab.launching.protocol.tasks import Part, Task

VERSION = 3
"""Of these messages. Both sides of a conversation must have the same."""

How = Literal["done", "failed", "stopped", "timeout", "lost"]
"""How an attempt of a job ends."""


class ProtocolError(RuntimeError):
    """The other side speaks another version of this protocol, or none at all."""


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="message", tag=True):
    """Anything that is said. A line names its type and carries its fields."""


# What the kernel asks for.


class Request(Message, frozen=True, kw_only=True):
    """Something that a supervisor is to do for a job."""

    job: str


class Launch(Request, frozen=True, kw_only=True):
    """Run a job.

    Attributes:
        tasks: The task of each rank of the job, in rank order.
        ranks: Those to start now; the others wait for `Start`.
        framework: What the ranks use.
        script: The path of a script; None for the function in the job's directory.
        arguments: The words of the script's command line.
        path: What ranks import from, `sys.path`; None for what the supervisor does.
        overrides: Variables to set in the ranks.
        environment: The variables they start from.
        devices_per_rank: Virtual devices within each; None for what there is.
        timeout: Seconds that an attempt may take; None for any number.
        cwd: The directory the ranks work in.
        directory: The job's own, where its ranks leave their files.
        part: The ranks that this supervisor starts, if others start the rest.
        attempt: The number of this attempt of the job.
        attempts: How often each rank was started before, less one; None for never.
    """

    tasks: list[Task]
    ranks: list[int]
    framework: str | None = None
    script: str | None = None
    arguments: list[str] = []
    path: list[str] | None = None
    overrides: dict[str, str] = {}
    environment: dict[str, str] = {}
    devices_per_rank: int | None = None
    timeout: float | None = None
    cwd: str = ""
    directory: str = ""
    part: Part | None = None
    attempt: int = 0
    attempts: list[int] | None = None


class OfRanks(Request, frozen=True, kw_only=True):
    """Something that a supervisor is to do to some ranks of a job."""

    ranks: list[int]


class Start(OfRanks, frozen=True, kw_only=True):
    """Start ranks that a launch has left out."""


class Restart(OfRanks, frozen=True, kw_only=True):
    """Start ranks again: alone, or as a new group that takes the job's next attempt."""

    together: bool


class Kill(OfRanks, frozen=True, kw_only=True):
    """End ranks with SIGKILL."""


class Pause(OfRanks, frozen=True, kw_only=True):
    """Stop ranks where they are."""


class Resume(OfRanks, frozen=True, kw_only=True):
    """Let paused ranks go on."""


class Stop(Request, frozen=True, kw_only=True):
    """End all ranks of a job."""


class Meet(Request, frozen=True, kw_only=True):
    """All parts of a job know where they listen: these are the addresses, by rank."""

    attempt: int
    addresses: dict[int, str]


class Finish(Request, frozen=True, kw_only=True):
    """Another part of the job has brought an attempt to its end."""

    attempt: int
    how: How


class Hold(Request, frozen=True, kw_only=True):
    """Have as many processes wait for the next job."""

    nprocs: int


class WriteStacks(Request, frozen=True, kw_only=True):
    """Have the ranks write down where they are."""


class Forget(Request, frozen=True, kw_only=True):
    """Nobody asks for the job's logs or results any more."""


# What a supervisor says.


class Ready(Message, frozen=True, kw_only=True):
    """The framework is imported; requests are read from now on."""

    version: int = VERSION


class Broken(Message, frozen=True, kw_only=True):
    """The framework cannot be imported."""

    error: str


class Event(Message, frozen=True, kw_only=True):
    """Something about a job."""

    job: str


class OfRank(Event, frozen=True, kw_only=True):
    """Something about a rank.

    Attributes:
        rank: Which rank.
        attempt: How often it was started before.
    """

    rank: int
    attempt: int


class RankChanged(OfRank, frozen=True, kw_only=True):
    """A rank has another state.

    Attributes:
        group: The attempt of the whole job.
        state: As in `RankStatus`.
        pid: Its process id, if it has just been started.
        status: Its exit status, if it has just ended; negative for a signal.
        node: Its node in words, if it is not this machine.
        why: What its status and its files do not say of its end.
    """

    group: int
    state: str
    pid: int | None = None
    status: int | None = None
    node: str = ""
    why: str = ""


class Failing(OfRank, frozen=True, kw_only=True):
    """A rank's target has failed; the rank has not come to its end yet.

    Attributes:
        why: What went wrong, where the rank could leave no report of it.
    """

    why: str = ""


class Returned(OfRank, frozen=True, kw_only=True):
    """A rank has done all that it had to, and stays for the others.

    To the kernel its attempt is that of the whole job.
    """


class Ended(OfRank, frozen=True, kw_only=True):
    """A rank has ended but for the memory that the system takes back; nothing it started is left.

    The supervisor hears it.
    """

    status: int


class Addresses(Event, frozen=True, kw_only=True):
    """Where the ranks of one part listen in an attempt."""

    attempt: int
    addresses: dict[int, str]


class Ending(Event, frozen=True, kw_only=True):
    """One part brings an attempt to its end."""

    attempt: int
    how: How


class Over(Event, frozen=True, kw_only=True):
    """Nothing of an attempt is running any more."""

    attempt: int
    how: How


class StacksWritten(Event, frozen=True, kw_only=True):
    """The ranks have written down where they are."""


class SupervisorLost(Event, frozen=True, kw_only=True):
    """On another node: there is no supervisor any more."""

    why: str


AnyRequest = (
    Launch
    | Start
    | Restart
    | Kill
    | Pause
    | Resume
    | Stop
    | Meet
    | Finish
    | Hold
    | WriteStacks
    | Forget
)
AnyEvent = (
    RankChanged | Failing | Returned | Addresses | Ending | Over | StacksWritten | SupervisorLost
)
_events = msgspec.json.Decoder(Ready | Broken | AnyEvent)
requests = msgspec.json.Decoder(AnyRequest)
"""Reads what a supervisor is asked."""
words = msgspec.json.Decoder(Failing | Returned | Ended)
"""Reads what a rank says to its supervisor, before it has ended."""


def encode(message: Message) -> bytes:
    """A message as one line."""
    return msgspec.json.encode(message) + b"\n"


def read_event(line: bytes) -> Ready | Broken | AnyEvent:
    """What a supervisor says in one line.

    Raises:
        ProtocolError: If it is of another version of distlab, or nothing that distlab says.
    """
    try:
        event: Ready | Broken | AnyEvent = _events.decode(line)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"Not a message of distlab's: {shown(line)} ({error}).") from error
    if isinstance(event, Ready) and event.version != VERSION:
        raise ProtocolError(
            f"The supervisor is of another version of distlab: its messages have the version "
            f"{event.version}, ours {VERSION}. Install the same distlab in both places."
        )
    return event
