"""This process's connection to Ray: the user's own, or one that is made here and shared by jobs.

What was connected here is disconnected with the last job that uses it, so that the next one sends
the directory as it is then.
"""

import logging
import socket
import threading
from dataclasses import dataclass
from pathlib import Path

_PATIENCE = 5.0
"""Seconds for a cluster's head node to answer."""
_lock = threading.Lock()


@dataclass
class _Session:
    """A connection that was made here, to an `address`, with the directory that was `sent`."""

    address: str
    sent: str | None
    users: int = 0


_session: _Session | None = None


def enter(address: str | None, directory: str | None) -> None:
    """Connect to Ray, or use the connection there is.

    Args:
        address: Of a cluster; None: that of this process's connection, or else one on this machine.
        directory: To send to the cluster with a connection that is made here, if any.

    Raises:
        Exception: As `ray.init` raises it, where it fails.
        RuntimeError: If this process is connected to another cluster.
    """
    global _session
    import ray

    with _lock:
        if _session is None and ray.is_initialized():
            if address not in (None, "auto", str(ray.get_runtime_context().gcs_address)):
                raise RuntimeError(_ELSEWHERE)
            return
        wanted = address or "auto"
        if _session is None:
            _connect(wanted, directory)
            _session = _Session(wanted, directory)
        elif _session.address != wanted:
            raise RuntimeError(_ELSEWHERE)
        elif directory not in (None, _session.sent):
            raise RuntimeError(
                f"A job that goes on has sent {_session.sent!r} to the cluster, and there is "
                f"one directory for all: wait until it is over, then start this in {directory!r}."
            )
        _session.users += 1


def leave() -> None:
    """Undo one `enter`."""
    global _session
    import ray

    with _lock:
        if _session is not None:
            _session.users -= 1
            if _session.users == 0:
                _session = None
                ray.shutdown()


def _connect(address: str, directory: str | None) -> None:
    import ray

    own = str(Path(__file__).parents[2])  # distlab
    environment = {"working_dir": directory, "py_modules": [own]} if directory else {}
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


_ELSEWHERE = (
    "This process is connected to another Ray cluster: leave address= out to use that one, or "
    "call ray.shutdown() first."
)
