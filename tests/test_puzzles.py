"""Puzzles: references and naive solutions, errors with rank and line, and what is shown."""

import functools
import os
import re
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import _puzzle_solutions as solutions
import pytest
from _puzzle_table import SOLUTIONS, line, rows
from _tools import ROOT
from jupyter_client.manager import start_new_kernel

from distlab import puzzles


def told(number, solve):
    """What a check says of a solution that does not pass."""
    result = puzzles.check(number, solve)
    assert not result.passed
    assert result.message in repr(result)
    return result.message


def line_of(text):
    """The number of the line of this file that ends with a mark."""
    lines = Path(__file__).read_text().splitlines()
    (number,) = (i for i, line in enumerate(lines, 1) if line.endswith(f"# {text}"))
    return number


# Solutions.


@pytest.mark.parametrize("number", SOLUTIONS)
def test_solutions_have_the_scores_and_stars_of_the_documentation(number):
    documented = (ROOT / "docs" / "puzzles.md").read_text()
    found = [line(row) for row in rows(number)]
    assert [row for row in documented.splitlines() if row.startswith(f"| {number} |")] == found
    for kind, stars in (("reference", "2"), ("naive", "-"), ("better", "3")):
        ends = {row.split(" | ")[-1] for row in found if f"({kind})" in row}
        assert ends == {f"{stars} |"}
    result = puzzles.check(number, SOLUTIONS[number][0])
    assert result.scores == puzzles.PUZZLES[number].reference
    for naive in SOLUTIONS[number][1]:
        assert told(number, naive).startswith("The results are right, but over budget:\n")


@pytest.mark.parametrize("number", SOLUTIONS)
def test_a_reference_is_right_in_real_processes(number):
    for size in puzzles.PUZZLES[number].budgets:
        real = puzzles.on_ranks(number, SOLUTIONS[number][0], size)
        assert real.right, real
        assert 0 < real.difference < 1e-5


def test_where_the_ticks_went_adds_up_and_is_the_same_at_each_run():
    over = puzzles.check(3, solutions.whole_batch)
    (words,) = (line for line in over.message.splitlines() if "the ticks are" in line)
    numbers = re.findall(r"([\d,.]+) for [a-z_]+ \(line", words)
    assert sum(map(float, numbers)) == pytest.approx(602.25, abs=0.03)
    again = puzzles.check(3, solutions.whole_batch)
    assert (repr(over), over._repr_html_()) == (repr(again), again._repr_html_())


# What is wrong, with rank and line.


SLIPS = [
    (2, lambda me: me.compute("matmul", me.x), "no operation 'matmul'. It has: forward, loss,"),
    (2, lambda me: me.compute("update", me.x), "update(w, dw) takes 2 tensors, not 1."),
    (2, lambda me: me.compute("update", me.x, me.x), "update: the same tensor is given twice"),
    (2, lambda me: me.compute("forward", me.x, me.x), "not go together: w (128, 32), x (128, 32)"),
    (2, lambda me: me.keep("weight", me.x), "this puzzle wants weights, not 'weight'."),
    (2, lambda me: me.keep(me.x, "weights"), "takes a list of tensors, not 'weights' of type str"),
    (2, lambda me: [me.keep("weights", me.x) for _ in "ab"], "'weights' was kept before, in line"),
    (2, lambda me: me.receive(1), "does not allow me.receive"),
    (2, lambda me: me.x + me.x, "holds no numbers: use me.add"),
    (2, lambda me: me.add(me.x, None), "me.add takes tensors, not None"),
    (2, lambda me: me.split(me.x, 3), "128 rows do not divide into 3 equal parts"),
    (2, lambda me: me.split(me.x, [3, 4]), "parts of [3, 4] rows are not the 128 rows"),
    (2, lambda me: me.split(me.x, 2.0), "me.split takes a number of parts, or a list of rows, not"),
    (2, lambda me: me.join([]), "takes a list of tensors, not [] of type list."),
    (9, lambda me: me.join([me.q, me.compute("attend", me.q, me.k, me.v)]), "only the n"),
    (9, lambda me: me.compute("attend", me.q, *[me.split(t, [0, 64])[0] for t in (me.k, me.v)]),
     "attend: k and v have no rows"),
    (2, lambda me: me.all_reduce(me.x, group="tensor"), "whole numbers, not 't' of type str."),
    (2, lambda me: me.all_reduce(me.x, group=[0, 0]), "must name this rank, 0, and others once"),
    (5, lambda me: me.all_reduce(me.split(me.x, [1, 15])[0]), "1 rows do not divide into 2 parts"),
    (1, lambda me: me.send(me.gradient, 1), "not <tensor from given gradient, shape (48, 64)> of"),
    (1, lambda me: me.send(me.rank, me.gradient), "a rank has no messages for itself."),
    (2, lambda me: me.recieve(0), "has no attribute 'recieve'. Did you mean 'receive'?"),
    (2, lambda me: me.quite_different, "It has: rank, size, weights, x, target, compute"),
    (1, lambda me: ThreadPoolExecutor().submit(me.free).result(), "me works in the thread"),
    (1, lambda me: sys.exit(3), "SystemExit: 3"),
    (1, None, "Every rank: TypeError: 'NoneType' object is not callable"),
    (1, lambda me: None, 'Rank 0 has returned without me.keep("sum", ...).'),
]  # fmt: skip


