"""What a notebook's cell shows while it waits for ranks, and of ranks that print a lot."""

import re
import sys

import pytest
from _notebook import Notebook, printed

from distlab.launching.kernel.following import LEAST, MOST, WIDTH

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="watches processes through /proc")


@pytest.fixture(scope="module")
def kernel():
    opened = Notebook(DISTLAB_PROGRESS="on")
    opened.run("import distlab, os, time")
    yield opened
    opened.close()


def shown(messages: list[dict]) -> list[str]:
    """What the line said, one after the other; all of it in one place."""
    lines = [m for m in messages if m["msg_type"] in ("display_data", "update_display_data")]
    kinds = [m["msg_type"] for m in lines]
    assert kinds == ["display_data", *["update_display_data"] * (len(lines) - 1)][: len(lines)]
    assert len({m["content"]["transient"]["display_id"] for m in lines}) <= 1
    return [m["content"]["data"]["text/plain"] for m in lines]


def test_a_wait_shows_the_import_then_the_ranks_then_the_end(kernel):
    lines = shown(kernel.run("distlab.run(time.sleep, 2, 'torch', args=(1.5,), quiet=True)"))
    assert lines[0].startswith("torch is being imported for ranks: ")
    assert any(re.fullmatch(r"Job of 2 ranks \(torch\), for \d s: 2 running", li) for li in lines)
    assert lines[-1] == ""  # all is well
    assert len(lines) == len(set(lines)), "the same was said twice"


@pytest.mark.parametrize(
    "wait",
    [
        "job.results()",
        "job.follow()",
        "job.wait_for_output(0, 'late')",
        "job.restart(); job.results()",
    ],
)
def test_every_way_of_waiting_says_so(kernel, wait):
    kernel.run("def late():\n    time.sleep(1.2)\n    print('late', flush=True)")
    lines = shown(kernel.run(f"job = distlab.launch(late, 1)\n{wait}")) or ["nothing"]
    assert any(re.search(r"Job of 1 rank, for \d s: 1 running", line) for line in lines)
    kernel.run("job.cancel()")


def test_short_waits_threads_and_those_who_do_not_want_it_show_nothing(kernel):
    assert shown(kernel.run("distlab.run(int, 2)")) == []
    off = "os.environ['DISTLAB_PROGRESS'] = 'off'; distlab.run(time.sleep, 1, args=(1,))"
    assert shown(kernel.run(f"{off}; os.environ['DISTLAB_PROGRESS'] = 'on'")) == []
    thread = "import threading; t = threading.Thread(target=distlab.run, args=(time.sleep, 1))"
    assert shown(kernel.run(f"{thread}; t._kwargs = {{'args': (1,)}}; t.start(); t.join()")) == []


def test_an_interrupt_is_one_line(kernel):
    stopped = "2 ranks were stopped"
    goes_on = "the job goes on: cancel() ends it"
    for code, outcome in (
        ("distlab.run(time.sleep, 2, args=(600,))", stopped),
        ("distlab.launch(time.sleep, 2, args=(600,)).results()", stopped),
        ("job = distlab.launch(time.sleep, 2, args=(600,)); job.follow()", goes_on),
        ("job.wait_for_output(0, 'never')", goes_on),
        ("with job: job.wait_for_output(0, 'never')", stopped),
    ):
        request = kernel.client.execute(code, stop_on_error=False)
        kernel.until(
            lambda m: (
                "2 running" in m["content"].get("data", {}).get("text/plain", "")
                and m["parent_header"]["msg_id"] == request  # noqa: B023
            )
        )
        kernel.manager.interrupt_kernel()
        error = kernel.until(
            lambda m: m["msg_type"] == "error" and m["parent_header"]["msg_id"] == request  # noqa: B023
        )
        line = f"KeyboardInterrupt: interrupted; {outcome}"
        assert error["content"]["traceback"] == [line]
        assert error["content"]["ename"] == "KeyboardInterrupt"
    assert "[5]" in str(kernel.run("distlab.run(lambda: 5, 1)")[-2]["content"])


