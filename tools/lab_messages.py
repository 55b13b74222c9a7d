"""A small extension of JupyterLab's server: the last line it prints is the address to open."""

import logging
from typing import Any

from tornado.websocket import WebSocketClosedError


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "lab_messages"}]


def _of_use(record: logging.LogRecord) -> bool:
    """Whether a reader can do something about it.

    Nobody can about two defaults of the server's that clash, or about a tab that was closed while
    the server wrote to it.
    """
    if record.getMessage().startswith("The websocket_ping_timeout"):
        return False
    return not (record.exc_info and isinstance(record.exc_info[1], WebSocketClosedError))


def _load_jupyter_server_extension(server: Any) -> None:
    for name in ("asyncio", "tornado.general"):
        logging.getLogger(name).addFilter(_of_use)
    # The server would print eight lines of its own about a token that it has made.
    provider = server.identity_provider
    server.web_app.settings["token_generated"] = provider.token_generated
    provider.token_generated = False


async def _start_jupyter_server_extension(server: Any) -> None:
    # A token that the reader has chosen is not shown, as the server itself would not.
    server.identity_provider.token_generated = server.web_app.settings["token_generated"]
    print(f"JupyterLab runs, and Ctrl-C ends it: {server.public_url}", flush=True)
