"""Puzzles: references and naive solutions, errors with rank and line, and what is shown."""

import base64
import functools
import itertools
import re
import signal
import socket
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import _puzzle_solutions as solutions
import numpy as np
import pytest
from _processes import Kernel, wait_gone
from _tools import ROOT

from distlab import puzzles
from distlab.puzzles import checking, drawing, results, standings
from distlab.puzzles.messages import Call, SolverLine
from distlab.puzzles.tasks import RandomData
from distlab.puzzles.world import World

REFERENCES = {
    1: solutions.ring,
    2: solutions.accumulate,
    3: solutions.overlap,
    4: solutions.zero2,
    5: solutions.zero3,
    6: solutions.column_row,
    7: solutions.one_forward_one_backward,
    8: solutions.recompute,
    9: solutions.ring_attention,
    10: solutions.weights_to_tokens,
    11: solutions.three_d,
}
NAIVE = [
    (1, solutions.everybody_to_everybody, {"time", "memory", "sent"}),
    (1, solutions.to_the_first_and_back, {"time", "memory", "sent"}),
    (2, solutions.whole_batch, {"memory"}),
    (2, solutions.reduce_each_piece, {"sent", "time"}),
    (3, solutions.whole_batch, {"time"}),
    (4, solutions.zero1, {"memory", "time"}),
    (4, solutions.all_reduce_then_slice, {"sent", "time"}),
    (5, solutions.gather_all_first, {"memory"}),
    (5, solutions.gather_when_needed, {"time"}),
    (6, solutions.gather_weights, {"time", "memory", "sent"}),
    (7, solutions.gpipe, {"memory"}),
    (7, solutions.one_at_a_time, {"time"}),
    (8, solutions.whole_batch, {"memory"}),
    (8, solutions.recompute_from_the_start, {"time"}),
    (9, solutions.gather_keys, {"memory", "time"}),
    (9, solutions.ring_without_overlap, {"time"}),
    (10, solutions.tokens_to_experts, {"time", "memory", "sent"}),
    (10, solutions.all_experts_everywhere, {"time", "memory", "sent"}),
    (11, solutions.three_d_gpipe, {"memory"}),
    (11, solutions.three_d_one_at_a_time, {"time"}),
    (11, solutions.three_d_reduce_each, {"memory", "sent", "time"}),
]
BETTER = [
    (1, solutions.halving_and_doubling),
    (2, solutions.accumulate_with_overlap),
    (3, solutions.without_target(solutions.overlap)),
    (4, solutions.without_target(solutions.zero2)),
    (5, solutions.without_target(solutions.zero3)),
    (6, solutions.dx_first),
    (7, solutions.inputs_first),
    (8, solutions.recompute_but_the_last),
    (9, solutions.one_message),
    (10, solutions.own_tokens_first),
    (11, solutions.three_d_early),
]


def missed(number, result):
    """Which budgets a solution misses, with any number of ranks."""
    budgets = puzzles.PUZZLES[number].budgets
    return {
        name
        for size, score in result.scores.items()
        for name in ("time", "memory", "sent")
        if getattr(score, name) > getattr(budgets[size], name)
    }


def test_references_pass_with_the_score_that_is_stated(subtests):
    for number, solve in REFERENCES.items():
        with subtests.test(number):
            result = puzzles.check(number, solve)
            assert result.scores == puzzles.PUZZLES[number].reference, result.message
            assert result.stars == 2


def test_naive_solutions_are_right_and_miss_their_budgets(subtests):
    for number, solve, budgets in NAIVE:
        with subtests.test(solve.__name__, puzzle=number):
            result = puzzles.check(number, solve)
            assert missed(number, result) == budgets, result
            assert result.message.startswith("The results are right, but over budget")
            assert not result.passed


def test_what_is_better_than_the_reference_has_three_stars(subtests):
    for number, solve in BETTER:
        with subtests.test(solve.__name__, puzzle=number):
            assert puzzles.check(number, solve).stars == 3


