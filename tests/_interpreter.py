"""A Python process that runs one piece of code after another, so that a framework starts once."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from typing import Any

_LOOP = """
import json, sys, traceback
names = {"__name__": "__main__", "out": {}}
for line in sys.stdin:
    code, stay = json.loads(line)
    before = set(names)
    names["out"].clear()
    try:
        exec(code, names)
        reply = {"out": names["out"]}
    except Exception:
        reply = {"error": traceback.format_exc()}
    sys.stdout.write("\\n>" + json.dumps(reply) + "\\n")
    sys.stdout.flush()
    for name in set() if stay else set(names) - before:
        del names[name]
"""


class Interpreter:
    """Runs pieces of code. Each fills a dict called `out`, which has to be fit for JSON.

    Args:
        code: A first piece. What it names is there for all others, whose own names are not.
        environment: Variables to set.
    """

    def __init__(self, code: str = "", **environment: str) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-c", _LOOP],
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._ask(code, stay=True)

    def run(self, code: str) -> dict[str, Any]:
        """Run a piece of code and return its `out`."""
        return self._ask(code, stay=False)

    def close(self) -> None:
        """End the process, which has to end well."""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        assert self._process.wait(60) == 0, self._said()
        self._process.stdout.close()
        self._errors.close()

    def _ask(self, code: str, stay: bool) -> dict[str, Any]:
        with contextlib.suppress(BrokenPipeError):  # it has ended, as is said below
            self._process.stdin.write(json.dumps([code, stay]) + "\n")
            self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith(">"):
                reply = json.loads(line[1:])
                assert "error" not in reply, f"{reply['error']}\n{self._said()}"
                return reply["out"]
        raise AssertionError(f"It ended with {self._process.wait()} at {code}\n{self._said()}")

    def _said(self) -> str:
        """The end of what it has written to standard error."""
        file = self._errors.fileno()  # the process goes on writing where it is
        return os.pread(file, 4000, max(0, os.fstat(file).st_size - 4000)).decode(errors="replace")
