"""A kernel as a notebook has it, and the messages that a page would show."""

import contextlib
import os
import queue
import textwrap
import time

from jupyter_client.manager import KernelManager


class Notebook:
    """A real kernel, and all it has published; it sees `environment` besides that of the tests."""

    def __init__(self, **environment: str) -> None:
        self.manager = KernelManager()
        self.manager.start_kernel(env=os.environ | environment)
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)
        self.messages: list[dict] = []

    def run(self, code: str, **options: bool) -> list[dict]:
        """Run a cell, which ends well; return what it published before it was over."""
        during = self._run(code, **options)
        errors = [m["content"] for m in during if m["msg_type"] == "error"]
        assert not errors, "\n".join(errors[0]["traceback"])
        return during

    def error(self, code: str) -> dict:
        """Run a cell that fails; return its error."""
        (error,) = (m["content"] for m in self._run(code) if m["msg_type"] == "error")
        return error

    def _run(self, code: str, **options: bool) -> list[dict]:
        request = self.client.execute(textwrap.dedent(code), **options)
        before = len(self.messages)
        self.until(
            lambda message: (
                message["msg_type"] == "status"
                and message["content"]["execution_state"] == "idle"
                and message["parent_header"].get("msg_id") == request
            )
        )
        return self.messages[before:]

    def until(self, condition, timeout: float = 60.0) -> dict:
        """Take in messages until one fulfils the condition."""
        deadline = time.monotonic() + timeout
        while True:
            message = self.client.get_iopub_msg(timeout=max(0, deadline - time.monotonic()))
            self.messages.append(message)
            if condition(message):
                return message

    def collect(self, seconds: float) -> list[dict]:
        """Take in what comes within some seconds."""
        before = len(self.messages)
        with contextlib.suppress(queue.Empty):
            self.until(lambda _: False, seconds)
        return self.messages[before:]

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


def printed(messages: list[dict]) -> str:
    return "".join(m["content"]["text"] for m in messages if m["msg_type"] == "stream")
