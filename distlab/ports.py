"""Ports of this machine that nobody else takes before the process they are meant for does."""

import contextlib
import errno
import socket
import sys

HOST = "127.0.0.1"
EVERYWHERE = "0.0.0.0"
"""All addresses. It is bound for a moment, and nothing listens there."""
TRIES = 100
"""How often another process may take a port between two calls before that is an error."""


class HeldPort:
    """A port of this machine that stays ours until the process it is meant for takes it.

    Args:
        reuse: Set `SO_REUSEPORT`, so that a process which sets it too can bind the port while it
            is held. Without it the port must be handed over first.
        host: The address it is on.
        descriptor: Of a port that another process has held, which this one has inherited.
    """

    def __init__(
        self, reuse: bool = False, host: str = HOST, descriptor: int | None = None
    ) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, fileno=descriptor)
        self._socket.set_inheritable(False)
        if descriptor is None:
            if reuse:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            _bind(self._socket, host)
        host, self.number = self._socket.getsockname()
        self.address = f"{host}:{self.number}"

    def fileno(self) -> int:
        """The descriptor by which a process that inherits it holds the port."""
        return self._socket.fileno()

    def listen(self) -> int:
        """Start to listen, and give the descriptor away: from now on connections queue."""
        self._socket.listen(128)
        return self._socket.detach()

    def hand_over(self) -> None:
        """Free the port for a server that does not set `SO_REUSEPORT`.

        A connection closed from this side leaves the port in TIME_WAIT for a minute. The system
        gives such a port to nobody who asks for any free one, while a server that names it and
        sets `SO_REUSEADDR`, as gRPC does, may bind it.
        """
        if self._socket.fileno() < 0:
            return
        # Not before: while it is held, such a port could be bound by others.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.listen(1)
        with socket.create_connection(self._socket.getsockname()):
            accepted, _ = self._socket.accept()
            accepted.close()
        # Ranks forked just now may hold a copy, which would go on listening when ours is closed.
        with contextlib.suppress(OSError):  # not on macOS, where there are no forks either
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def close(self) -> None:
        """Let go of the port."""
        self._socket.close()


def _bind(held: socket.socket, host: str) -> None:
    """Bind a socket to a port that no address of this machine has in use.

    TensorFlow's server binds a port at all addresses. A port that is free at one address may
    belong to a connection of another program at a different one, such as 127.0.0.1.
    """
    for _ in range(TRIES):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as anywhere:
            anywhere.bind((EVERYWHERE, 0))
            _, number = anywhere.getsockname()
        try:
            held.bind((host, number))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return
    raise OSError(errno.EADDRINUSE, f"{TRIES} ports that were free at {host} were taken at once")


def interface_of(host: str) -> str | None:
    """The network interface that has an address; None if none has."""
    if host.startswith("127."):
        return "lo" if sys.platform == "linux" else "lo0"
    import psutil

    for name, addresses in psutil.net_if_addrs().items():
        if any(address.address == host for address in addresses):
            return str(name)
    return None
