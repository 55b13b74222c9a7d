"""The key-value store through which the torch ranks of one attempt of a job find each other."""

import os
import signal
import socket
from typing import NoReturn


def serve(listening: int, channel: int) -> NoReturn:
    """Serve on a socket that listens on 127.0.0.1 already, until this process is ended.

    Left to itself torch's store listens on every interface.

    Args:
        listening: The socket's file descriptor.
        channel: The socket to the supervisor, which a store does not need.
    """
    os.close(channel)
    from torch.distributed import TCPStore

    owner = socket.socket(fileno=listening)
    host, port = owner.getsockname()
    store = TCPStore(
        host, port, is_master=True, wait_for_workers=False, master_listen_fd=owner.detach()
    )
    while store:
        signal.pause()
    raise AssertionError("a store is always true")
