"""A job as text, as HTML, and as a live table in a real kernel."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from importlib.util import find_spec
from pathlib import Path

import nbclient
import nbformat
import pytest
from _notebook import Notebook, printed
from _ranks import chat, fail_on_one

import distlab
from distlab.launching.kernel import snapshot
from distlab.launching.kernel.logs import last_line
from distlab.launching.protocol.files import rank_file

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="watches processes through /proc")


def cells(text: str) -> list[list[str]]:
    """The table within a job's text, row by row."""
    return [re.split(r" {2,}", line.strip()) for line in text.splitlines()[1:]]


# Text.


def test_text_of_a_running_job():
    with distlab.launch(chat, 2, args=("hello",)) as job:
        for rank in range(2):
            job.wait_for_output(rank, "hello")
        text = repr(job)
    lines = text.splitlines()
    assert re.fullmatch(r"Job of 2 ranks, for \d s: 2 running", lines[0])
    assert lines[1].split() == ["rank", "state", "time", "last", "line"]
    for rank, line in enumerate(lines[2:]):
        assert re.fullmatch(rf"{rank}     running   \d s  hello", line)
    assert len(lines) == 4


def test_text_of_a_finished_job():
    with distlab.launch(print, 3, args=("bye",)) as job:
        job.results()
        first, again = repr(job), repr(job)
    assert first == again, "an elapsed time went on"
    headline, header, *rows = first.splitlines()
    assert re.fullmatch(r"Job of 3 ranks, over after \d\.\d s: 3 done", headline)
    assert header.split() == ["rank", "state", "time", "last", "line"]
    assert [re.fullmatch(r"(\d) +done +\d\.\d s +bye", row)[1] for row in rows] == ["0", "1", "2"]


def test_text_of_a_failed_job_names_the_first_failure():
    with distlab.launch(fail_on_one, 2) as job:
        with pytest.raises(distlab.RankError):
            job.results()
        text = repr(job)
    assert ": 1 stopped, 1 failed\n" in text
    assert [row[:2] for row in cells(text)[1:3]] == [["0", "stopped"], ["1", "failed"]]
    assert text.splitlines()[-1] == (
        "First failure: rank 1: ValueError: no <such> number (results() shows its traceback)"
    )


def test_a_page_is_not_called_old_while_there_is_nothing_to_renew():
    with distlab.launch(chat, 2, args=("here",), start=[]) as job:
        job._client.ready.wait()
        for view in snapshot.table, snapshot.line:
            assert "not up to date" not in view(job._record)["text/html"]


def test_the_line_names_who_is_left():
    with distlab.launch(chat, 3, args=("here",), start=[1, 2]) as job:
        for rank in (1, 2):
            job.wait_for_output(rank, "here")
        line = snapshot.line(job._record)["text/plain"]
        where = r"Job of 3 ranks, for \d s: 1 waiting, 2 running \(ranks 1 and 2\)"
        assert re.fullmatch(where, line)
        assert "not up to date" in snapshot.table(job._record)["text/html"]
    assert "not up to date" not in snapshot.table(job._record)["text/html"]


def test_one_that_failed_while_it_was_to_be_stopped_has_failed(tmp_path):
    def fail():
        blocked = Path("blocked")
        if os.environ["RANK"] == "0":
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
            blocked.touch()
            while signal.SIGTERM not in signal.sigpending():
                time.sleep(0.01)
        while not blocked.exists():
            time.sleep(0.01)
        raise ValueError("no more data")

    with distlab.launch(fail, 2, cwd=tmp_path) as job:
        with pytest.raises(distlab.RankError, match="both ranks failed: ValueError"):
            job.results()
        assert ": 2 failed\n" in repr(job)


def test_the_table_names_the_killed_rank_first_though_its_peers_said_so_before():
    def killed_beside_others():
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo")
        if dist.get_rank() == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.all_reduce(torch.ones(1))

    with distlab.launch(killed_beside_others, 4, "torch") as job:
        with pytest.raises(distlab.RankError) as error:
            job.results()
        text = repr(job)
    assert "First failure: rank 2: was ended by SIGKILL" in text.splitlines()[-1]
    assert str(error.value).startswith("rank 2 of 4 was ended by SIGKILL")


def test_text_of_a_job_that_ran_out_of_time():
    with distlab.launch(chat, 1, args=("x",), timeout=0.3) as job:
        with pytest.raises(distlab.JobTimeoutError):
            job.results()
        assert "The job did not end within its timeout" in repr(job)


def test_text_of_a_job_whose_supervisor_was_killed():
    with distlab.launch(chat, 2, args=("x",), env={"LD_TEST": "its own supervisor"}) as job:
        job.wait_for_output(0, "x")
        job.wait_for_output(1, "x")
        os.kill(job._client.pid, signal.SIGKILL)
        with pytest.raises(distlab.RankError):
            job.results()
        text = repr(job)
    assert ": 2 lost\n" in text
    assert "The process that started and watched the ranks was ended by SIGKILL" in text