@pytest.mark.parametrize(("number", "solve", "words"), SLIPS, ids=[words for *_, words in SLIPS])
def test_a_slip_has_an_answer_that_helps(number, solve, words):
    message = told(number, solve)
    heading, *_ = message.split("\ntest_puzzles.py, line ")  # the line has the words as well
    assert words in heading
    assert len(message) < 6_000


def test_the_ranks_the_heading_and_the_line_of_an_error():
    def some(me):
        parts = me.split(me.gradient, [16, 32])
        if me.rank in (1, 3):
            me.add(  # wrong shapes, on some ranks
                *parts,
            )

    heading, place, *_ = told(1, some).splitlines()
    words = "add: these shapes do not go together: a (16, 64), b (32, 64). It takes a (r, c), b (r,"
    assert heading.startswith(f"With 4 ranks: Ranks 1 and 3: {words}")
    assert place.startswith(f"test_puzzles.py, line {line_of('wrong shapes, on some ranks')}: ")
    every = "With 4 ranks: Every rank: ZeroDivisionError: division by zero\ntest_puzzles.py, line "
    assert told(1, lambda me: 1 / (me.size // 9)).startswith(every)


def test_a_tensor_that_is_gone_or_another_ranks(monkeypatch):
    monkeypatch.setattr(solutions, "SHELF", {}, raising=False)  # a module that ranks share
    shelf = {}

    def after_add(me):
        a, b = me.split(me.gradient, 2)
        me.add(a, b)  # takes its place
        me.add(a, b)

    def others(me):
        solutions.SHELF[me.rank] = me.gradient
        me.send((me.rank + 1) % 4, solutions.SHELF[0])

    def own_copy(me):
        shelf[me.rank] = me.gradient
        assert len(shelf) == 1
        solutions.ring(me)

    assert f"add (line {line_of('takes its place')}) has taken its place" in told(1, after_add)
    assert "it was freed" in told(1, lambda me: (me.free(me.gradient), me.send(1, me.gradient)))
    assert "This tensor is rank 0's, not rank 1's: only send and the" in told(1, others)
    assert puzzles.check(1, own_copy).passed
    assert not shelf


def attends(me):
    me.keep("out", me.compute("finish", me.compute("attend", me.q, me.k, me.v)))


def twice(me):
    total = me.split(me.gradient, 1)[0]
    me.send((me.rank + 1) % me.size, total)
    me.send((me.rank + 1) % me.size, total)
    theirs = [me.receive((me.rank - 1) % me.size) for _ in range(2)]
    me.keep("sum", me.add(me.add(total, theirs[0]), theirs[1]))


def in_disorder(me):
    parts = []
    keep = me.keep
    me.keep = lambda name, whole: parts.extend(me.split(whole, me.size))
    solutions.ring(me)
    keep("sum", me.join(parts[1:] + parts[:1]))


def alone(solve, **changes):
    def solution(me):
        vars(me).update(changes)
        me.all_reduce = lambda dw: me.split(dw, 1)[0]
        me.reduce_scatter = lambda dw: me.split(dw, me.size)[me.rank]
        solve(me)

    return solution


WRONG = [
    (1, lambda me: me.keep("sum", me.gradient),
     "sum of rank 0 has the gradients of rank 0 and lacks those of ranks 1, 2 and 3."),
    (1, twice, "has the gradients of rank 0 and those of rank 3 twice and lacks those of ranks 1 "),
    (1, in_disorder, "Its rows 0 to 11 have the numbers that belong in rows 12 to 23."),
    (1, lambda me: me.keep("sum", me.split(me.gradient, 2)[0]),
     "sum of rank 0 has the shape (24, 64); it must be (48, 64)."),
    (2, alone(solutions.whole_batch),
     "weights[0] of rank 0 has the gradients of rank 0 and lacks those of rank 1."),
    (2, lambda me: me.keep("weights", me.weights), "weights[0] of rank 0 is what it was at the st"),
    (2, lambda me: me.keep("weights", me.weights[:3]), "must be a list of 4 tensors, not 3."),
    (4, alone(solutions.zero2), "Its rows 0 to 31 have the gradients of rank 0 and lack th"),
    (7, alone(solutions.gpipe, count=7), "gradients of micro-batches 0, 1, 2, 3, 4, 5 and 6 a"),
    (9, attends, "out of rank 0 has the keys and values of rank 0 and lacks those of ra"),
    (10, lambda me: me.keep("out", me.tokens), "out[0] of rank 0 has numbers of me.tokens as"),
]  # fmt: skip


@pytest.mark.parametrize(("number", "solve", "words"), WRONG, ids=[words for *_, words in WRONG])
def test_a_wrong_result_is_told_in_terms_of_what_is_in_it(number, solve, words):
    heading, place, *_ = told(number, solve).splitlines()
    assert words in heading
    assert place.startswith(("test_puzzles.py, line ", "_puzzle_solutions.py, line "))
    assert heading in puzzles.check(number, solve)._repr_html_().replace("&#x27;", "'")


# Ranks that wait for ever.


def test_a_deadlock_tells_of_every_rank_and_is_drawn():
    def solve(me):
        received = me.receive((me.rank - 1) % me.size)
        me.add(me.gradient, received)  # waits
        me.send((me.rank + 1) % me.size, me.gradient)

    result = puzzles.check(1, solve)
    assert "Deadlock: every rank waits for another." in result.message
    for rank in range(4):
        assert f"Rank {rank}, test_puzzles.py, line {line_of('waits')}: " in result.message
        assert f", and rank {(rank - 1) % 4} has not sent it." in result.message
    (picture,) = alternatives(result)
    assert picture.endswith("; to the end waits: rank 0, rank 1, rank 2, rank 3")


def left_out(me):
    if me.rank == 1:
        me.weights[0] = me.all_reduce(me.weights[0])
    me.compute("forward", me.all_reduce(me.weights[1]), me.x)  # the second of rank 1


def other_groups(me):
    group = me.groups["tensor"] if me.rank == 0 else None
    me.split(me.all_reduce(me.a, group=group), 1)  # over what


def crossed(me):
    me.receive(1) if me.rank == 0 else None
    me.all_reduce(me.split(me.b, 2)[0], group=[0, 1]) if me.rank < 2 else None  # then this
    me.send(0, me.a) if me.rank == 1 else None


STUCK = [
    (1, lambda me: me.rank and me.receive(0).shape, "No rank can go on.\nRank 0 has returned."),
    (1, lambda me: [me.receive(r) for r in range(4) if r != me.rank],
     "but rank 0's receive from rank 1 is not over, and rank 1 has not sent it."),
    (1, lambda me: me.rank or me.send(1, me.gradient),
     "but rank 0's send to rank 1 is not over, and rank 1 has not received it."),
    (5, lambda me: (me.reduce_scatter if me.rank else me.all_reduce)(me.x),
     "Collectives that do not match.\nRank 0, .*\n.*all_reduce of .16, 64.\nRank 1, .*\n"
     ".*reduce_scatter of .16, 64."),
    (2, left_out, "forward waits for all_reduce .line {the second of rank 1}.. all_reduce over "
     "ranks 0 and 1 was called by rank 1 in line {the second of rank 1}, but not by rank 0."),
    (11, other_groups, "Rank 0, .*\n.*all_reduce over ranks 0 and 1 was called by rank 0 in line "
     "{over what}, but not by rank 1.\nRank 1, .*all_reduce over ranks 0, 1, 2 and 3 was"),
    (11, crossed, "but rank 0's receive from rank 1 is not over. Rank 1 sends in the order of its "
     "calls: all_reduce .line {then this}. is first."),
]  # fmt: skip


@pytest.mark.parametrize(("number", "solve", "words"), STUCK, ids=[words for *_, words in STUCK])
def test_why_no_rank_can_go_on(number, solve, words):
    pattern = re.sub(r"{(.*?)}", lambda mark: str(line_of(mark[1])), words).replace("(", ".")
    assert re.search(pattern.replace("\n.*", "\n[^\n]*"), told(number, solve), re.DOTALL)


def loop(me):
    step = 0
    while True:
        step += 1  # ran most


def stubborn(me):
    while True:
        for _ in range(9**9):
            try:
                me.free()
            finally:
                continue  # noqa: B012


def sends(me):
    while True:  # again
        me.send((me.rank + 1) % me.size, me.gradient)


def bare(me):
    while True:
        try:  # noqa: SIM105
            me.send(9, me.gradient)  # refused again and again
        except:  # noqa: E722, S110
            pass


def hoards(me):
    held = [me.k]
    while True:
        held.append(me.all_gather(held[-1]))


def naps(me):
    me.free()
    while True:
        time.sleep(0.05)  # between naps


ENDLESS = [
    (1, loop, "With 4 ranks: Rank 0: It has run 500,000 lines and called me 0 times", "ran most"),
    (1, stubborn, "Is there a loop that never ends?", None),
    (1, naps, "It has not called me for 1.5 seconds.", "between naps"),
    (1, sends, "lines and called me 996 times, and has not come to its end. Is there a l", "again"),
    (1, bare, "send: there is no rank 9", "refused again and again"),
    (9, hoards, "It has made more than 10,000,000 bytes. Is there a loop that never ends?", None),
    (1, lambda me: threading.Event().wait(), "It has not called me for 1.5 seconds.", None),
]


@pytest.mark.parametrize(("number", "solve", "words", "mark"), ENDLESS)
def test_what_never_ends_is_ended(number, solve, words, mark):
    message = told(number, solve)
    assert words in message
    assert mark is None or f"test_puzzles.py, line {line_of(mark)}: " in message
    threads = [each.ident for each in threading.enumerate() if each.name.startswith("rank ")]
    lines = [sys._current_frames()[ident].f_code.co_filename for ident in threads]
    assert lines == [threading.__file__] * len(lines)  # what catches all that ends it stands still
    assert puzzles.check(1, solutions.ring).passed


def test_an_import_that_takes_long_is_no_loop(tmp_path, monkeypatch):
    (tmp_path / "slow_to_import.py").write_text("import time\ntime.sleep(2.5)\n")
    monkeypatch.syspath_prepend(tmp_path)

    def solve(me):
        import slow_to_import  # noqa: F401

        solutions.ring(me)

    assert puzzles.check(1, solve).passed


INTERRUPTED = """
import json, threading, time
from distlab import puzzles
def endless(me):
    if me.rank == 1:
        open(PIPE, "w").close()  # the test waits for that
        while True:
            try:
                while True:
                    time.sleep(0)
            except BaseException:
                pass
    me.receive(1).shape
for _ in range(2):
    try:
        puzzles.check(1, endless)
    except KeyboardInterrupt:
        names = [each.name for each in threading.enumerate() if "rank" in each.name]
        print("SAY" + json.dumps(["interrupted", names]), flush=True)
print("SAY" + json.dumps(puzzles.check(1, lambda me: None).message), flush=True)
"""


def test_a_notebooks_stop_button_ends_a_check(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    manager, client = start_new_kernel()
    said = ""
    try:
        client.execute(f"PIPE = {str(pipe)!r}\n{INTERRUPTED}")
        for _ in range(2):
            pipe.read_text()
            manager.interrupt_kernel()
        while "returned without me.keep" not in said:
            content = client.get_iopub_msg(timeout=60)["content"]
            said += content.get("text", "") + content.get("evalue", "")
        assert said.count('SAY["interrupted", []]') == 2
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


# What is shown.


def alternatives(shown):
    """What the pictures tell those who don't see them."""
    return re.findall(r'<img src="[^"]*" alt="(.*?)"', shown._repr_html_())


def test_a_result_shows_itself_without_scripts():
    result = puzzles.check(3, solutions.whole_batch)
    html = result._repr_html_()
    assert "over budget" in html
    assert not re.search("<script|<style|<link", html)
    assert re.search(">602.25</td>.*?>490</td>", html)
    assert len(alternatives(result)) == 1


@pytest.mark.parametrize("number", puzzles.PUZZLES)
def test_a_task_shows_itself(number):
    puzzle = puzzles.show(number)
    assert puzzle.sentence in str(puzzle)
    assert all(f"\nme.{call}(" in str(puzzle) for call in (*puzzle.calls, "free"))
    assert len(alternatives(puzzle)) == 1
    for rank, counts in enumerate(puzzle.task(6).given if number == 10 else []):
        assert re.search(f"rank {rank} +{' +'.join(map(str, counts['counts'][rank]))}", str(puzzle))


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (1, "goal, rank 3: sum"),
        (11, "start, rank 7: a 3, b 3, targets 6"),
    ],
)
def test_the_picture_of_a_task_tells_what_is_different(number, words):
    (picture,) = alternatives(puzzles.show(number))
    assert words in picture.replace("&#x27;", "'")


LOCK = threading.Lock()


def test_wrong_arguments(subtests):
    for call, words in (
        (lambda: puzzles.show("1"), "There is no puzzle '1', only 1 to 11, and yours"),
        (lambda: puzzles.check(1, functools.partial(print, LOCK)), "that can't be made"),
        (lambda: puzzles.Puzzle(title="", sentence="", draw=None, calls=["sned"], budgets={}),
         "There is no call 'sned'. There are: add, split"),
    ):  # fmt: skip
        with subtests.test(words), pytest.raises((TypeError, ValueError), match=re.escape(words)):
            call()


def test_a_puzzle_of_ones_own():
    def draw(random, size):
        xs = [random.standard_normal((8, 4)) for _ in range(size)]
        return [{"x": x} for x in xs], [{"last": xs[-1]} for _ in xs]

    def relay(me):
        x = me.receive(me.rank + 1) if me.rank < me.size - 1 else me.x
        if me.rank:
            me.send(me.rank - 1, x)
        me.keep("last", x)

    mine = puzzles.Puzzle(
        title="Pass it on",
        sentence="Everybody wants what the last rank has.",
        draw=draw,
        calls=["send", "receive"],
        budgets={3: puzzles.Score(2.5, 256, 128)},
    )
    result = puzzles.check(mine, relay)
    assert result.stars == 2
    assert result.scores == mine.budgets
    assert puzzles.on_ranks(mine, relay).right
    assert "last of rank 0 has numbers of me.x" in told(mine, lambda me: me.keep("last", me.x))
    assert "Pass it on ★★☆" in " ".join(str(puzzles.stars()).split())
    assert "start, rank 0: x 0" in alternatives(mine)[0]


def test_a_loop_that_prints_does_not_flood_the_page(capsys):
    def prints(me):
        print("one line")
        while True:
            print(1_000 * "again")

    assert "Is there a loop that never ends?" in told(1, prints)
    shown = capsys.readouterr().out
    assert shown.startswith("one line\nagain")
    assert shown.endswith("\n(More was printed.)\n")
    assert len(shown) < 51_000
