"""One task of a Slurm step: a rank and its supervisor, told what to do on standard input.

srun carries all that is said: what it reads goes to every task, and what a task writes comes out
of srun with the number of the task in front.
"""

import base64
import contextlib
import json
import os
import queue
import signal
import socket
import sys
import threading
from typing import Any

from distlab.engines.node import Node

END = b"\x1e"
"""Ends a message: srun may break long lines, so that line ends mean nothing."""
_POLL = 0.5


def pack(message: dict[str, Any]) -> bytes:
    """A message as bytes without line ends; bytes within it must stand under `data`."""
    if "data" in message:
        message = message | {"data": base64.b64encode(message["data"]).decode()}
    return json.dumps(message).encode()


def unpack(packed: bytes) -> dict[str, Any]:
    """Undo `pack`."""
    message: dict[str, Any] = json.loads(packed)
    if "data" in message:
        message["data"] = base64.b64decode(message["data"])
    return message


def entry() -> None:
    """Say where this task is; then do as told until standard input closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def answer(message: dict[str, Any]) -> None:
        answers.write(pack(message) + END + b"\n")
        answers.flush()

    me = int(os.environ["SLURM_PROCID"])
    name = os.environ["SLURMD_NODENAME"]
    place = {"name": name, "node": int(os.environ["SLURM_NODEID"]), "host": own_host(name)}
    answer({"event": "here"} | place)
    orders: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
    threading.Thread(target=_hear, args=(me, orders), daemon=True).start()
    first = orders.get()
    if first is None:
        return
    node = Node(first["framework"], first["fork"], first["overrides"], first["settings"])
    ended = threading.Event()

    def act() -> None:
        while (order := orders.get()) is not None:
            node.send(order["request"], order.get("data"))
        ended.set()

    threading.Thread(target=act, daemon=True).start()
    with contextlib.suppress(BrokenPipeError):
        while not ended.is_set():
            for event in node.receive(_POLL):
                answer(event)
    node.close()


def _hear(me: int, orders: "queue.SimpleQueue[dict[str, Any] | None]") -> None:
    """Queue the orders meant for this task, and at the end None."""
    for line in sys.stdin.buffer:
        order = unpack(line)
        if order["to"] in (None, me):
            orders.put(order)
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