def test_stubs_are_short_and_run_and_fail(subtests):
    for number, puzzle in puzzles.PUZZLES.items():
        with subtests.test(number):
            assert len(puzzle.stub.splitlines()) <= 10
            names = {}
            exec(puzzle.stub, names)
            result = puzzles.check(number, names["solve"])
            assert not result.passed
            assert "Error" not in result.message
            assert len(puzzle.budgets) == len(puzzle.reference) == 2
            for size, budget in puzzle.budgets.items():
                reference = puzzle.reference[size]
                assert all(getattr(budget, n) >= getattr(reference, n) for n in ("time", "memory"))


def test_scores_and_words_are_the_same_at_each_run():
    one, other = (puzzles.check(7, solutions.gpipe) for _ in range(2))
    assert repr(one) == repr(other)
    assert one._repr_html_() == other._repr_html_()


# What is wrong, with rank and line.


def line_of(text):
    """The number of the line of this file that ends with a mark."""
    lines = Path(__file__).read_text().splitlines()
    (number,) = (i for i, line in enumerate(lines, 1) if line.endswith(f"# {text}"))
    return number


def told(number, solve):
    result = puzzles.check(number, solve)
    assert not result.passed
    assert result.message in repr(result)
    return result.message


def test_a_wrong_shape():
    def solve(me):
        parts = me.split(me.gradient, [16, 32])
        if me.rank == 1:
            me.add(*parts)  # wrong shape
        me.keep("sum", me.join(parts))

    message = told(1, solve)
    assert f"With 4 ranks: Rank 1, test_puzzles.py, line {line_of('wrong shape')}: " in message
    assert "add: the tensors have the shapes (16, 64) and (32, 64)" in message


def test_an_operation_with_shapes_that_do_not_go_together():
    message = told(2, lambda me: me.compute("forward", me.x, me.x))
    assert "forward: these shapes do not go together: w (128, 32), x (128, 32)" in message
    assert "Every rank" in message


def test_an_unknown_operation_result_and_call(subtests):
    for solve, words in (
        (lambda me: me.compute("matmul", me.x), "no operation 'matmul'. It has: forward, loss,"),
        (lambda me: me.compute("update", me.x), "update(w, dw) takes 2 tensors, not 1."),
        (lambda me: me.keep("weight", me.x), "wants no 'weight'. It wants: weights."),
        (lambda me: me.receive(1), "does not allow me.receive"),
        (lambda me: me.x + me.x, "holds no numbers: use me.add"),
        (lambda me: me.add(me.x, 1), "me.add takes tensors, not int 1"),
        (lambda me: me.split(me.x, 3), "128 rows do not divide into 3 equal parts"),
        (lambda me: me.reciev(1), "has no attribute 'reciev'"),
    ):
        with subtests.test(words):
            assert words in told(2, solve)


def unpacked(me):
    _, dw = me.compute("forward", me.weights[0], me.x)
    return dw


def other_rank(me):
    me.rank = 3


def deep_copy(me):
    import copy

    copy.deepcopy(me.x)


def test_slips_have_an_answer_that_helps(subtests):
    for solve, words in (
        (lambda me: me.recieve(0), "has no attribute 'recieve'. Did you mean me.receive?"),
        (lambda me: me.recv(0), "Did you mean me.receive?"),
        (lambda me: me.quite_different, "This puzzle gives: me.weights, "),
        (lambda me: me.keep("weights"), "me.keep takes a name and a tensor or a list: me.keep('w"),
        (lambda me: me.keep(me.x), "me.keep takes the name of a result first, not "),
        (unpacked, "This is one tensor, from forward, and not several."),
        (lambda me: me.add(me.x, None), "me.add takes tensors, not None."),
        (lambda me: me.split(me.x, 10**400), "at most nine digits, not one of more than 300."),
        (other_rank, "me.rank cannot be changed."),
        (deep_copy, "A tensor is a handle and cannot be copied."),
    ):
        with subtests.test(words):
            assert words in told(2, solve)


