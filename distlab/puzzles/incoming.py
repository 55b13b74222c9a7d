"""What comes through a socket, as the messages that it is made of."""

import socket
from collections.abc import Iterator

from distlab.puzzles.messages import LENGTH

MOST = 1 << 24
"""Bytes that a message may have: a rank sends no numbers, so its messages are short."""


class Incoming:
    """The messages that come through a socket, put together again.

    Args:
        source: The socket.
        most: Bytes that a message may have.
    """

    def __init__(self, source: socket.socket, most: int = MOST) -> None:
        self.most = most
        self._source = source
        self._data = bytearray()

    def wait(self) -> bytes:
        """Wait for one message.

        Raises:
            EOFError: If the other side has gone.
        """
        while (message := self._next()) is None:
            self._more()
        return message

    @property
    def unread(self) -> bool:
        """Whether bytes have come that no message was made of: `select` does not see them."""
        return bool(self._data)

    def arrived(self) -> Iterator[bytes]:
        """Read once, and give every message that is complete.

        Raises:
            EOFError: If the other side has gone.
            ValueError: If what came is no message.
        """
        self._more()
        while (message := self._next()) is not None:
            yield message

    def _more(self) -> None:
        try:
            data = self._source.recv(1 << 16)
        except ConnectionError:
            data = b""
        if not data:
            raise EOFError("The other side has closed the connection.")
        self._data += data

    def _next(self) -> bytes | None:
        if len(self._data) < LENGTH.size:
            return None
        length = LENGTH.unpack_from(self._data)[0]
        if length > self.most:
            raise ValueError(f"A message of {length:,} bytes is none of ours.")
        if len(self._data) < LENGTH.size + length:
            return None
        message = bytes(self._data[LENGTH.size : LENGTH.size + length])
        del self._data[: LENGTH.size + length]
        return message