def test_a_hundred_thousand_lines(kernel):
    many = "[print('line', i) for i in range(100_000)] and None"
    messages = kernel.run(f"job = distlab.launch(lambda: {many}, 1); job.follow()")
    lines = printed(messages).splitlines()
    assert lines[: 2 * MOST + 1] == [
        *(f"[rank 0] line {i}" for i in range(MOST)),
        f"[distlab] {100_000 - 2 * MOST:,} lines left out here: "
        "with job = launch(...), job.log(0) has all",
        *(f"[rank 0] line {i}" for i in range(100_000 - MOST, 100_000)),
    ]
    assert len([m for m in messages if m["msg_type"] == "stream"]) < 20
    kept = kernel.run("print(job.log(0).count('line'))")
    assert printed(kept) == "100000\n"


def test_an_interrupt_shows_what_came_last_and_a_second_one_says_no_more(kernel):
    kernel.run(
        "def stuck(n):\n"
        "    if distlab.rank_info().rank:\n"
        "        [print('step', i, flush=True) for i in range(n)]; time.sleep(600)\n"
    )
    code = "distlab.run(stuck, 2, args=(60,))"
    request = kernel.client.execute(code, stop_on_error=False)
    # Rank 0 has nothing more to say: the line is that of the one that runs.
    kernel.until(lambda m: "rank 1: step 59" in m["content"].get("data", {}).get("text/plain", ""))
    kernel.manager.interrupt_kernel()
    kernel.manager.interrupt_kernel()
    last: list[dict] = []
    error = kernel.until(
        lambda m: (
            last.append(m) or (m["msg_type"] == "error" and m["parent_header"]["msg_id"] == request)
        )
    )
    (line,) = error["content"]["traceback"]
    assert line.startswith("KeyboardInterrupt: interrupted; 1 rank was stopped")
    assert printed(last).splitlines() == [f"[rank 1] step {i}" for i in range(50, 60)]


def test_a_cell_that_launches_and_runs_twice_says_what_goes_on(kernel):
    code = "job = distlab.launch(time.sleep, 2, args=(600,))"
    said = [printed(kernel.run(code)) for _ in range(2)]
    words = "An earlier job of sleep still runs: distlab.jobs()[0].cancel() ends it.\n"
    assert said == ["", words]
    assert printed(kernel.run("distlab.jobs()[0].cancel(); print(distlab.jobs() == [job])")) == (
        "True\n"
    )
    assert printed(kernel.run("job.cancel()")) == ""
    several = "jobs = [distlab.launch(time.sleep, 1, args=(600,)) for _ in range(2)]"
    assert printed(kernel.run(several)) == "", "one run of a cell means to have several"
    kernel.run("[job.cancel() for job in jobs]")


def test_a_rank_that_prints_once_a_second_is_shown_as_it_comes(kernel):
    code = "[print(i, flush=True) or time.sleep(1.2 * (i > 8)) for i in range(15)] and None"
    messages = kernel.run(f"distlab.run(lambda: {code}, 10)")
    streams = [m["content"]["text"] for m in messages if m["msg_type"] == "stream"]
    assert sum("[rank 9] 1" in text for text in streams) > 3, "they came all at once"


def test_while_ranks_print_no_line_comes_between(kernel):
    code = "[print(i, flush=True) or time.sleep(0.4) for i in range(4)] and None"
    assert shown(kernel.run(f"distlab.run(lambda: {code}, 1)")) == []


def test_after_a_silence_the_line_comes_below_and_says_where_the_ranks_are(kernel):
    kernel.run("""
        from distlab.launching.kernel import display
        before = display._SILENCE, display._LONG
        display._SILENCE, display._LONG = 0.3, 1.0
        def hang(rank):
            time.sleep(0.8)
            print("step 0", flush=True)
            if os.environ["RANK"] == str(rank):
                time.sleep(2)
    """)
    messages = kernel.run("""
        distlab.run(hang, 3, args=(1,))
        display._SILENCE, display._LONG = before
    """)
    words = [m for m in messages if m["msg_type"] in ("display_data", "stream")]
    first, *printing, second = [m["content"].get("transient", {}).get("display_id") for m in words]
    assert first != second and printing and not any(printing)
    updates = [m["content"] for m in messages if m["msg_type"] == "update_display_data"]
    said = {name: [u["data"]["text/plain"] for u in updates if u["transient"]["display_id"] == name]
            for name in (first, second)}  # fmt: skip
    assert said[first][-1] == said[second][-1] == ""
    where = r"; seen at \d s: rank 1 at Cell In\[\d+\], line 8 in hang"
    assert any(re.search(where, line) for line in said[second])


