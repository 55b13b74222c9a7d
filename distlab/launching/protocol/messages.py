"""What kernel, supervisors and ranks tell one another: typed, one JSON object to a line.

Requests go from the kernel to a supervisor, events the other way. With Ray both pass through a
`Driver` and, on each node, a `NodeActor`. Ranks say some events to their supervisor.
"""

from typing import Literal

import msgspec

from distlab.errors import shown
from distlab.launching.protocol.tasks import Part, Task

VERSION = 4
"""Of these messages. Both sides of a conversation must have the same."""

GRACE = 2.0
"""Seconds from SIGTERM to SIGKILL, unless somebody has said how many."""

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
        ranks: Those to start now; the others wait for `Restart`.
        framework: What the ranks use.
        script: The path of a script; None for the function in the job's directory.
        arguments: The words of the script's command line.
        path: What ranks import from, `sys.path`; None for what the supervisor does.
        overrides: Variables to set in the ranks.
        environment: The variables they start from.
        devices_per_rank: Virtual devices within each; None for what there is.
        timeout: Seconds that an attempt may take; None for any number.
        grace: Seconds from SIGTERM to SIGKILL for a rank that is to end.
        cwd: The directory the ranks work in.
        directory: The job's own, where its ranks leave their files.
        part: The ranks that this supervisor starts, if others start the rest.
        attempt: How often the job was started before, with another supervisor.
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
    grace: float = GRACE
    cwd: str = ""
    directory: str = ""
    part: Part | None = None
    attempt: int = 0


class Restart(Request, frozen=True, kw_only=True):
    """Start ranks, again or for the first time: alone, or as a new group, the next attempt."""

    ranks: list[int]
    together: bool


class Signal(Request, frozen=True, kw_only=True):
    """Send ranks a signal."""

    ranks: list[int]
    name: Literal["SIGKILL", "SIGSTOP", "SIGCONT"]


class Stop(Request, frozen=True, kw_only=True):
    """End all ranks of a job; `grace` counts more than that of its launch."""

    grace: float | None = None


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
    """Nothing can be started: the framework cannot be imported, say."""

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
        timed_out: Whether it has waited for others in vain: where they are may say why.
    """

    why: str = ""
    timed_out: bool = False


class Returned(OfRank, frozen=True, kw_only=True):
    """A rank has done all that it had to, and stays for the others."""


class Ended(OfRank, frozen=True, kw_only=True):
    """A rank has ended but for the memory that the system takes back; nothing it started is left.

    The supervisor hears it.
    """

    status: int


class Over(Event, frozen=True, kw_only=True):
    """Nothing of an attempt is running any more."""

    attempt: int
    how: How


class StacksWritten(Event, frozen=True, kw_only=True):
    """The ranks have written down where they are."""


AnyRequest = Launch | Restart | Signal | Stop | Hold | WriteStacks | Forget
AnyEvent = RankChanged | Failing | Returned | Over | StacksWritten
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
