"""The process that runs a job on a Ray cluster: to the kernel it is what a supervisor is at home.

It finds places for the ranks, starts a supervisor on each node, passes requests on to them and
their events back, and gives the places back. It ends when the kernel hangs up, or has ended.
"""

import dataclasses
import json
import math
import re
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import ray
from msgspec.structs import replace

from distlab.launching import processes
from distlab.launching.engines.ray import Ray
from distlab.launching.engines.ray_placement import (
    Node,
    PlacementError,
    connect,
    has_room,
    start_actors,
)
from distlab.launching.kernel.status import ENDED
from distlab.launching.protocol.messages import (
    AnyEvent,
    AnyRequest,
    Broken,
    Failing,
    Forget,
    How,
    Launch,
    Message,
    Over,
    RankChanged,
    Ready,
    Restart,
    Returned,
    Signal,
    StacksWritten,
    Stop,
    WriteStacks,
    encode,
    requests,
)
from distlab.launching.protocol.tasks import Part, services
from distlab.launching.tracebacks import in_words

_TURN = 0.05
"""The most seconds to listen to the nodes without looking at what is asked for."""
_NUMBERS = re.compile(
    r"\n\s+(class_name|actor_id|pid|name|namespace|ip): .*|( Node I[dD]:)? [0-9a-f]{32,}\.?"
)
"""What Ray names things by where it says how an actor has ended."""


def entry() -> None:
    """Join the cluster and run the job of the kernel.

    The arguments are on the command line: the socket's descriptor, the engine's options and Ray's
    runtime environment as JSON, `fork` or nothing, and the process id of the kernel.
    """
    control, options, environment, fork, pid = sys.argv[1:]
    processes.die_with_parent(int(pid), signal.SIGTERM)
    kernel = Kernel(socket.socket(fileno=int(control)))
    engine = Ray(**json.loads(options))
    try:
        connect(engine.address, json.loads(environment))
        kernel.tell(Ready())
        _serve(kernel, engine, bool(fork))
    except PlacementError as error:
        kernel.tell(Broken(error=str(error)))
    except Exception as error:  # noqa: BLE001 - such as a full disk
        kernel.tell(Broken(error=f"The job cannot go on on Ray: {in_words(error)}"))


def _serve(kernel: "Kernel", engine: Ray, fork: bool) -> NoReturn:
    """Run the job, and again as often as that is asked for."""
    launch = kernel.next_request(None)
    assert isinstance(launch, Launch)
    while True:
        group = ray.util.placement_group([engine.needs] * len(launch.tasks), engine.strategy)
        # Ray finds new places for a group when a node of it is lost.
        while (how := Attempt(kernel, engine, fork, launch).run(group)) is None:
            launch = replace(launch, attempt=launch.attempt + 1)
        ray.util.remove_placement_group(group)
        kernel.tell(Over(job=launch.job, attempt=launch.attempt, how=how))
        while not isinstance(kernel.next_request(None), Restart):
            pass
        launch = replace(launch, attempt=launch.attempt + 1)


