"""This process's connection to Ray: the user's own, one to a running cluster, or a local cluster.

Jobs share it. What was started or connected here ends with the last job that uses it.
"""

import contextlib
import json
import logging
import os
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from distlab.launching import processes
from distlab.launching.supervisor.resources import core_count

_TOKEN = secrets.token_hex(32)
"""Who does not know it cannot use a cluster that was started here."""
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # no reports over the network
    "RAY_raylet_start_wait_time_s": "60",  # 30 are not enough on a machine that is very busy
    "RAY_worker_niceness": "0",  # ranks that are as nice as at home, not 15
    # Or else Ray replaces 127.0.0.1, where it is content to listen, by an address at which other
    # machines reach this one, and listens on all: on macOS alone this is so by default.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}
_PATIENCE = 5.0
"""Seconds for a cluster's head node to answer."""
_NOT_UP = "timed out during startup"
"""What Ray says when a node has not come up."""
_lock = threading.Lock()
_session: "Session | None" = None


class Session:
    """A connection that was made here.

    Args:
        address: Of a running cluster; None starts one on this machine.
        cpus: How many CPUs a cluster started here offers at least.
        shipped: The directory to send to a running cluster, if any.
    """

    def __init__(self, address: str | None, cpus: int, shipped: str | None) -> None:
        self.address = address
        self.shipped = shipped
        self.users = 0
        self._keeper: subprocess.Popen[str] | None = None
        try:
            token = None
            if address is None:
                token = _TOKEN
                address = self._start(max(cpus, core_count()))
            _connect(address, shipped, token)
        except BaseException:
            self.close()
            raise

    def _start(self, cpus: int) -> str:
        """Start a cluster here, and return its address.

        Once more if its node does not come up, which was seen on a busy machine and not understood.
        """
        self._keeper = _keep(cpus)
        try:
            return _hear(self._keeper)
        except RuntimeError as error:
            if _NOT_UP not in str(error):
                raise
        self._keeper.communicate()
        self._keeper = _keep(cpus)
        return _hear(self._keeper)

    def close(self) -> None:
        """Disconnect; end the cluster if it was started here."""
        import ray

        ray.shutdown()
        if self._keeper is not None:
            self._keeper.communicate()  # it reads to the end of its input
            self._keeper = None


def _keep(cpus: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        processes.python("engines.ray_keeper", str(cpus)),
        # Whatever the user's own clusters ask for, this one asks for its token.
        env=os.environ | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": _TOKEN} | _SETTINGS,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,  # an interrupt of the kernel is not meant for it
    )


def _hear(keeper: "subprocess.Popen[str]") -> str:
    assert keeper.stdout is not None
    import ray  # noqa: F401 - takes a second, which the keeper needs anyway

    line = keeper.stdout.readline()
    answer: dict[str, str] = json.loads(line) if line else {"error": "its process has ended"}
    if "error" in answer:
        raise RuntimeError(answer["error"])
    return answer["address"]


def _connect(address: str, shipped: str | None, token: str | None) -> None:
    import ray

    environment: dict[str, Any] = {}
    if shipped is not None:
        own = str(Path(__file__).parents[1])
        environment = {"working_dir": shipped, "py_modules": [own]}
    _check_reachable(address)
    with _surroundings(token), _at_home(token is not None):
        if token is not None:
            # Where it is told an address, Ray does not look for a token by itself.
            ray._raylet.Config.initialize("")
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR, runtime_env=environment)


def _check_reachable(address: str) -> None:
    """Raise ConnectionError if nobody listens at an address: Ray would take minutes to say so."""
    host, separator, port = address.rpartition(":")
    if not separator or "//" in address or not port.isdecimal():
        return  # "auto", or one that Ray reads otherwise
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()
    except OSError as error:
        raise ConnectionError(
            f"nobody answers there ({error}). `ray status` on the cluster's head node shows "
            "whether it runs; its address is host:6379 unless it was given another port."
        ) from error


@contextlib.contextmanager
def _surroundings(token: str | None) -> Iterator[None]:
    """Variables that Ray reads when it connects, as they were afterwards."""
    wanted = {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}  # or else it warns of a change to come
    if token is not None:
        wanted |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _at_home(own: bool) -> Iterator[None]:
    """While Ray connects to a cluster that listens at 127.0.0.1 alone: see `_SETTINGS`."""
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = before and not own
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def enter(address: str | None, cpus: int, directory: str | None) -> bool:
    """Connect to Ray, or use the connection there is.

    Args:
        address: Of a running cluster; None: that of this process, or else a local one.
        cpus: How many CPUs a cluster that is started for this offers at least.
        directory: To send to a running cluster that is connected to here, if any.

    Returns:
        Whether the ranks share this process's files: the cluster was started here.

    Raises:
        Exception: As `ray.init` raises it, where it fails.
        RuntimeError: If this process is connected to another cluster.
    """
    global _session
    shipped = directory if address is not None else None
    with _lock:
        if _session is None and (known := _connected()) is not None:
            if address not in (None, "auto", known):
                raise RuntimeError(_ELSEWHERE)
            return False
        if _session is not None and address not in (None, _session.address):
            raise RuntimeError(_ELSEWHERE)
        if _session is not None and shipped not in (None, _session.shipped):
            raise RuntimeError(
                f"A job that goes on has sent {_session.shipped!r} to the cluster, and there is "
                f"one directory for all: wait until it is over, then start this in {shipped!r}."
            )
        if _session is None:
            _session = Session(address, cpus, shipped)
        _session.users += 1
        return _session.address is None


def leave() -> None:
    """Undo one `enter`."""
    global _session
    with _lock:
        if _session is None:
            return
        _session.users -= 1
        if _session.users == 0:
            _session.close()
            _session = None


_ELSEWHERE = (
    "This process is connected to another Ray cluster: leave address= out to use that one, or "
    "call ray.shutdown() first."
)


def _connected() -> str | None:
    """The address of the cluster that this process is connected to, if it is."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return None
    return str(ray.get_runtime_context().gcs_address)
