"""One node of a Ray cluster with ranks of a job on it, and the actor that speaks for them."""

import re
import threading
from typing import Any

from msgspec.structs import replace

from distlab.launching.engines.base import PartLostError
from distlab.launching.protocol.messages import AnyEvent, AnyRequest, Launch
from distlab.launching.protocol.tasks import Part

_PATIENCE = 5.0
"""Seconds for a node to say anything at all."""
_POLL = 0.5
_NUMBER = re.compile(r" ?Node I[dD]: \w+\.?")
_FIELD = re.compile(r"(class_name|actor_id|pid|name|namespace|ip): ")


class RayPlace:
    """A node's ranks, and the actor that speaks for them.

    Args:
        part: The ranks.
        name: The node in words.
        node: The node's id.
        actor: The handle of a `RemoteSupervisor`.
        target: A reference to the function and its arguments.
        here: Whether the ranks work in the directory of this process, which they can reach.

    Attributes:
        closed: Whether it is being given back: there is nothing more to receive.
    """

    def __init__(
        self, part: Part, name: str, node: str, actor: Any, target: Any, here: bool
    ) -> None:
        self.part = part
        self.name = name
        self.actor = actor
        self._node = node
        self._target = target
        self._here = here
        self._sent: list[Any] = []
        self._lock = threading.Lock()
        self.closed = False
        self._receiving = threading.RLock()  # a collection of garbage there may release the job

    def send(self, request: AnyRequest) -> None:
        """Pass a request on, in order; whether it arrived shows in `receive`."""
        target = None
        if isinstance(request, Launch):
            target = self._target
            if not self._here:
                request = replace(request, cwd="", path=None)
        with self._lock:
            sending = self.actor.send.options(concurrency_group="send")
            self._sent.append(sending.remote(request, target))

    def receive(self) -> list[AnyEvent]:
        """Wait a while for events."""
        import ray

        with self._receiving:
            try:
                self._check_connected()
                self._check_sent()
                events = self.actor.receive.options(concurrency_group="receive").remote(_POLL)
                while not ray.wait([events], timeout=_PATIENCE)[0]:
                    self._check_connected()
                    self._check_node()
                return list(ray.get(events))
            except ray.exceptions.RayActorError as error:
                raise PartLostError(f"was lost on {self.name}: {_why(error)}") from error
            except ray.exceptions.RayError as error:
                raise PartLostError(f"cannot be reached on {self.name}: {_why(error)}") from error

    def wait_until_silent(self) -> None:
        """Return when no thread is in `receive`, once this is closed.

        One that found itself disconnected there would have Ray start a cluster, by itself.
        """
        with self._receiving:
            pass

    def _check_connected(self) -> None:
        import ray

        if self.closed:
            raise PartLostError(f"was given back on {self.name}.")
        if not ray.is_initialized():  # or ray.get would start a cluster
            raise PartLostError("was lost: ray.shutdown() has been called here.")

    def _check_node(self) -> None:
        """Raise PartLostError if Ray has given the node up, and the actor's calls not yet."""
        import ray

        if not any(node["NodeID"] == self._node and node["Alive"] for node in ray.nodes()):
            raise PartLostError(f"was lost on {self.name}: the node does not answer any more.")

    def _check_sent(self) -> None:
        """Raise what has become of the requests that have been dealt with."""
        import ray

        with self._lock:
            pending = self._sent
            if pending:
                arrived, self._sent = ray.wait(pending, num_returns=len(pending), timeout=0)
                ray.get(arrived)


def _why(error: Exception) -> str:
    """Ray's words about an actor's end in one line, without the numbers it names things by."""
    lines = [line.strip() for line in str(error).splitlines()]
    said = [_NUMBER.sub("", line) for line in lines if line and not _FIELD.match(line)]
    return " ".join(said[1:] or said)