class Kernel:
    """The way to the kernel; when it is gone, or done with the job, this process ends."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._received = b""
        self._requests: list[AnyRequest] = []

    def tell(self, event: Message) -> None:
        """Send an event."""
        try:
            self._control.sendall(encode(event))
        except OSError:
            sys.exit()

    def next_request(self, timeout: float | None = 0.0) -> AnyRequest | None:
        """What is asked for next, waited for some seconds; None if nothing is until then."""
        while not self._requests and select.select([self._control], [], [], timeout)[0]:
            data = self._control.recv(1 << 16)
            if not data:
                sys.exit()
            *lines, self._received = (self._received + data).split(b"\n")
            self._requests += map(requests.decode, lines)
        request = self._requests.pop(0) if self._requests else None
        if isinstance(request, Forget):
            sys.exit()
        return request


class Attempt:
    """One attempt of a job: an actor and a supervisor on each node, which know of no other.

    Args:
        kernel: Asks for things, and is told events.
        engine: What the ranks need.
        fork: Whether they may be forked from their supervisor.
        launch: The job.
    """

    def __init__(self, kernel: Kernel, engine: Ray, fork: bool, launch: Launch) -> None:
        self._kernel = kernel
        self._engine = engine
        self._fork = fork
        self._launch = launch
        self._nodes: list[Node] = []
        """Those not lost."""
        self._prepared = 0
        """How many of them have a supervisor, and have said where their ranks will listen."""
        self._addresses: dict[int, str] = {}
        self._started = False
        self._states = ["starting"] * len(launch.tasks)
        self._staying = services(launch.tasks)
        """Ranks that need not end by themselves: they serve others, or have returned."""
        self._how: How | None = None
        self._again = False
        """Whether another attempt is asked for."""
        self._deadline = math.inf
        self._unwritten = 0
        """How many nodes' ranks have not written their stacks down yet."""

    def run(self, group: Any) -> How | None:
        """Run the attempt in a placement group; how it has ended, None if there is to be another.

        Raises:
            PlacementError: If there is no room for it.
        """
        if has_room(group, self._engine, self._wanted):
            nodes = start_actors(self._engine, self._fork, self._launch, group)
            self._nodes = list(nodes)
            self._listen()
            for node in nodes:  # whose supervisors, and ranks that are left, end with them
                ray.kill(node.actor)
        for rank, state in enumerate(self._states):
            if state == "starting":
                self._tell_rank(rank, "stopped")
        self._kernel.tell(StacksWritten(job=self._launch.job))  # nobody will write any more
        return None if self._again else self._how

    def _listen(self) -> None:
        """Take note of what the nodes say, until there is no more to come from any of them."""
        expected = {node.actor.receive.remote(): node for node in self._nodes}
        while expected and (self._wanted() or self._started):
            for reference in ray.wait(list(expected), timeout=_TURN)[0]:
                node = expected.pop(reference)
                if self._hear(node, reference):
                    expected[node.actor.receive.remote()] = node
            late = time.monotonic() > self._deadline
            if late and self._how is None and self._unwritten == 0:
                self._write_stacks()

    # What is asked for.

    def _wanted(self) -> bool:
        """See to what is asked for; whether the attempt may still begin or go on."""
        while not self._again and (request := self._kernel.next_request()):
            match request:
                case Stop(grace=grace):
                    self._end("stopped", grace)
                case Restart(ranks=ranks):  # what is asked for after that is for the next attempt
                    self._again = True
                    self._send(Signal(job=self._launch.job, ranks=ranks, name="SIGKILL"))
                    self._end("stopped")
                case WriteStacks():
                    self._write_stacks()
                case _:
                    self._send(request)
        return self._how is None

    def _write_stacks(self) -> None:
        self._unwritten = len(self._nodes)
        self._send(WriteStacks(job=self._launch.job))
        if not self._started:
            self._kernel.tell(StacksWritten(job=self._launch.job))

    def _end(self, how: How, grace: float | None = None) -> None:
        """Bring the attempt to its end on every node."""
        if self._how is None:
            self._how = how
            self._send(Stop(job=self._launch.job, grace=grace))

    def _send(self, request: AnyRequest) -> None:
        for node in self._nodes:
            node.actor.send.remote(request)

    # What the nodes say.

    def _hear(self, node: Node, reference: Any) -> bool:
        """Take note of what ranks wrote, then of what became of them; whether more may come."""
        try:
            files, events = ray.get(reference)
        except ray.exceptions.RayError as error:
            why = " ".join(_NUMBERS.sub("", str(error)).split())
            self._lose(node, f"was lost on {node.part.host}: {why}")
            return False
        for name, data in files.items():
            with Path(self._launch.directory, name).open("ab") as file:
                file.write(data)
        for event in events:
            self._on_event(node, event)
        return not any(isinstance(event, Over | Broken) for event in events)

    def _on_event(self, node: Node, event: AnyEvent | Part | Broken) -> None:
        match event:
            case Part():  # its supervisor is there
                node.part = event
                self._addresses |= event.addresses
                self._prepared += 1
                if self._prepared == len(self._nodes) and self._how is None:
                    self._start()
            case Broken(error=why):
                self._lose(node, why)
            case RankChanged(rank=rank, state=state):
                self._states[rank] = state
                self._kernel.tell(replace(event, node=node.part.host))
                if state == "failed":
                    self._end("failed")
                self._end_if_through()
            case Returned(rank=rank):
                self._staying.add(rank)
                self._end_if_through()
            case Failing():
                self._kernel.tell(event)
                self._end("failed")
            case StacksWritten():
                self._unwritten -= 1
                if self._unwritten == 0:
                    self._kernel.tell(event)
                    if time.monotonic() > self._deadline:
                        self._end("timeout")

    def _start(self) -> None:
        """Start the ranks: all nodes are prepared."""
        self._started = True
        if self._launch.timeout is not None:
            self._deadline = time.monotonic() + self._launch.timeout
        for node in self._nodes:
            part = dataclasses.replace(node.part, addresses=self._addresses)
            node.actor.start.remote(part)

    def _end_if_through(self) -> None:
        """End the attempt once every rank has come to its end, or stays only for the others."""
        if all(s in ENDED for rank, s in enumerate(self._states) if rank not in self._staying):
            self._end("done")

    def _lose(self, node: Node, why: str) -> None:
        """A node cannot be reached any more, nor can its ranks."""
        self._nodes.remove(node)
        for rank in node.part.ranks:
            if self._states[rank] not in ENDED:
                self._states[rank] = "lost"
                self._tell_rank(rank, "lost", why)
        self._end("failed")

    def _tell_rank(self, rank: int, state: str, why: str = "") -> None:
        job, number = self._launch.job, self._launch.attempt
        self._kernel.tell(
            RankChanged(job=job, rank=rank, attempt=number, group=number, state=state, why=why)
        )
