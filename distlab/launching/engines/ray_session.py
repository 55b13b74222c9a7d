"""This process's connection to Ray: the user's own, or one that is made here and shared by jobs."""

import contextlib
import logging
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PATIENCE = 5.0
"""Seconds for a cluster's head node to answer."""
_ELSEWHERE = (
    "This process is connected to another Ray cluster: leave address= out to use that one, or "
    "call ray.shutdown() first."
)
_lock = threading.Lock()


class LostError(RuntimeError):
    """There is no place for ranks, or none any more; the message says why."""


@dataclass
class _Session:
    """A connection that was made here, to `address`, with the directory that was `sent`."""

    address: str
    sent: str | None
    users: int = 0


_sessions: list[_Session] = []
"""One at most."""


@contextlib.contextmanager
def connected(address: str | None, directory: str | None) -> Iterator[None]:
    """Connect to Ray, or use the connection there is.

    One that is made here ends with the last job that uses it, so that the next one sends the
    directory as it is then.

    Args:
        address: Of a cluster; None: that of this process's connection, or else one on this machine.
        directory: To send to the cluster with a connection that is made here, if any.

    Raises:
        LostError: If that fails, or this process is connected to another cluster.
    """
    import ray

    with _lock:
        try:
            shared = _enter(address, directory)
        except Exception as error:
            where = "here" if address is None else f"at {address!r}"
            raise LostError(f"Could not join Ray {where}: {error}") from error
    try:
        yield
    finally:
        with _lock:
            if shared is not None:
                shared.users -= 1
                if shared.users == 0:
                    _sessions.clear()
                    ray.shutdown()


def _enter(address: str | None, directory: str | None) -> _Session | None:
    """The connection made here, which has one more user; None if there is another."""
    import ray

    if not _sessions and ray.is_initialized():
        if address not in (None, "auto", str(ray.get_runtime_context().gcs_address)):
            raise RuntimeError(_ELSEWHERE)
        return None
    if not _sessions:
        _connect(address or "auto", directory)
        _sessions.append(_Session(address or "auto", directory))
    (session,) = _sessions
    if address not in (None, session.address):
        raise RuntimeError(_ELSEWHERE)
    if directory not in (None, session.sent):
        raise RuntimeError(
            f"A job that goes on has sent {session.sent!r} to the cluster, and there is one "
            f"directory for all: wait until it is over, then start this in {directory!r}."
        )
    session.users += 1
    return session


def _connect(address: str, directory: str | None) -> None:
    import ray

    distlab = str(Path(__file__).parents[2])
    environment = {"working_dir": directory, "py_modules": [distlab]} if directory else {}
    host, separator, port = address.rpartition(":")
    if separator and "//" not in address and port.isdecimal():
        try:  # Ray would take minutes to say so
            socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()
        except OSError as error:
            raise ConnectionError(
                f"nobody answers there ({error}). `ray status` on the cluster's head node shows "
                "whether it runs; its address is host:6379 unless it was given another port."
            ) from error
    ray.init(address, log_to_driver=False, logging_level=logging.ERROR, runtime_env=environment)
