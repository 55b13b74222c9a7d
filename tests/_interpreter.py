"""A Python process that runs one piece of code after another, so that a framework starts once."""

import json
import sys
from typing import Any

import execnet

_LOOP = """
import json, traceback
names = {"__name__": "__main__", "out": {}}
for code, stay in channel:
    before = set(names)
    names["out"].clear()
    try:
        exec(code, names)
        channel.send(json.dumps({"out": names["out"]}))
    except Exception:
        channel.send(json.dumps({"error": traceback.format_exc()}))
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
        variables = "".join(f"//env:{name}={value}" for name, value in environment.items())
        self._gateway = execnet.makegateway(f"popen//python={sys.executable}{variables}")
        self._channel = self._gateway.remote_exec(_LOOP)
        self._ask(code, stay=True)

    def run(self, code: str) -> dict[str, Any]:
        """Run a piece of code and return its `out`."""
        return self._ask(code, stay=False)

    def close(self) -> None:
        """End the process."""
        self._channel.close()
        self._gateway.exit()
        self._gateway.join(60)

    def _ask(self, code: str, stay: bool) -> dict[str, Any]:
        self._channel.send((code, stay))
        reply = json.loads(self._channel.receive())
        assert "error" not in reply, reply["error"]
        return reply["out"]
