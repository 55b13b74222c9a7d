"""A job whose ranks are on a Ray cluster: what they say, from many nodes, as of one supervisor."""

import atexit
import contextlib
import threading
import time
import weakref
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from distlab.launching import processes
from distlab.launching.engines.ray import Ray
from distlab.launching.engines.ray_placement import SHUT_DOWN, Node, given_up, placed, why_lost
from distlab.launching.engines.ray_session import LostError, connected
from distlab.launching.kernel.client import Client, Listener
from distlab.launching.kernel.status import ENDED
from distlab.launching.protocol import messages
from distlab.launching.protocol.messages import AnyEvent, AnyRequest, How, Launch, RankChanged
from distlab.launching.protocol.tasks import services
from distlab.launching.tracebacks import in_words

_PATIENCE = 5.0
"""Seconds after which Ray is asked whether the nodes are there still."""


class RayClient(Client):
    """What a `Job` talks to instead of a supervisor of this machine.

    Ranks are on several nodes, each with a supervisor. This passes requests on to the nodes
    concerned, brings them together when a group is formed, and tells the job that it is over when
    all of them have come to their end. All that has to be waited for, one thread waits for.

    Args:
        engine: Where to place the ranks.
        fork: Whether ranks may be forked from their supervisor.
    """

    def __init__(self, engine: Ray, fork: bool) -> None:
        self.directory, keeper = processes.new_directory()
        weakref.finalize(self, keeper.communicate)
        atexit.register(_give_back, weakref.ref(self))
        self.ready = threading.Event()
        self.preparing = "places for them are still being looked for"
        self.live = set()
        self.local = False
        self._engine = engine
        self._fork = fork
        self._lock = threading.RLock()
        self._listener: weakref.ref[Listener] | None = None
        self._thread: threading.Thread | None = None
        """Finds places, listens to the nodes, gives the places back; None while there are none."""
        self._wanted: list[int] | None = None
        """The ranks to start as soon as there are places for all."""
        self._nodes: list[Node] = []
        """Those not lost."""
        self._attempt = 0
        self._states: list[str] = []
        self._attempts: list[int] = []
        """How often each rank was started before, less one."""
        self._addresses: list[dict[int, str]] = []
        """Where the ranks of each node listen that has said so."""
        self._returned: set[int] = set()
        """Ranks whose target has returned, and which stay for the others."""
        self._how: How | None = None
        self._unwritten = 0
        """How many nodes' ranks have not written their stacks down yet."""

    def new_job(self) -> tuple[str, Path]:
        """See `Client`."""
        self._name = f"{self.directory.name}-1"
        directory = self.directory / self._name
        directory.mkdir(mode=0o700)
        return self._name, directory

    # What the job asks for.

    def send(self, listener: Listener | None, request: AnyRequest) -> None:
        """See `Client`."""
        with self._lock:
            if listener is not None:
                self._listener = weakref.ref(listener)
            match request:
                case Launch():
                    self._request = request
                    self._attempts = [-1] * len(request.tasks)
                    self._begin(request.ranks)
                case messages.Restart(ranks=ranks, together=True):
                    self._attempt += 1
                    self._begin(ranks)
                case messages.Stop():
                    self._wanted = None
                    self._end("stopped")
                case messages.WriteStacks():
                    self._unwritten = len(self._nodes)
                    self._send(request)
                case (
                    messages.Start()
                    | messages.Restart()
                    | messages.Kill()
                    | messages.Pause()
                    | messages.Resume()
                ):
                    for node in list(self._nodes):
                        if ranks := [rank for rank in request.ranks if rank in node.part.ranks]:
                            self._send(replace(request, ranks=ranks), node)
                    if self._thread is None:  # the places were given back meanwhile
                        self._conclude("")

    def _begin(self, ranks: list[int]) -> None:
        """Start an attempt: where the job is, or in new places."""
        self._addresses, self._returned, self._how = [], set(), None
        count = len(self._attempts)
        self._states = ["starting" if rank in ranks else "waiting" for rank in range(count)]
        if sum(len(node.part.ranks) for node in self._nodes) == count:
            self._send(messages.Restart(job=self._name, ranks=ranks, together=True))
            return
        self._nodes = []
        self._wanted = ranks
        self.ready.clear()
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="distlab-ray", daemon=True)
            self._thread.start()

    # What the thread does.

    def _serve(self) -> None:
        """Have ranks run in places found for them, until no new places are wanted."""
        while True:
            why = ""
            try:
                self._run_in_places()
            except BaseException as error:  # noqa: BLE001 - after ray.shutdown() it is SystemExit
                why = why_lost(error)
            with self._lock:
                self._nodes = []
                if why or self._wanted is None:
                    self._thread = self._wanted = None
                    self._conclude(why)
                    return

    def _run_in_places(self) -> None:
        sent = self._request.cwd if self._engine.upload_cwd else None
        places = placed(self._engine, self._request, self._fork, lambda: self._wanted is not None)
        with connected(self._engine.address, sent), places as nodes:
            self._start(nodes)
            self._listen()
            with self._lock:
                self._nodes = []

    def _start(self, nodes: list[Node]) -> None:
        """Start the ranks that are wanted, unless none are any more."""
        there: dict[str, Any] = {"cwd": "", "path": None} if self._engine.upload_cwd else {}
        with self._lock:
            if not nodes or self._wanted is None:
                return
            there |= {"ranks": self._wanted, "attempt": self._attempt, "directory": ""}
            self._wanted = None
            self._nodes = list(nodes)
            self.ready.set()
            for node in nodes:
                own = {"part": node.part, "attempts": list(self._attempts)}
                self._send(replace(self._request, **there, **own), node)

    def _listen(self) -> None:
        """Take note of what the nodes say, until there is no more to come from any of them."""
        import ray

        expected: dict[Any, Node] = {}
        asked = time.monotonic()
        while True:
            with self._lock:
                nodes = list(self._nodes)
                if all(node.over == self._attempt for node in nodes):
                    return
            if not ray.is_initialized():  # or else Ray would start a cluster by itself
                raise LostError(SHUT_DOWN)
            for node in nodes:
                if node not in expected.values():
                    expected[node.receive()] = node
            for reference in ray.wait(list(expected), timeout=_PATIENCE)[0]:
                self._on_answer(expected.pop(reference), reference)
            if time.monotonic() > asked + _PATIENCE:  # it may wait long to fail an actor's calls
                for node in given_up(nodes):
                    what = "the node does not answer any more"
                    self._lose(node, f"was lost on {node.part.host}: {what}.")
                asked = time.monotonic()

    def _on_answer(self, node: Node, reference: Any) -> None:
        """Take note of what a node says: what ranks wrote first, then what became of them."""
        try:
            files, events = node.read(reference)
            with self._lock:
                for name, data in files.items():
                    file = self.directory / self._name / name
                    with contextlib.suppress(FileNotFoundError), file.open("ab") as grown:
                        grown.write(data)
                for event in events:
                    if node in self._nodes:
                        self._on_event(node, event)
        except LostError as error:
            self._lose(node, str(error))
        except Exception as error:  # noqa: BLE001 - such as a full disk
            self._lose(node, f"was lost: {in_words(error)}")

    # What the nodes say.

    def _on_event(self, node: Node, event: AnyEvent) -> None:
        match event:
            case RankChanged(rank=rank, state=state):
                self._attempts[rank] = event.attempt
                if event.group == self._attempt:
                    self._states[rank] = state
                self._tell(event if event.pid is None else replace(event, node=node.part.host))
                if event.group == self._attempt and state in ENDED:
                    self._end_if_through()
            case messages.StacksWritten():
                self._unwritten -= 1
                if self._unwritten == 0:
                    self._tell(event)
            case messages.SupervisorLost(why=why):
                self._lose(node, why)
            case messages.Failing():
                self._tell(event)
            case _ if event.attempt != self._attempt:
                return  # it has begun again meanwhile
            case messages.Addresses(addresses=addresses):
                self._addresses.append(addresses)
                if len(self._addresses) == len(self._nodes):
                    known = {r: host for told in self._addresses for r, host in told.items()}
                    meet = messages.Meet(job=self._name, attempt=self._attempt, addresses=known)
                    self._send(meet)
            case messages.Returned(rank=rank):
                self._returned.add(rank)
                self._end_if_through()
            case messages.Ending(how=how):
                self._end(how)
            case messages.Over():
                node.over = self._attempt

    # How it ends.

    def _end_if_through(self) -> None:
        """End the attempt once every rank has come to its end, or stays only for the others."""
        stay = services(self._request.tasks) | self._returned
        states = [state for rank, state in enumerate(self._states) if rank not in stay]
        if all(state in ENDED for state in states):
            self._end("done" if all(state == "done" for state in states) else "failed")

    def _end(self, how: How) -> None:
        """Bring the attempt to its end on every node."""
        if self._how is None:
            self._how = how
            self._send(messages.Finish(job=self._name, attempt=self._attempt, how=how))

    def _lose(self, node: Node, why: str) -> None:
        """A node cannot be reached any more, nor can its ranks."""
        with self._lock:
            if node not in self._nodes:
                return
            self._nodes.remove(node)
            attempt = self._attempt
            lost = [rank for rank in node.part.ranks if self._states[rank] not in ENDED]
            for rank in lost:
                self._states[rank] = "lost"
            for rank in lost:
                self._tell_rank(rank, attempt, "lost", why)
            if self._attempt == attempt:  # or else the job has begun again on hearing of it
                self._end("failed")

    def _conclude(self, why: str) -> None:
        """Nothing is running any more: say so."""
        self.ready.set()
        listener = self._listener() if self._listener else None
        if why and listener is not None:
            listener._on_lost(why)
            return
        for rank, state in enumerate(self._states):
            if state == "starting":
                self._tell_rank(rank, self._attempt, "stopped")
        self._tell(messages.Over(job=self._name, attempt=self._attempt, how=self._how or "stopped"))

    # The means to do all that.

    def _send(self, request: AnyRequest, *nodes: Node) -> None:
        for node in nodes or list(self._nodes):
            try:
                node.send(request)
            except Exception as error:  # noqa: BLE001 - whatever keeps it from hearing
                self._lose(node, f"was lost: {in_words(error)}")

    def _tell(self, event: AnyEvent) -> None:
        listener = self._listener() if self._listener else None
        if listener is not None:
            listener._on_event(event)

    def _tell_rank(self, rank: int, group: int, state: str, why: str = "") -> None:
        self._tell(
            RankChanged(
                job=self._name,
                rank=rank,
                attempt=self._attempts[rank],
                group=group,
                state=state,
                why=why,
            )
        )


def _give_back(reference: "weakref.ref[RayClient]") -> None:
    """As this process ends: give back the places of a job that still has some."""
    if (client := reference()) is not None and (thread := client._thread) is not None:
        with client._lock:
            client._wanted, client._nodes = None, []
        thread.join()
