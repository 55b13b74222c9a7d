"""A job whose ranks another engine places: what they say, from many nodes, as of one supervisor."""

import contextlib
import logging
import os
import re
import shutil
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from distlab.launching import processes
from distlab.launching.engines.base import (
    Engine,
    PartLostError,
    Place,
    Placement,
    PlacementError,
    Work,
)
from distlab.launching.kernel.client import Client, Listener
from distlab.launching.kernel.status import ENDED
from distlab.launching.protocol.files import KERNEL
from distlab.launching.protocol.messages import (
    Addresses,
    AnyEvent,
    AnyRequest,
    Ending,
    Failing,
    FileGrown,
    Finish,
    How,
    Kill,
    Launch,
    Meet,
    Over,
    Pause,
    RankChanged,
    Restart,
    Resume,
    Returned,
    StacksWritten,
    Start,
    Stop,
    SupervisorLost,
    WriteStacks,
)
from distlab.launching.protocol.tasks import Part, services
from distlab.launching.protocol.variables import STALE
from distlab.launching.tracebacks import in_words

_logger = logging.getLogger("distlab")
_SETTING = re.compile(r"(KERAS|TF|XLA|JAX|PYTORCH|TORCH|NCCL|GLOO|DTENSOR|GRPC|TFDS|DISTLAB)_.*")
"""Variables that travel with a job to other nodes: what frameworks are told by."""


