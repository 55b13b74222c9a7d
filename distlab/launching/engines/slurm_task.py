"""One task of a Slurm step: a rank and its supervisor, told what to do on standard input.

srun carries all that is said: what it reads goes to every task, and what a task writes comes out
of srun with the number of the task in front.
"""

import contextlib
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Iterator

import msgspec

from distlab.errors import shown
from distlab.launching.engines.remote_supervisor import RemoteSupervisor
from distlab.launching.protocol.messages import (
    VERSION,
    AnyEvent,
    AnyRequest,
    Message,
    ProtocolError,
)
from distlab.launching.tracebacks import in_words

START, END = b"\x1d", b"\x1e"
"""Begin and end a message: srun may break long lines, and a prolog may print what it likes."""
_POLL = 0.5


class Here(Message, frozen=True):
    """A task's first words: where it is, and what it understands."""

    name: str
    node: int
    host: str
    version: int = VERSION


class Begin(Message, frozen=True):
    """What every task is told first: how to run ranks, and the function if it is one."""

    framework: str | None
    fork: bool
    overrides: dict[str, str]
    settings: dict[str, str]
    target: bytes | None


class Order(Message, frozen=True):
    """A request for one task. All tasks read it."""

    to: int
    request: AnyRequest


_answers = msgspec.json.Decoder(Here | AnyEvent)
_orders = msgspec.json.Decoder(Begin | Order)


def read_answer(message: bytes) -> Here | AnyEvent:
    """What a task says; what a prolog prints stands before its first words.

    Raises:
        ProtocolError: If it is nothing that distlab says.
    """
    try:
        said: Here | AnyEvent = _answers.decode(message.rpartition(START)[2])
    except msgspec.DecodeError as error:
        raise ProtocolError(
            f"a task has said what is no message, or its prolog has: {shown(message)} ({error})."
        ) from error
    return said


def entry() -> None:
    """Say where this task is; then do as told until standard input closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    spoken = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def say(message: Here | AnyEvent) -> None:
        spoken.write(START + msgspec.json.encode(message) + END + b"\n")
        spoken.flush()

    me = int(os.environ["SLURM_PROCID"])
    name = os.environ["SLURMD_NODENAME"]
    say(Here(name, int(os.environ["SLURM_NODEID"]), own_host(name)))
    orders: queue.SimpleQueue[AnyRequest | None] = queue.SimpleQueue()
    lines = iter(sys.stdin.buffer)
    first = next(lines, None)
    if first is None:
        return
    begin = _orders.decode(first)
    assert isinstance(begin, Begin)
    threading.Thread(target=_hear, args=(lines, me, orders), daemon=True).start()
    node = RemoteSupervisor(begin.framework, begin.fork, begin.overrides, begin.settings, task=True)
    ended = threading.Event()

    def act() -> None:
        try:
            while (request := orders.get()) is not None:
                node.send(request, begin.target)
        except Exception as error:  # noqa: BLE001 - told to the kernel
            node.lose(f"was lost: {in_words(error)}")
        ended.set()

    threading.Thread(target=act, daemon=True).start()
    with contextlib.suppress(BrokenPipeError):
        while not ended.is_set():
            for event in node.receive(_POLL):
                say(event)
        for event in node.receive(0):
            say(event)
    node.close()


def _hear(lines: Iterator[bytes], me: int, orders: "queue.SimpleQueue[AnyRequest | None]") -> None:
    """Queue the requests meant for this task, and at the end None."""
    try:
        for line in lines:
            order = _orders.decode(line)
            if isinstance(order, Order) and order.to == me:
                orders.put(order.request)
    finally:
        orders.put(None)


def own_host(name: str) -> str:
    """The address at which other nodes reach this one, which Slurm calls `name`."""
    with contextlib.suppress(OSError):
        found = socket.gethostbyname(name)
        # Many machines have their own name lead to themselves alone.
        if found not in ("127.0.0.1", "127.0.1.1"):
            return found
    launcher = os.environ.get("SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((launcher, 1))  # which sends nothing
        return str(probe.getsockname()[0])
