"""The process that keeps a local Ray cluster, and ends all of it when its kernel ends.

Ray's own processes end with the process that started them, but some only after a minute or two.
"""

import contextlib
import json
import logging
import os
import shutil
import signal
import sys
import tempfile

from distlab.launching import processes
from distlab.ports import HOST

_LONGEST = 24


def entry() -> None:
    """Start a cluster, say where it is, and keep it until standard input closes.

    The argument is how many CPUs it offers. The answer is a line of JSON: `address` or `error`.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # meant for the kernel
    processes.adopt_orphans()
    place = tempfile.gettempdir()
    if len(place) > _LONGEST:  # a socket's path has 107 bytes at most, of which Ray takes 60
        place = "/tmp"
    directory = tempfile.mkdtemp(prefix="distlab-ray-", dir=place)
    os.environ[processes.DIRECTORY_VARIABLE] = directory  # for all that runs on the cluster
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        stack.callback(processes.end_descendants)
        try:
            answer = {"address": _start(int(sys.argv[1]), directory)}
        except Exception as error:  # noqa: BLE001 - raised in the kernel
            answer = {"error": f"{type(error).__name__}: {error}"}
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(answer), file=answers, flush=True)
        sys.stdin.read()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os._exit(0)  # Ray's own ending would look for processes that are gone


def _start(cpus: int, directory: str) -> str:
    import ray

    found = ray.init(
        num_cpus=cpus,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        _node_ip_address=HOST,
        _temp_dir=directory,
    )
    return str(found.address_info["gcs_address"])