def test_paused_killed_restarted_and_waiting_ranks_in_text_and_html():
    with distlab.launch(chat, 4, args=("x",), start=[0, 1, 2]) as job:
        job.wait_for_output(0, "x")
        job.pause(1)
        job.kill(2)
        text, page = snapshot.table(job._record).values()
        job.restart(2)
        again = cells(repr(job))
    assert [row[1] for row in cells(text)[1:5]] == ["running", "paused", "killed", "waiting"]
    assert "restarts" not in text
    assert "First failure: rank 2: was killed by Job.kill" in text
    assert again[0][2] == "restarts"
    assert again[3][1:3] == ["running", "1"]
    cell = r"<td[^>]*>"
    rows = re.findall(rf"<tr>{cell}(\d)</td>{cell}(\w+)</td>", page)
    assert rows == [("0", "running"), ("1", "paused"), ("2", "killed"), ("3", "waiting")]


@pytest.mark.skipif(find_spec("tensorflow") is None, reason="tensorflow is not installed")
def test_tasks_are_named_where_there_are_several_kinds():
    with distlab.launch(
        chat, framework="tensorflow", roles={"chief": 1, "ps": 1}, start=[], args=("x",)
    ) as job:
        table = cells(repr(job))
    assert table == [
        ["rank", "task", "state"],
        ["0", "chief 0", "waiting"],
        ["1", "ps 0", "waiting"],
    ]


def test_of_many_ranks_the_interesting_ones_are_shown():
    with distlab.launch(chat, 100, args=("x",), start=[98, 99]) as job:
        job.wait_for_output(98, "x")
        job.wait_for_output(99, "x")
        job.pause(99)
        lines = repr(job).splitlines()
    assert lines[0].endswith(": 98 waiting, 1 running, 1 paused")
    assert lines[-3].startswith("98    running") and lines[-2].startswith("99    paused")
    assert lines[-1] == "and 68 more: 68 waiting"
    assert len(lines) == 2 + 32 + 1


# The last line, times.


def test_last_line(tmp_path, subtests):
    for line, shown in [
        ("\x1b[1m1/1\x1b[0m \x1b[32m━━\x1b[0m 5ms/step", "1/1 ━━ 5ms/step"),
        ("10%\r50%\r100%\n\n", "100%"),
        ("loss 0.1\n2026-01-01 00:00:00.000000: I tensorflow/core: chatter", "loss 0.1"),
        ("\x1b]0;title\x07ring\x07\n   \n", "ring"),
        ("", ""),
        ("x" * 100_000, "x" * (1 << 16)),
    ]:
        with subtests.test(line=line[:100]):
            rank_file(tmp_path, 0, 0, "log").write_text(line)
            assert last_line(tmp_path, 0, 0) == shown
    assert last_line(tmp_path, 1, 0) == ""


def test_long_lines_are_cut():
    with distlab.launch(print, 1, args=("x" * 5000,)) as job:
        job.results()
        assert max(map(len, repr(job).splitlines())) < 120


def test_durations():
    said = [snapshot._duration(seconds, exact=True) for seconds in (0.04, 59.4, 60, 90061)]
    assert said == ["0.0 s", "59.4 s", "1 min 0 s", "25 h 1 min"]
    assert snapshot._duration(59.9, exact=False) == "59 s"


# HTML.


def test_html_escapes_what_ranks_print():
    with distlab.launch(chat, 1, args=("<script>alert(1)</script>&",)) as job:
        job.wait_for_output(0, "alert")
        page = snapshot.table(job._record)["text/html"]
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&amp;" in page


# Without a notebook.


def python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_text_where_ipython_is_not_installed():
    out = python("""
        import sys
        sys.modules["IPython"] = None
        import distlab
        with distlab.launch(print, 1, args=("ho",)) as job:
            job.results()
            print(job)
            try:
                job._ipython_display_()
            except NotImplementedError:
                print("no notebook")
    """)
    assert "1 done" in out and out.endswith("no notebook\n")


def test_text_in_ipython_in_a_terminal():
    out = python("""
        from IPython.core.interactiveshell import InteractiveShell
        shell = InteractiveShell.instance()
        shell.run_cell("import distlab, threading; job = distlab.launch(print, 1); job.results()")
        shell.run_cell("job")
        shell.run_cell("print([t.name for t in threading.enumerate() if 'display' in t.name])")
    """)
    assert re.search(r"Job of 1 rank, over after \d\.\d s: 1 done\n", out)
    assert out.endswith("[]\n")


# In a kernel.


@pytest.fixture(scope="module")
def kernel():
    opened = Notebook()
    opened.run("import distlab, threading, time, gc, os")
    yield opened
    opened.close()


def tables(messages: list[dict], kind: str = "update_display_data") -> list[tuple[str, str]]:
    """The display ids and texts of the tables among some messages."""
    return [
        (m["content"]["transient"]["display_id"], m["content"]["data"]["text/plain"])
        for m in messages
        if m["msg_type"] == kind
    ]


