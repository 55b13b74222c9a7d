"""This process's connection to Ray: the user's own, one to a running cluster, or a local cluster.

Jobs share it. What was started or connected here ends with the last job that uses it.
"""

import contextlib
import logging
import os
import secrets
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from distlab.rendezvous import HOST
from distlab.shares import core_count

# Ray replaces 127.0.0.1 by an address at which other machines could reach this one; not this.
_OWN_HOST = "127.0.0.2" if sys.platform == "linux" else HOST
_TOKEN = secrets.token_hex(32)
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
        self._ended = threading.Event()
        self._ready = threading.Event()
        self._error: Exception | None = None
        # Ray's processes end with the thread that started them: it must last as long as they.
        self._thread = threading.Thread(
            target=self._live, args=(cpus,), name="distlab-ray", daemon=True
        )
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            raise self._error

    def _live(self, cpus: int) -> None:
        import ray

        with contextlib.ExitStack() as stack:
            try:
                with _surroundings(self.address is None):
                    if self.address is None:
                        directory = tempfile.mkdtemp(prefix="distlab-ray-")
                        stack.callback(shutil.rmtree, directory, ignore_errors=True)
                        _start(directory, max(cpus, core_count()))
                    else:
                        _connect(self.address, self.shipped)
                stack.callback(ray.shutdown)
            except Exception as error:  # noqa: BLE001 - raised where it was asked for
                self._error = error
                return
            finally:
                self._ready.set()
            self._ended.wait()

    def close(self) -> None:
        """Disconnect; end the cluster if it was started here."""
        self._ended.set()
        self._thread.join()


def _start(directory: str, cpus: int) -> None:
    import ray

    ray.init(
        num_cpus=cpus,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        _node_ip_address=_OWN_HOST,
        _temp_dir=directory,
    )


def _connect(address: str, shipped: str | None) -> None:
    import ray

    environment: dict[str, Any] = {}
    if shipped is not None:
        own = str(Path(__file__).parent)
        environment = {"working_dir": shipped, "py_modules": [own]}
    ray.init(address, log_to_driver=False, logging_level=logging.ERROR, runtime_env=environment)


@contextlib.contextmanager
def _surroundings(local: bool) -> Iterator[None]:
    """Variables that Ray reads when it starts, set for that long unless the user has set them."""
    wanted = {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}  # it warns that this is going to change
    if local:
        wanted["RAY_USAGE_STATS_ENABLED"] = "0"  # they would be sent over the network
        if not os.environ.get("RAY_AUTH_MODE"):
            # Only we may use this cluster. Ray would keep the token in the home folder.
            wanted["RAY_AUTH_TOKEN"] = _TOKEN
    before = {name: os.environ.get(name) for name in (*wanted, "RAY_AUTH_MODE")}
    os.environ.update({name: value for name, value in wanted.items() if before[name] is None})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


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
    import ray

    global _session
    shipped = directory if address is not None else None
    with _lock:
        if _session is None and ray.is_initialized():
            if address not in (None, "auto", ray.get_runtime_context().gcs_address):
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