class EngineClient(Client):
    """What a `Job` talks to instead of a supervisor of this machine.

    Ranks are in several parts, each with a supervisor on its node. This passes requests on to the
    parts concerned, brings the parts together when a group is formed, and tells the job that it is
    over when all parts have come to their end.

    Args:
        engine: Who places the ranks.
        fork: Whether ranks may be forked from their supervisor.
    """

    def __init__(self, engine: Engine, fork: bool) -> None:
        self.directory, keeper = processes.new_directory()
        weakref.finalize(self, keeper.communicate)
        (self.directory / KERNEL).write_text(str(os.getpid()))
        self._fork = fork
        self.ready = threading.Event()
        self.preparing = "places for them are still being looked for"
        self.live = set()
        self.local = False
        self._engine = engine
        self._placement: Placement | None = None
        self._cancelled = threading.Event()
        self._settled = threading.Event()
        """Whether nobody looks for places any more."""
        self._request: Launch | None = None
        self._listener: weakref.ref[Listener] | None = None
        self._lock = threading.RLock()
        self._places: dict[int, Place] = {}
        """Those not lost, by a number of their own."""
        self._round = 0
        """How often places were looked for: what comes from earlier ones is not listened to."""
        self._attempt = 0
        self._attempts: list[int] = []
        self._states: list[str] = []
        self._services: set[int] = set()
        self._addresses: dict[int, dict[int, str]] = {}
        self._over: dict[int, str] = {}
        self._returned: set[int] = set()
        """Ranks whose target has returned, and which stay for the others."""
        self._how: How | None = None
        self._stacks = 0

    def new_job(self) -> tuple[str, Path]:
        """See `Client`."""
        name = f"{self.directory.name}-1"
        directory = self.directory / name
        directory.mkdir(mode=0o700)
        return name, directory

    # What the job asks for.

    def send(self, listener: Listener | None, request: AnyRequest) -> None:
        """See `Client`."""
        with self._lock:
            if listener is not None:
                self._listener = weakref.ref(listener)
            match request:
                case Launch():
                    self._launch(request)
                case Restart(ranks=ranks, together=True):
                    self._attempt += 1
                    self._begin(ranks)
                case Stop():
                    if self.ready.is_set():
                        self._end("stopped")
                    else:
                        self._give_up("stopped")
                case WriteStacks():
                    self._stacks = len(self._places)
                    for number in list(self._places):
                        self._send(number, request)
                case Start() | Restart() | Kill() | Pause() | Resume():
                    self._pass_on(request)
                    if not self._places and self._settled.is_set():
                        self._give_up("stopped")  # the places are given back already

    def withdraw(self, job: str) -> bool:  # noqa: ARG002 - `stop` does that here
        """See `Client`."""
        return False

    def forget(self, job: str) -> None:
        """See `Client`."""
        with self._lock:
            self._round += 1
            self._places = {}
            self._cancelled.set()
            placement, self._placement = self._placement, None
        try:
            if placement is not None:
                placement.release()
        finally:
            shutil.rmtree(self.directory / job, ignore_errors=True)

    def _launch(self, request: Launch) -> None:
        self._request = request
        self._attempts = [-1] * len(request.tasks)
        self._services = services(request.tasks)
        self._begin(request.ranks)

    def _pass_on(self, request: Start | Restart | Kill | Pause | Resume) -> None:
        for number, place in list(self._places.items()):
            if ranks := [rank for rank in request.ranks if rank in place.part.ranks]:
                self._send(number, replace(request, ranks=ranks))

    # Places.

    def _begin(self, ranks: list[int]) -> None:
        """Start an attempt: where the job is, or in new places."""
        self._addresses, self._over, self._how = {}, {}, None
        self._returned = set()
        wanted = {rank for place in self._places.values() for rank in place.part.ranks}
        self._states = ["starting" if r in ranks else "waiting" for r in range(len(self._attempts))]
        if wanted == set(range(len(self._attempts))):
            for number in list(self._places):
                self._send(number, Restart(job=self._job, ranks=ranks, together=True))
            return
        self._places = {}
        self._round += 1
        self.ready.clear()
        self._cancelled = threading.Event()
        self._settled = threading.Event()
        old, self._placement = self._placement, None
        threading.Thread(
            target=self._find_places,
            args=(self._round, ranks, old, self._cancelled, self._settled),
            name="distlab-engine",
            daemon=True,
        ).start()

    def _find_places(
        self,
        round_: int,
        ranks: list[int],
        old: Placement | None,
        cancelled: threading.Event,
        settled: threading.Event,
    ) -> None:
        """Runs in a thread of its own, and goes on as that which listens to the first part."""
        places: Sequence[Place] = []
        try:
            try:
                places = self._take_places(round_, ranks, old, cancelled)
            finally:
                settled.set()
            for number, place in enumerate(places[1:], 1):
                threading.Thread(
                    target=self._listen,
                    args=(round_, number, place),
                    name="distlab-part",
                    daemon=True,
                ).start()
        except Exception as error:  # noqa: BLE001 - every failure is the job's
            why = str(error) if isinstance(error, PlacementError) else in_words(error)
            with self._lock:
                if round_ == self._round:
                    self._give_up("lost", why)
                else:
                    _logger.warning("Places that nobody wants any more: %s", why)
            return
        if places:
            self._listen(round_, 0, places[0])

    def _take_places(
        self, round_: int, ranks: list[int], old: Placement | None, cancelled: threading.Event
    ) -> Sequence[Place]:
        """Have the engine find places and start the ranks there; none if that is not wanted now."""
        if old is not None:
            try:
                old.release()
            except Exception as error:
                raise PlacementError(_left(error)) from error
        assert self._request is not None
        placement = self._engine.place(Work(self._request, self._fork, _settings()), cancelled)
        with self._lock:
            if round_ == self._round:
                self._placement = placement
                self._places = dict(enumerate(placement.places))
                self.ready.set()
                for number, place in list(self._places.items()):
                    self._send(number, self._launch_of(place.part, ranks))
                return placement.places
        placement.release()
        return []

    @property
    def _job(self) -> str:
        assert self._request is not None
        return self._request.job

    def _launch_of(self, part: Part, ranks: list[int]) -> Launch:
        """The request by which a part begins."""
        assert self._request is not None
        return replace(
            self._request,
            directory="",
            part=part,
            attempt=self._attempt,
            attempts=list(self._attempts),
            ranks=ranks,
        )

    def _send(self, number: int, request: AnyRequest) -> None:
        try:
            self._places[number].send(request)
        except Exception as error:  # noqa: BLE001 - whatever keeps it from hearing
            self._lose(number, _why_lost(error))

    def _listen(self, round_: int, number: int, place: Place) -> None:
        """Take note of what a part says, until there is no more to come."""
        while True:
            lost = None
            try:
                events = place.receive()
            except Exception as error:  # noqa: BLE001 - if the place was given back: no matter
                events, lost = [], _why_lost(error)
            with self._lock:
                try:
                    for event in events:
                        if round_ != self._round or number not in self._places:
                            return
                        self._on_event(number, event)
                except Exception as error:  # noqa: BLE001 - such as a full disk
                    lost = _why_lost(error)
                if round_ != self._round or number not in self._places:
                    return
                if lost is not None:
                    self._lose(number, lost)
                    return

    # What the parts say.

    def _on_event(self, number: int, event: AnyEvent) -> None:
        match event:
            case FileGrown():
                self._on_file(event)
            case RankChanged():
                self._on_rank(number, event)
            case StacksWritten():
                self._stacks -= 1
                if self._stacks == 0:
                    self._tell(event)
            case SupervisorLost(why=why):
                self._lose(number, why)
            case Failing():
                self._tell(event)
            case _ if event.attempt != self._attempt:
                return  # it has begun again meanwhile
            case Addresses(addresses=addresses):
                self._on_addresses(number, addresses)
            case Returned(rank=rank):
                self._returned.add(rank)
                self._end_if_through()
            case Ending(how=how):
                self._end(how, spare=number)
            case Over(how=how):
                self._over[number] = how
                self._conclude()

    def _on_file(self, event: FileGrown) -> None:
        file = self.directory / self._job / event.name
        with contextlib.suppress(FileNotFoundError), file.open("ab") as grown:
            grown.write(event.data)

    def _on_addresses(self, number: int, addresses: dict[int, str]) -> None:
        self._addresses[number] = addresses
        if len(self._addresses) == len(self._places):
            known = {r: host for told in self._addresses.values() for r, host in told.items()}
            meet = Meet(job=self._job, attempt=self._attempt, addresses=known)
            for other in list(self._places):
                self._send(other, meet)

    def _on_rank(self, number: int, event: RankChanged) -> None:
        self._attempts[event.rank] = event.attempt
        current = event.group == self._attempt
        if current:
            self._states[event.rank] = event.state
        if event.pid is not None:
            event = replace(event, node=self._places[number].name)
        self._tell(event)
        if current and event.state in ENDED:
            self._end_if_through()

    def _end_if_through(self) -> None:
        """End the attempt once every rank has come to its end, or stays only for the others."""
        others = set(range(len(self._states))) - self._services - self._returned
        if self._how is None and all(self._states[r] in ENDED for r in others):
            well = all(self._states[r] == "done" for r in others)
            self._end("done" if well else "failed")

    # How it ends.

    def _end(self, how: How, spare: int | None = None) -> None:
        """Bring the attempt to its end, in every part but the one that has said so."""
        if self._how is not None:
            return
        self._how = how
        for number in list(self._places):
            if number != spare:
                self._send(number, Finish(job=self._job, attempt=self._attempt, how=how))
        self._conclude()

    def _lose(self, number: int, why: str) -> None:
        """A part cannot be reached any more, nor can its ranks."""
        place = self._places.pop(number, None)
        if place is None:
            return
        attempt = self._attempt
        lost = [rank for rank in place.part.ranks if self._states[rank] not in ENDED]
        for rank in lost:
            self._states[rank] = "lost"
        for rank in lost:
            self._tell(self._changed(rank, attempt, "lost", why))
        if self._attempt == attempt:  # or else the job has begun again on hearing of it
            self._how = self._how or "failed"
            for other in list(self._places):
                self._send(other, Finish(job=self._job, attempt=attempt, how="failed"))
            self._conclude()

    def _conclude(self) -> None:
        if self._how is None or set(self._places) - set(self._over):
            return
        self._give_up(self._how)

    def _give_up(self, how: How, why: str = "") -> None:
        """Nothing is running any more: give the places back, and say so."""
        self._round += 1
        self._places = {}
        self._cancelled.set()
        placement, self._placement = self._placement, None
        # Not here, where requests wait: a cluster may take its time.
        threading.Thread(
            target=self._conclude_outside,
            args=(placement, how, why, self._attempt, self._settled),
            daemon=True,
        ).start()

    def _conclude_outside(
        self,
        placement: Placement | None,
        how: How,
        why: str,
        attempt: int,
        settled: threading.Event,
    ) -> None:
        settled.wait()
        try:
            if placement is not None:
                placement.release()
        except Exception as error:  # noqa: BLE001 - what is left there should be known
            left = _left(error)
            _logger.warning("%s", left)  # a job whose ranks have all returned shows no error
            why = f"{why}\n{left}".strip()
        with self._lock:
            if attempt != self._attempt:
                return  # it has begun again
            self.ready.set()
            listener = self._listener() if self._listener else None
            if why and listener is not None:
                listener._on_lost(why)
                return
            for rank, state in enumerate(self._states):
                if state == "starting":
                    self._tell(self._changed(rank, attempt, "stopped"))
            self._tell(Over(job=self._job, attempt=attempt, how=how))

    def _changed(self, rank: int, group: int, state: str, why: str = "") -> RankChanged:
        return RankChanged(
            job=self._job,
            rank=rank,
            attempt=self._attempts[rank],
            group=group,
            state=state,
            why=why,
        )

    def _tell(self, event: AnyEvent) -> None:
        listener = self._listener() if self._listener else None
        if listener is not None:
            listener._on_event(event)


def _why_lost(error: Exception) -> str:
    """Why a part is lost, to be read after the name of its rank."""
    return str(error) if isinstance(error, PartLostError) else f"was lost: {in_words(error)}"


def _left(error: Exception) -> str:
    """What an error means that keeps places from being given back."""
    return f"The places of its ranks could not be given back: {in_words(error)}"


def _settings() -> dict[str, str]:
    """The variables of this process by which frameworks are told what to do."""
    settings = {k: v for k, v in os.environ.items() if _SETTING.fullmatch(k)}
    here = processes.DIRECTORY_VARIABLE  # which names a place on this machine
    return {k: v for k, v in settings.items() if not STALE.fullmatch(k) and k != here}