def test_the_line_of_an_error_in_the_solvers_own_code():
    def solve(me):
        me.free(me.gradient)
        return 1 / (me.rank // 9)  # divides

    message = told(1, solve)
    assert f"line {line_of('divides')}: return 1 / (me.rank // 9)" in message
    assert "ZeroDivisionError" in message


def test_of_a_long_call_the_first_line_is_told():
    def solve(me):
        me.add(  # begins here
            me.gradient,
            me.gradient,
        )

    assert f"line {line_of('begins here')}: me.add(" in told(1, solve)


def test_a_tensor_that_is_gone(subtests):
    def after_add(me):
        a, b = me.split(me.gradient, 2)
        me.add(a, b)  # takes its place
        me.add(a, b)

    def after_free(me):
        me.free(me.gradient)
        me.send(1 - me.rank % 2, me.gradient)

    line = line_of("takes its place")
    for solve, words in (
        (after_add, f"add (line {line}) has taken its place"),
        (after_free, "it was freed"),
    ):
        with subtests.test(solve.__name__):
            assert words in told(1, solve)


def test_a_deadlock_tells_of_every_rank():
    def solve(me):
        received = me.receive((me.rank - 1) % me.size)
        me.add(me.gradient, received)  # waits
        me.send((me.rank + 1) % me.size, me.gradient)

    message = told(1, solve)
    assert "Deadlock: every rank waits for another." in message
    for rank in range(4):
        assert f"Rank {rank}, test_puzzles.py, line {line_of('waits')}: " in message
        assert f"receive from rank {(rank - 1) % 4}" in message


def test_the_picture_of_a_deadlock_shows_who_waits():
    def solve(me):
        me.add(me.gradient, me.receive(me.rank ^ 1)) if me.rank < 2 else None

    (picture,) = [
        attributes for tag, attributes in read(puzzles.check(1, solve)._repr_html_()).tags
        if tag == "img"
    ]  # fmt: skip
    assert picture["alt"].endswith("; to the end waits: rank 0, rank 1")
    drawn = base64.b64decode(picture["src"].partition(",")[2]).decode()
    assert drawn.count("+ ?") == 2  # buffers of a size that is not known
    wide = re.findall(r'width="([\d.]+)"[^>]*dasharray="2 2"', drawn)
    assert len([width for width in wide if float(width) > 700]) == 2


def quick(number, solve, words):
    """Whether what is wrong is told within two seconds; another try where the machine was busy."""
    for _ in range(5):
        began = time.monotonic()
        assert words in told(number, solve)
        if time.monotonic() - began < 2:
            return True
    return False


def test_a_deadlock_is_told_within_two_seconds():
    puzzles.warm_up()

    def solve(me):
        me.add(me.gradient, me.receive(me.rank ^ 1))

    assert quick(1, solve, "waits for receive")


def test_a_rank_that_returns_while_others_wait():
    def solve(me):
        if me.rank == 0:
            return
        me.keep("sum", me.add(me.gradient, me.receive(0)))

    message = told(1, solve)
    assert "No rank can go on.\nRank 0 has returned.\nRank 1, " in message


def test_of_several_messages_that_nobody_sends_the_lowest_ranks_is_told():
    def solve(me):
        for other in range(me.size):
            if other != me.rank:
                me.receive(other)
        me.keep("sum", me.gradient)

    for _ in range(3):
        assert "With 4 ranks: Rank 0, " in (message := told(1, solve))
        assert "It receives from rank 1, which sends it nothing more" in message


def test_much_that_is_printed_is_not_read_to_its_end():
    def solve(me):
        print("\n".join("x" * 80 for _ in range(20_000 if me.rank else 3)))

    result = puzzles.check(1, solve)
    assert all(len(head.text) < 70_000 for head in result._printed[4])
    lines = repr(result).splitlines()
    lines = lines[lines.index("Printed with 4 ranks:") + 1 :]
    assert lines[:3] == [f"[0] {80 * 'x'}"] * 3
    for rank in (1, 2, 3):
        own = [line for line in lines if line.startswith(f"[{rank}] ")]
        assert len(own) in (6, 7)
        assert "... and more, 1,554,464 bytes after the first 65,536" in own[-1]


def test_a_rank_whose_process_ends():
    def solve(me):
        import os

        me.free(me.gradient)  # the last call
        if me.rank == 2:
            os._exit(0)

    message = told(1, solve)
    assert f"Rank 2, test_puzzles.py, line {line_of('the last call')}" in message
    assert "its process ended before solve returned" in message


def test_an_interrupted_check_stops_its_ranks():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        code = f"""
from distlab import puzzles
from distlab.puzzles import checking
checking.PATIENCE = checking.Patience(600.0, 600.0, 600.0)
def endless(me):
    import os, socket
    with socket.create_connection({server.getsockname()!r}) as test:
        test.sendall(str(os.getpid()).encode())
    while True:
        pass
try:
    puzzles.check(1, endless)
except KeyboardInterrupt as error:
    say(str(error))
say(puzzles.check(1, lambda me: None).message)
"""
        with Kernel(code) as kernel:
            ranks = []
            for _ in range(sum(puzzles.PUZZLES[1].sizes)):
                with server.accept()[0] as rank:
                    ranks.append(int(rank.makefile().read()))
            kernel.process.send_signal(signal.SIGINT)
            assert kernel.heard() == "interrupted; 10 ranks were stopped"
            assert wait_gone(ranks, 10) == []
            assert "returned without me.keep" in kernel.heard()


def test_the_first_rank_that_leaves_is_named():
    def solve(me):
        if me.rank == 1:
            import os

            os._exit(3)
        me.receive(1).shape  # noqa: B018 - waits

    for _ in range(3):
        assert told(1, solve).startswith("With 4 ranks: Rank 1: The rank has left")


def test_large_and_empty_operands_of_attend():
    def all_of_q(me):
        q, k, v = (me.all_gather(t) for t in (me.q, me.k, me.v))
        out = me.compute("finish", me.compute("attend", q, k, v))
        me.keep("out", me.split(out, me.size)[me.rank])

    def no_keys(me):
        k, v = me.split(me.k, [0, 64])[0], me.split(me.v, [0, 64])[0]
        me.compute("attend", me.q, k, v)

    assert puzzles.check(9, all_of_q).message.startswith("The results are right")
    assert "attend: k and v have no rows" in puzzles.check(9, no_keys).message


def test_odd_arguments_are_told_in_words(subtests):
    import numpy as np

    def unprintable(me):
        raise ValueError("\udc80")

    def long(me):
        raise ValueError("x" * 20_000_000)

    cases = {
        "a float": (lambda me: me.split(me.gradient, 2.0), "not float 2.0"),
        "no parts": (lambda me: me.join([]), "takes a list of tensors, not an empty one"),
        "long name": (lambda me: me.keep("x" * 20_000_000, me.gradient), "not 20,000,000 letters"),
        "surrogate": (unprintable, "ValueError: ?"),
        "long error": (long, "xxx ... xxx"),
        "exit": (lambda me: exit(), "test_puzzles.py, line"),
        "numpy's integer": (lambda me: me.split(me.gradient, np.int64(4)), "without me.keep"),
    }
    for name, (solve, words) in cases.items():
        with subtests.test(name):
            assert words in puzzles.check(1, solve).message


def test_sys_exit_is_told():
    assert "Rank 3" in (message := told(1, lambda me: sys.exit(3) if me.rank == 3 else None))
    assert "SystemExit" in message


def test_collectives_that_do_not_match(subtests):
    def kinds(me):
        me.made = me.reduce_scatter(me.x) if me.rank == 1 else me.all_reduce(me.x)

    def shapes(me):
        x = me.split(me.x, 2)[0] if me.rank == 1 else me.x
        me.all_reduce(x)

    for solve, words in ((kinds, "reduce_scatter of (16, 64)"), (shapes, "all_reduce of (8, 64)")):
        with subtests.test(solve.__name__):
            message = told(5, solve)
            assert "With 2 ranks: Collectives that do not match.\nRank 0, " in message
            assert "\nRank 1, test_puzzles.py, line " in message
            assert words in message


def test_a_collective_that_a_rank_leaves_out():
    def solve(me):
        if me.rank == 1:
            me.weights[0] = me.all_reduce(me.weights[0])
        last = me.all_reduce(me.weights[1])  # the second of rank 1
        me.compute("forward", last, me.x)

    message = told(2, solve)
    line = line_of("the second of rank 1")
    assert "No rank can go on.\nRank 0 has returned.\nRank 1, test_puzzles.py, line" in message
    assert f"forward waits for all_reduce (line {line})." in message
    assert f"all_reduce was called by rank 1 in line {line}, but not by rank 0." in message


def test_a_message_that_nobody_receives_or_sends(subtests):
    def unreceived(me):
        if me.rank == 0:
            me.send(1, me.gradient)
        me.keep("sum", me.gradient)

    def unsent(me):
        if me.rank == 0:
            me.receive(3)
        me.keep("sum", me.gradient)

    for solve, words in (
        (unreceived, "which never receives it"),
        (unsent, "sends it nothing more"),
    ):
        with subtests.test(solve.__name__):
            message = told(1, solve)
            assert words in message
            assert "Rank 0, test_puzzles.py, line" in message


def test_a_loop_that_never_ends(monkeypatch):
    monkeypatch.setattr(checking, "PATIENCE", checking.Patience(0.5, 600.0, 600.0))

    def solve(me):
        while me.rank == 2:
            pass  # for ever
        me.receive(2).shape  # noqa: B018 - waits

    message = told(1, solve)
    assert message.startswith("With 4 ranks: Rank 2, test_puzzles.py, line ")
    here = line_of("for ever")
    assert f" {here}: pass" in message or f" {here - 1}: while me.rank == 2:" in message
    assert "has computed for 0.5 seconds since its last call of me. Is there a loop" in message


def test_a_rank_that_waits_for_ever(monkeypatch):
    monkeypatch.setattr(checking, "PATIENCE", checking.Patience(600.0, 2.0, 600.0))

    def solve(me):
        import threading

        if me.rank == 2:
            threading.Event().wait()  # comes never

    message = told(1, solve)
    assert f"Rank 2, test_puzzles.py, line {line_of('comes never')}: threading" in message
    assert "has not called me for 2 seconds" in message


def test_an_import_that_takes_long_is_no_loop(monkeypatch, tmp_path):
    monkeypatch.setattr(checking, "PATIENCE", checking.Patience(0.8, 600.0, 600.0))
    slow = "import time\nbegan = time.process_time()\nwhile time.process_time() < began + 1.2: pass"
    (tmp_path / "slow.py").write_text(slow)

    def solve(me):
        if me.size == 4 and me.rank == 0:
            import sys

            sys.path.insert(0, str(tmp_path))
            import slow

            assert slow.began
        solutions.ring(me)

    assert puzzles.check(1, solve).passed


def test_a_loop_of_calls_that_never_ends():
    def solve(me):
        while me.rank == 0:
            me.free()

    assert "It has made 1,000 calls." in told(1, solve)


def test_endless_loops_of_calls_are_told_soon(subtests):
    def sends(me):
        while True:
            me.send((me.rank + 1) % me.size, me.gradient)  # nobody receives

    def receives(me):
        while True:
            me.receive((me.rank - 1) % me.size)  # nobody sends

    def computes(me):
        while True:
            me.compute("attend", me.q, me.k, me.v)  # computes on

    for number, solve, mark, words in (
        (1, sends, "nobody receives", "It has made 1,000 calls. Is there a loop that never ends?"),
        (1, receives, "nobody sends", "It has made 1,000 calls."),
        (
            9,
            computes,
            "computes on",
            "more than 50 times the budget. Is there a loop that never ends?",
        ),
    ):
        with subtests.test(solve.__name__):
            began = time.monotonic()
            message = told(number, solve)
            assert f"Every rank, test_puzzles.py, line {line_of(mark)}: " in message
            assert words in message
            assert time.monotonic() - began < 30  # 6 seconds, if the machine is free


def test_what_is_on_its_way_takes_time_in_proportion():
    """Thousands of messages that nobody receives: each new one is as quick as the first."""
    task = drawing.TASKS[1](RandomData(np.random.default_rng(0)), 4)
    answers = []
    world = World(
        task, 4, ["send"], (), np.random.default_rng(0), lambda *told: answers.append(told)
    )
    tensor = world.given(0)["gradient"].tensors[0].number
    call = Call("send", SolverLine("f", 1, ""), [tensor], number=1)
    times = []
    for _ in range(9):
        began = time.process_time()
        for _ in range(100):
            world.on_call(0, call)
        times.append(time.process_time() - began)
    assert len(answers) == 900
    assert min(times[-3:]) < 3 * min(times[:3])


def test_collectives_over_different_groups(subtests):
    def one_finishes(me):
        group = me.groups["tensor" if me.rank % 4 == 0 else "data"]
        me.all_reduce(me.a, group=group)  # one of two

    def forgotten(me):
        group = me.groups["tensor"] if me.rank < 2 else None
        me.all_reduce(me.a, group=group)  # sometimes all

    def waits(me):
        group = me.groups["tensor"] if me.rank == 0 else None
        total = me.all_reduce(me.a, group=group)  # no group
        me.split(total, 1)

    for solve, mark, words in (
        (one_finishes, "one of two", ("all_reduce over ranks 0, 1", "all_reduce over rank 1, and")),
        (forgotten, "sometimes all", ("all_reduce over all ranks", "all_reduce over ranks 0, 1, ")),
        (waits, "no group", ("all_reduce over ranks 0, 1", "all_reduce over all ranks")),
    ):
        with subtests.test(solve.__name__):
            result = puzzles.check(11, solve)
            head, first, one, second, other = result.message.splitlines()[:5]
            assert head == "With 4 ranks: Collectives over different groups."
            assert first.startswith("Rank ")
            assert f", line {line_of(mark)}: " in first
            assert f", line {line_of(mark)}: " in second
            assert words[0] in one
            assert words[1] in other
            assert 4 not in result.scores


def test_numbers_that_are_a_multiple_are_told_as_such():
    def solve(me):
        me.gradient = me.add(me.gradient, me.split(me.join(me.split(me.gradient, 2)), [48])[0])

    def twice(me):
        solutions.ring(Doubled(me))

    class Doubled:
        def __init__(self, me):
            self._me = me

        def __getattr__(self, name):
            return getattr(self._me, name)

        def keep(self, name, total):
            copy = self._me.receive((self._me.rank - 1) % self._me.size)
            self._me.send((self._me.rank + 1) % self._me.size, total)
            self._me.keep(name, self._me.add(total, copy))

    assert "all are 2 times as large as they must be" in told(1, twice)
    assert "has taken its place" in told(1, solve)


def test_what_ranks_print_is_shown():
    def solve(me):
        print("here", me.rank, me.gradient)

    result = puzzles.check(1, solve)
    assert "[3] here 3 <tensor from me.gradient, shape (48, 64)>" in repr(result)


def test_a_run_goes_on_after_the_keeper_was_killed():
    puzzles.warm_up()
    keeper = checking._keepers[0].process
    keeper.kill()
    keeper.wait()
    assert puzzles.check(1, solutions.ring).passed


# What is shown.


class Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.words = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words.append(data)


def read(html):
    reader = Reader()
    reader.feed(html)
    return reader


def test_a_result_shows_itself_without_scripts():
    seen = read(puzzles.check(3, solutions.whole_batch)._repr_html_())
    images = [attributes for tag, attributes in seen.tags if tag == "img"]
    assert len(images) == 2
    assert "over budget" in "".join(seen.words)
    assert not {tag for tag, _ in seen.tags} & {"script", "style", "link"}
    assert "time, ticks with 4 ranks: 602.25 of 490" in images[0]["alt"]


def test_the_critical_path_adds_up_to_the_time():
    result = puzzles.check(3, solutions.whole_batch)
    (words,) = (line for line in result.message.splitlines() if "the ticks are" in line)
    numbers = re.findall(r"([\d,.]+) for [a-z_]+ \(line", words)
    assert sum(map(float, numbers)) == pytest.approx(602.25, abs=0.03)


def updates_from_the_first(me):
    saved = solutions.forward(me, me.weights, me.x)
    dy, slopes = me.compute("loss", saved[-1], me.target), []
    for w in reversed(me.weights):
        y = saved.pop()
        dy, dw = me.compute("backward", w, saved[-1], y, dy)
        slopes.insert(0, me.all_reduce(dw))
    me.keep("weights", solutions.update(me, me.weights, slopes))


def test_a_program_that_passes_more_slowly_than_the_reference_is_told_where_the_ticks_went():
    result = puzzles.check(3, updates_from_the_first)
    lines = result.message.splitlines()
    assert result.stars == 1
    # No bytes: this module is loaded in each rank, which makes calls slow, and what watches a rank
    # meanwhile must not hold the tensors of the call that it sees.
    assert lines[1] == "More than the reference: 6 ticks with 2 ranks, 6 ticks with 4 ranks."
    assert lines[2].startswith("With 4 ranks the ticks are")


def test_every_task_shows_itself(subtests):
    for number, puzzle in puzzles.PUZZLES.items():
        with subtests.test(number):
            shown = puzzles.show(number)
            assert puzzle.sentence in str(shown)
            assert puzzle.stub.rstrip() in str(shown)
            assert all(f"\nme.{call}(" in str(shown) for call in (*puzzle.calls, "free"))
            seen = read(shown._repr_html_())
            assert [tag for tag, _ in seen.tags].count("img") == 1
            assert len({puzzles.hint(number, which) for which in (1, 2, 3)}) == 3


def test_wrong_arguments(subtests):
    for call, words in (
        (lambda: puzzles.show(12), "number=12: there are puzzles 1 to 11."),
        (lambda: puzzles.show("1"), "number='1': give the number of a puzzle"),
        (lambda: puzzles.check(1, None), "takes a function of one argument, me, not None"),
        (lambda: puzzles.hint(1, 4), "which=4: there are hints 1, 2 and 3."),
    ):
        with subtests.test(words), pytest.raises((TypeError, ValueError), match=words[:20]):
            call()


def test_the_table_of_stars_and_a_solution_that_runs_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(standings, "TABLE", standings.StarTable())
    puzzles.check(7, solutions.one_forward_one_backward)
    (row,) = (line for line in repr(puzzles.stars()).splitlines() if "1F1B" in line)
    assert row.endswith("★★☆")
    file = tmp_path / "solution.py"
    file.write_text(puzzles.solution_text(7))
    run = subprocess.run(
        [sys.executable, file], capture_output=True, text=True, cwd=ROOT, check=False,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert "Passed: ★★☆" in run.stdout, run.stderr


def scored(stars, time, memory=1, sent=1):
    """A result with a score, as the table takes it."""
    result = results.Result(puzzles.PUZZLES[1], [], {})
    result.stars = stars
    result.scores = {size: puzzles.Score(time, memory, sent) for size in (4, 6)}
    return result


def test_the_better_of_two_solutions_is_kept(subtests):
    for better, worse in (
        (scored(3, 50.0), scored(2, 40.0)),
        (scored(3, 40.0, 9), scored(3, 41.0, 1)),
        (scored(3, 40.0, 1, 9), scored(3, 40.0, 2, 1)),
        (scored(3, 40.0, 1, 1), scored(3, 40.0, 1, 2)),
    ):
        for first, second in ((better, worse), (worse, better)):
            with subtests.test(str(better.scores), first=first is better):
                table = standings.StarTable()
                for result in (first, second):
                    table.take(result, 1, "better" if result is better else "worse")
                assert table.text_of(1) == "better"
                assert table._standings[1].stars == 3


def test_a_solution_without_a_text_keeps_its_stars_and_says_why(monkeypatch, subtests):
    monkeypatch.setattr(standings, "TABLE", table := standings.StarTable())

    class Solver:
        def __call__(self, me):
            solutions.ring(me)

        def method(self, me):
            solutions.ring(me)

    names = {"ring": solutions.ring}
    exec("def solve(me):\n    ring(me)", names)
    for solve, words in (
        (functools.partial(solutions.ring), "an object of the class partial"),
        (Solver(), "an object of the class Solver"),
        (Solver().method, "it is a method"),
        (names["solve"], "its source is not kept"),
        (lambda me: solutions.ring(me), "a lambda; use def"),
    ):
        with subtests.test(words):
            result = puzzles.check(1, solve)
            assert result.stars == 2
            assert words in repr(result)
            with pytest.raises(LookupError, match="has passed, but cannot be given as text"):
                puzzles.solution_text(1)
            table.take(scored(0, 1.0), 1, "")
            assert table._standings[1].stars == 2


def test_functions_that_run_none_of_their_lines_are_refused(subtests):
    def generator(me):
        yield me

    async def coroutine(me):
        pass

    for solve, words in ((generator, "yield in it"), (coroutine, "async before it")):
        with subtests.test(words), pytest.raises(TypeError, match=words):
            puzzles.check(1, solve)


def test_a_solution_that_is_too_large_to_be_sent():
    large = bytes(9_000_000)
    with pytest.raises(ValueError, match=r"8,000,000 are allowed\. Make large values inside"):
        puzzles.check(1, lambda me: large)


def test_what_is_first_in_a_lane_is_named():
    def early(me):
        coming = me.receive(me.across)  # too early
        x = me.batches[0] if me.stage == 0 else coming
        y = me.compute("linear", me.b, me.compute("forward", me.a, x))
        y = me.all_reduce(y, group=me.groups["tensor"])  # behind it
        me.send(me.across, y)  # needs the sum

    message = told(11, early)
    line, first = line_of("behind it"), line_of("too early")
    for rank in range(2):
        assert f"Rank {rank}, test_puzzles.py, line {line_of('needs the sum')}: " in message
        assert (
            f"send waits for all_reduce (line {line}). Rank {rank} receives in the order of its "
            f"calls: receive from rank {rank + 2} (line {first}) is first, and rank {rank + 2} has "
            "not sent it."
        ) in message


def test_two_calls_that_are_first_for_each_other_are_named():
    def solve(me):
        me.receive(1) if me.rank == 0 else None  # first here
        me.all_reduce(me.split(me.b, 2)[0], group=[0, 1]) if me.rank < 2 else None  # then this
        me.send(0, me.a) if me.rank == 1 else None

    message = told(11, solve)
    assert "all_reduce cannot begin. Rank 0 receives in the order of its calls: receive" in message
    assert f"from rank 1 (line {line_of('first here')}) is first. Rank 1 sends in" in message
    assert f": all_reduce (line {line_of('then this')}) is first." in message


def test_errors_are_no_longer_than_a_reader_reads(subtests):
    import numpy as np

    from distlab.puzzles.messages import Call, SolverLine

    def forged(me):  # a line of fifteen million letters on each rank
        place = SolverLine("f", 1, "x" * 15_000_000)
        me._line.say(Call("keep", place, [me.gradient._number] * 1, "sum"))
        me._line._incoming.wait()
        me.receive((me.rank + 1) % me.size).shape  # noqa: B018 - waits

    def many(me):
        me.all_reduce(me.x, group=range(1000, 3_001_000))

    for number, solve, words in (
        (1, forged, "Deadlock"),
        (2, many, "all_reduce: group names more than the 2 ranks that there are."),
        (2, lambda me: me.all_reduce(me.x, group="tensor"), "group as a list of ranks, not str '"),
        (2, lambda me: me.free([*me.weights, me.x]), "shape (32, 32)>, ...]."),
        (1, lambda me: me.send(me.gradient, 1), "not <tensor from me.gradient, shape (48, 64)>."),
        (1, lambda me: np.array(me.gradient), "A tensor is a handle and holds no numbers"),
        (1, lambda me: me.k, "me has no attribute 'k'. This puzzle gives: me.gradient."),
        (2, lambda me: me.join([me.x] * 200_001), "given more than 200,000 tensors"),
        (2, lambda me: me.split(me.x, itertools.count()), "split is given more than 200,000"),
    ):
        with subtests.test(words):
            message = told(number, solve)
            assert words in message
            assert len(message) < 11_000


def test_an_attribute_that_was_deleted():
    def solve(me):
        del me.target
        me.free(me.target)

    assert "me.target is not there any more: it was deleted." in told(2, solve)
