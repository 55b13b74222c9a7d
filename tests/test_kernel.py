"""Launching from a real Jupyter kernel: a notebook's functions, their lines, a kernel's restart."""

import json
import re
import sys

import pytest
from _notebook import Notebook, printed
from _processes import wait_gone

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="watches processes through /proc")


@pytest.fixture
def kernel():
    opened = Notebook()
    yield opened
    opened.close()


def test_functions_of_cells_and_their_lines_in_tracebacks(kernel):
    kernel.run("""
        import distlab
        class Odd(ValueError): pass
        factor = 3
        def work(x):
            if x < 0:
                raise Odd('from a cell')
            return factor * x
    """)
    assert printed(kernel.run("print(distlab.run(work, 2, args=(2,)))")) == "[6, 6]\n"
    # An edited cell counts as soon as it has run, with no supervisor started anew.
    kernel.run("factor = 4")
    assert printed(kernel.run("print(distlab.run(work, 1, args=(2,)))")) == "[8]\n"
    error = kernel.error("distlab.run(work, 1, args=(-1,), quiet=True)")
    assert error["ename"] == "RankError"
    shown = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error["traceback"]))
    assert "raise Odd('from a cell')" in shown
    assert "\n      Cell In[1], line 6, in work\n" in shown
    assert "ipykernel_" not in shown
    assert "distlab/launching" not in shown


def test_cells_that_ipython_calls_the_same_keep_their_own_sources(kernel):
    for name in ("first", "second"):  # without a history both are Cell In[1]
        code = f"import inspect\ndef {name}():\n    return inspect.getsource({name})"
        kernel.run(code, store_history=False)
    both = "distlab.run(lambda: [first(), second()], 1)[0]"
    shown = kernel.run(f"import distlab; print([s.splitlines()[0] for s in {both}])")
    assert printed(shown) == "['def first():', 'def second():']\n"


def test_warnings_and_stacks_name_the_cell(kernel):
    messages = kernel.run("""
        import distlab, inspect, threading, traceback, warnings
        def work():
            warnings.warn('careful')
            print(inspect.getsource(work).splitlines()[0])
            def within(): traceback.print_stack(limit=1)
            within()
            threading.Event().wait()
        job = distlab.launch(work, 1)
        job.wait_for_output(0, 'within')
        print(job.log(0))
        try: job.results(timeout=0.1)
        except distlab.JobTimeoutError as error: print(error)
        job.cancel()
    """)
    said = printed(messages)
    assert "Cell In[1]:3: UserWarning: careful\n" in said
    assert "\ndef work():\n" in said
    assert '  File "Cell In[1]", line 5, in within\n' in said
    assert "\n      Cell In[1], line 7 in work\n" in said
    assert "ipykernel_" not in said


def test_a_restarted_kernel_leaves_nothing(kernel):
    messages = kernel.run("""
        import signal, time, json
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
    """)
    everyone = json.loads(printed(messages))
    assert len(everyone) == 3
    kernel.manager.restart_kernel(now=True)
    assert wait_gone(everyone, 10) == []
