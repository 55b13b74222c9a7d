"""Launching from a real Jupyter kernel: a notebook's functions, its interrupts, its restarts."""

import json
import os
import re
import sys
import time

import pytest
from _processes import wait_gone
from jupyter_client.manager import start_new_kernel

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="watches processes through /proc")


@pytest.fixture
def kernel():
    manager, client = start_new_kernel(kernel_name="python3", env=dict(os.environ))
    yield manager, client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def run_cell(client, code: str) -> tuple[str, dict]:
    """Run a cell to its end; return what it printed, and its reply."""
    printed = []

    def note(message):
        if message["msg_type"] == "stream":
            printed.append(message["content"]["text"])

    reply = client.execute_interactive(code, output_hook=note, timeout=60)
    return "".join(printed), reply["content"]


NAP = """
import os, signal, time, json
import distlab
def nap():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("asleep", flush=True)
    time.sleep(600)
job = distlab.launch(nap, 2)
for rank in range(2):
    job.wait_for_output(rank, "asleep")
from distlab.launching.kernel import client
print(json.dumps([s.pid for s in job.status] + [c.pid for c in client._clients.values()]))
"""


def test_functions_of_cells_and_their_lines_in_tracebacks(kernel):
    _, client = kernel
    cell = (
        "import distlab\n"
        "class Odd(ValueError): pass\n"
        "factor = 3\n"
        "def work(x):\n"
        "    if x < 0:\n"
        "        raise Odd('from a cell')\n"
        "    return factor * x\n"
    )
    assert run_cell(client, cell)[1]["status"] == "ok"
    assert run_cell(client, "print(distlab.run(work, 2, args=(2,)))")[0] == "[6, 6]\n"
    # An edited cell counts as soon as it has run, with no supervisor started anew.
    run_cell(client, "factor = 4")
    assert run_cell(client, "print(distlab.run(work, 1, args=(2,)))")[0] == "[8]\n"
    _, reply = run_cell(client, "distlab.run(work, 1, args=(-1,), quiet=True)")
    assert reply["ename"] == "RankError"
    shown = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(reply["traceback"]))
    assert "raise Odd('from a cell')" in shown
    assert "\n      Cell In[1], line 6, in work\n" in shown
    assert "ipykernel_" not in shown
    assert "distlab/runtime" not in shown
    caught = (
        "try: distlab.run(work, 1, args=(-1,), quiet=True)\n"
        "except distlab.RankError as error: print(isinstance(error.cause, Odd))"
    )
    assert run_cell(client, caught)[0] == "True\n"


def test_cells_that_ipython_calls_the_same_keep_their_own_sources(kernel):
    _, client = kernel
    for name in ("first", "second"):  # run_cell stores no history: both are Cell In[1]
        code = f"import inspect\ndef {name}():\n    return inspect.getsource({name})"
        assert run_cell(client, code)[1]["status"] == "ok"
    both = "distlab.run(lambda: [first(), second()], 1)[0]"
    shown = run_cell(client, f"import distlab; print([s.splitlines()[0] for s in {both}])")[0]
    assert shown == "['def first():', 'def second():']\n"


def test_warnings_and_stacks_name_the_cell(kernel):
    _, client = kernel
    cell = (
        "import distlab, inspect, threading, traceback, warnings\n"
        "def work():\n"
        "    warnings.warn('careful')\n"
        "    print(inspect.getsource(work).splitlines()[0])\n"
        "    def within(): traceback.print_stack(limit=1)\n"
        "    within()\n"
        "    threading.Event().wait()\n"
        "job = distlab.launch(work, 1)\n"
        "job.wait_for_output(0, 'within')\n"
        "print(job.log(0))\n"
        "try: job.results(timeout=0.1)\n"
        "except distlab.JobTimeoutError as error: print(error)\n"
        "job.cancel()\n"
    )
    printed, reply = run_cell(client, cell)
    assert reply["status"] == "ok", reply
    assert "Cell In[1]:3: UserWarning: careful\n" in printed
    assert "\ndef work():\n" in printed
    assert '  File "Cell In[1]", line 5, in within\n' in printed
    assert "\n      Cell In[1], line 7 in work\n" in printed
    assert "ipykernel_" not in printed


def test_interrupting_and_restarting(kernel):
    manager, client = kernel
    ranks = json.loads(run_cell(client, NAP)[0])[:2]
    # Otherwise the kernel refuses the next cell too, if it comes before the error is dealt with.
    request = client.execute("print('waiting'); job.results()", stop_on_error=False)
    while True:
        message = client.get_iopub_msg(timeout=30)
        if message["content"].get("text") == "waiting\n":
            break
    started = time.monotonic()
    manager.interrupt_kernel()
    while True:
        reply = client.get_shell_msg(timeout=30)
        if reply["parent_header"]["msg_id"] == request:
            break
    assert time.monotonic() - started < 10
    assert reply["content"]["ename"] == "KeyboardInterrupt"
    assert reply["content"]["traceback"] == ["KeyboardInterrupt: interrupted; 2 ranks were stopped"]
    assert wait_gone(ranks, 0.0) == []
    printed, reply = run_cell(client, NAP)
    assert reply["status"] == "ok", reply
    everyone = json.loads(printed)
    manager.restart_kernel(now=True)
    assert wait_gone(everyone, 10) == []