def test_a_table_says_where_its_ranks_are_if_that_is_in_lines_of_the_readers(kernel):
    for target, where in ("lambda: time.sleep(600)", True), ("time.sleep, args=(600,)", False):
        kernel.run(f"""
            display._LONG = 1.0
            job = distlab.launch(nprocs=2, target={target})
            job
        """)
        tables = kernel.collect(3)
        kernel.run("job.cancel(); display._LONG = before[1]")
        said = "\n".join(m["content"].get("data", {}).get("text/plain", "") for m in tables)
        assert ": 2 running" in said
        found = re.search(
            r"\nseen at \d s: ranks 0 and 1 at Cell In\[\d+\], line \d+ in <lambda>", said
        )
        assert bool(found) == ("\nseen at " in said) == where


def test_the_line_of_a_job_that_goes_on_stays_true(kernel):
    kernel.run("job = distlab.launch(time.sleep, 2, args=(600,))")
    waited = "try: job.results(timeout=1.2)\nexcept distlab.JobTimeoutError: pass"
    before = shown(kernel.run(f"{waited}\n{waited}"))
    assert before and before[-1].endswith(": 2 running")
    after = kernel.run("job.cancel()")
    said = [m["content"] for m in after if m["msg_type"] == "update_display_data"]
    assert said[-1]["data"]["text/plain"].endswith(": 2 stopped")


def test_a_progress_bar_shows_and_keeps_its_rank(kernel):
    moving = (
        "[print(f'{i}/9', end='\\r', flush=True) or time.sleep(0.2) for i in range(9)] and None"
    )
    lines = shown(kernel.run(f"distlab.run(lambda: {moving}, 1)"))
    assert any(re.search(r": 1 running; rank 0: [3-8]/9$", line) for line in lines)
    bar = "print('1/2', end='\\r', flush=True); print('2/2 done\\n3/3', end='\\r')"
    code = f"exec({bar!r})"
    said = printed(kernel.run(f"distlab.run(lambda: {code}, 1)"))
    assert said == "[rank 0] 2/2 done\n[rank 0] 3/3\n"


def test_what_fits_is_shown_whole(kernel):
    few = f"[print('line', i) for i in range({2 * MOST})] and None"
    whole = printed(kernel.run(f"distlab.run(lambda: {few}, 1)")).splitlines()
    assert whole == [f"[rank 0] line {i}" for i in range(2 * MOST)]


def test_a_long_line_and_many_ranks_are_cut(kernel):
    wide = printed(kernel.run(f"distlab.run(lambda: print('y' * {10 * WIDTH}), 1)"))
    assert wide == f"[rank 0] {'y' * WIDTH}… ({10 * WIDTH:,} characters)\n"
    many = "[print(i) for i in range(300)] and None"
    said = printed(kernel.run(f"distlab.run(lambda: {many}, 40)")).splitlines()
    mine = [line for line in said if "rank 39]" in line or "log(39)" in line]
    assert mine == [
        *(f"[rank 39] {i}" for i in range(LEAST)),
        "[distlab] 280 lines left out here: with job = launch(...), job.log(39) has all",
        *(f"[rank 39] {i}" for i in range(300 - LEAST, 300)),
    ]
    assert len(said) == 40 * (2 * LEAST + 1)


def test_the_newest_line_is_shown_when_no_more_are_printed(kernel):
    code = "[print(i, flush=True) for i in range(70)]; time.sleep(7)"
    messages = kernel.run(f"def steady():\n    {code}\ndistlab.run(steady, 2)")
    assert any(re.search(r": 2 running;.* rank 0: 69$", line) for line in shown(messages))
    mine = [line for line in printed(messages).splitlines() if line.startswith("[rank 0]")]
    assert mine == [f"[rank 0] {i}" for i in range(70)], "at the end they come all the same"