def is_table(words: str):
    return lambda message: (
        message["msg_type"] == "update_display_data"
        and words in message["content"]["data"]["text/plain"]
    )


def test_the_table_follows_the_job_and_comes_to_rest(kernel):
    shown = kernel.run("""
        def work():
            print("one", flush=True)
            time.sleep(1.6)
            print("two", flush=True)
        job = distlab.launch(work, 2)
        job
    """)
    ((name, _),) = tables(shown, "display_data")
    assert not [m for m in shown if m["msg_type"] == "execute_result"]
    before = len(kernel.messages)
    began = time.monotonic()
    last = kernel.until(is_table("over after"))  # all ranks may be done a moment before
    updates = tables(kernel.messages[before:])
    assert {identifier for identifier, _ in updates} == {name}
    assert any("2 running" in text and "one" in text for _, text in updates)
    assert len(updates) <= 2 * (time.monotonic() - began) + 2
    assert "2 done" in last["content"]["data"]["text/plain"]
    assert "two" in last["content"]["data"]["text/plain"]
    assert "</table>" in last["content"]["data"]["text/html"]
    assert not tables(kernel.collect(1.2)), "it goes on after the end"


def test_what_a_cell_waited_for_is_shown_when_the_cell_is_over(kernel):
    kernel.run("job = distlab.launch(time.sleep, 2, args=(0.2,)); job")
    waited = kernel.run("job.results()")
    assert "2 done" in tables(waited)[-1][1]
    for end, words in (("job.kill(0)", "1 stopped, 1 killed"), ("job.cancel()", "2 stopped")):
        kernel.run("job = distlab.launch(time.sleep, 2, args=(600,)); job")
        ended = kernel.run(f"{end}; job.cancel()")
        assert words in tables(ended)[-1][1]


def test_one_job_shown_twice_is_up_to_date_in_both_cells(kernel):
    first = tables(
        kernel.run("job = distlab.launch(time.sleep, 1, args=(600,)); job"), "display_data"
    )
    second = tables(kernel.run("display(job)"), "display_data")
    assert len(first) == len(second) == 1
    assert first[0][0] == second[0][0], "what updates one must update the other"
    assert "1 stopped" in tables(kernel.run("job.cancel()"))[-1][1]
    over = tables(kernel.run("job"), "display_data")
    assert "1 stopped" in over[0][1]


def test_nothing_is_sent_while_nothing_changes(kernel):
    kernel.run("job = distlab.launch(time.sleep, 2, args=(1,), start=[]); job")
    assert not tables(kernel.collect(1.5))
    kernel.run("job.cancel()")


def test_a_job_that_starts_again_is_followed_again(kernel):
    kernel.run("job = distlab.launch(time.sleep, 2, args=(0.1,)); job")
    kernel.run("job.results()")
    kernel.run("job.restart()")
    again = kernel.until(is_table("2 done"))
    assert "restarts" in again["content"]["data"]["text/plain"]


def test_two_hundred_jobs_leave_no_thread_and_no_table(kernel):
    code = """
        def measure():
            gc.collect()
            names = [t.name for t in threading.enumerate() if t.name == "distlab-display"]
            return len(names), threading.active_count()
        for _ in range(2):
            display(distlab.launch(int, 1))
        %s
        before = measure()[1]
        for _ in range(200):
            job = distlab.launch(int, 1)
            display(job)
            job.results()
        del job
        from distlab.launching.kernel.display import _shown
        for thread in threading.enumerate():
            if thread.name == "distlab-display":
                thread.join(10)
        displays, after = measure()
        print("MEASURED", displays, after - before, len(_shown))
    """
    settle = "[t.join(10) for t in threading.enumerate() if t.name == 'distlab-display']"
    out = printed(kernel.run(textwrap.dedent(code) % settle))
    assert "MEASURED 0 0 " in out
    # Jobs that the kernel's own history holds, from the tests before, keep their table.
    assert int(out.split()[-1]) < 20


def test_a_stored_notebook_holds_the_last_word():
    sources = [
        "import distlab, time",
        "job = distlab.launch(time.sleep, 2, args=(1.2,))\njob",
        "job.results()",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(s) for s in sources])
    nbclient.NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    (output,) = notebook.cells[1].outputs
    assert output["output_type"] == "display_data"
    assert "2 done" in output["data"]["text/html"] and "2 done" in output["data"]["text/plain"]
    assert [o["output_type"] for o in notebook.cells[2].outputs] == ["execute_result"]


def test_a_kernel_that_ends_amid_a_job_says_nothing_of_threads(tmp_path):
    opened = Notebook()
    try:
        opened.run("import distlab, time\njob = distlab.launch(time.sleep, 2, args=(600,))\njob")
        before = len(opened.messages)
        opened.client.shutdown()
        deadline = time.monotonic() + 20
        while opened.manager.is_alive() and time.monotonic() < deadline:
            opened.collect(0.1)
        assert not opened.manager.is_alive()
        assert "Traceback" not in printed(opened.messages[before:])
    finally:
        opened.close()
