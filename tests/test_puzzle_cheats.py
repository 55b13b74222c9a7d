"""Puzzles: cheats that fail. Each is tried as a solver would try it.

Nothing keeps the administrator of a machine, or who changes distlab in the notebook itself, from
any stars; what runs in the ranks has no numbers, no clock and no verdict to reach for.
"""

import contextlib
import dataclasses
import enum
import functools
import linecache
import math
import pathlib
import socket
import sys
import types

import _puzzle_solutions as solutions
import msgspec
import numpy as np
import pytest

from distlab import puzzles
from distlab.puzzles import (
    arithmetic,
    checking,
    copying,
    incoming,
    keeper,
    messages,
    standings,
)
from distlab.puzzles.drawing import TASKS
from distlab.puzzles.messages import Call, SolverLine
from distlab.puzzles.seats import Seat
from distlab.puzzles.tasks import RandomData
from distlab.puzzles.tensors import Tensors
from distlab.puzzles.world import World

HELD = []
"""A global list that a cheater holds tensors in."""


def told(number, solve):
    """What a check says of a cheat that has to fail."""
    result = puzzles.check(number, solve)
    assert not result.passed, result
    return result.message


# Results that were not computed.


def test_forged_handles_and_arrays(subtests):
    def forged(me):
        from distlab.puzzles.handles import Tensor

        me.keep("sum", Tensor(10_000, (48, 64), "nothing", None, []))

    def guessed(me):
        from distlab.puzzles.handles import Tensor

        number = me.gradient._number % me.size + 1
        me.send((me.rank + 1) % me.size, Tensor(number, (48, 64), "nothing", None, []))
        me.keep("sum", me.receive((me.rank - 1) % me.size))

    def array(me):
        import numpy as np

        me.keep("sum", np.zeros((48, 64)))

    for solve, words in (
        (forged, "the puzzle never gave it"),
        (guessed, "'s, not rank "),
        (array, "me.keep takes a list of tensors, not ndarray"),
    ):
        with subtests.test(solve.__name__):
            assert words in told(1, solve)


def test_the_initial_weights_are_no_result(subtests):
    with subtests.test("weights"):
        message = told(2, lambda me: me.keep("weights", me.weights))
        assert "weights[0] is what it was at the start." in message
    with subtests.test("parts joined again"):

        def solve(me):
            me.keep("weights", [me.join(me.split(w, 4)) for w in me.weights])

        assert "weights[0] is what it was at the start." in told(2, solve)


def test_results_kept_twice_or_freed_after(subtests):
    def twice(me):
        first, second = me.split(me.gradient, 2)
        me.keep("sum", first)
        me.keep("sum", second)

    def freed(me):
        me.keep("sum", me.gradient)
        me.free(me.gradient)

    with subtests.test("twice"):
        assert "'sum' was kept before" in told(1, twice)
    with subtests.test("freed"):
        result = puzzles.check(1, freed)
        assert {score.memory for score in result.scores.values()} == {48 * 64 * 4}
        assert "has wrong numbers" in result.message


# Numbers carried past the API: there are none to carry.


def test_a_handle_gives_no_numbers(subtests, tmp_path):
    def to_file(me):
        import pickle

        (tmp_path / str(me.rank)).write_bytes(pickle.dumps(me.gradient))

    def to_shared_memory(me):
        from multiprocessing import shared_memory

        block = shared_memory.SharedMemory(create=True, size=48 * 64 * 4)
        try:
            block.buf[:] = memoryview(me.gradient)
        finally:
            block.close()
            block.unlink()

    def to_environment(me):
        import os

        os.environ["GRADIENT"] = ",".join(float(x) for x in me.gradient)

    def to_socket(me):
        import socket

        one, other = socket.socketpair()
        one.sendall(me.gradient)
        other.recv(1)

    def to_torch_distributed(me):
        import numpy as np

        # What torch.distributed would send has to be made of the numbers first.
        np.asarray(me.gradient, dtype=np.float32)

    for cheat in (to_file, to_shared_memory, to_environment, to_socket, to_torch_distributed):
        with subtests.test(cheat.__name__):
            message = told(1, cheat)
            assert "TypeError" in message
            assert "Every rank, test_puzzle_cheats.py, line" in message


def test_another_ranks_tensor_by_its_number(tmp_path):
    path = tmp_path / "number"

    def solve(me):
        if me.rank == 0:
            path.write_text(str(me.gradient._number))
            me.send(1, me.gradient)
        if me.rank == 1:
            received = me.receive(0)
            assert received.shape  # waits until rank 0 has written
            object.__setattr__(received, "_number", int(path.read_text()))
            me.keep("sum", received)

    assert "This tensor is rank 0's, not rank 1's" in told(1, solve)


def test_nothing_in_a_rank_knows_the_data_or_the_answer():
    def solve(me):
        import gc
        import sys

        everything = gc.get_objects()
        frame = sys._getframe()
        while frame is not None:
            everything += frame.f_locals.values()
            frame = frame.f_back
        kinds = {f"{type(each).__module__}.{type(each).__name__}" for each in everything}
        names = ("handles.Tensor", "messages.", "ranks.", "lines.", "puzzle.Puzzle")
        own = (*names, "incoming.", "watching.")
        ours = tuple(f"distlab.puzzles.{name}" for name in own)
        suspects = ("numpy", "distlab.puzzles")
        print([k for k in sorted(kinds) if k.startswith(suspects) and not k.startswith(ours)])
        # No list or bytes of as many numbers as a gradient has.
        print(
            sum(isinstance(each, list) and set(map(type, each)) == {float} for each in everything)
        )

    assert "[0] []\n[0] 0\n" in repr(puzzles.check(1, solve))


def test_the_keeper_is_no_relative_of_a_rank():
    puzzles.warm_up()
    pid = checking._keepers[0].process.pid

    def solve(me):
        import psutil

        relatives = [*psutil.Process().parents(), *psutil.Process().children()]
        print(pid in [one.pid for one in relatives])

    assert "[0] False" in repr(puzzles.check(1, solve))


# The checker itself.


def test_patches_of_the_checker_change_nothing():
    def solve(me):
        from distlab.puzzles import clock, memory, puzzle, ranks, results, tasks, tensors, world

        tasks.verdict = lambda *_: ""
        tasks.TOLERANCE = 1e9
        clock.FLOPS = clock.BYTES = 10**9
        memory.RankMemory.peak = lambda _: (0, 0.0)
        tensors.bytes_of = lambda _: 0
        world.World.outcome = results.stars = ranks.Me.keep = lambda *_: 3
        puzzle.Puzzle.budgets = {}
        solutions.everybody_to_everybody(me)

    before = puzzles.check(1, solutions.everybody_to_everybody)
    message = told(1, solve)
    assert 'returned without me.keep("sum"' in message  # ranks.Me.keep was patched, too
    assert before.scores[4].time == pytest.approx(123.25)


def test_a_patched_clock_changes_no_score():
    def solve(me):
        from distlab.puzzles import clock

        clock.FLOPS = clock.BYTES = 10**9
        clock.LATENCY = 0.0
        solutions.everybody_to_everybody(me)

    assert puzzles.check(1, solve).scores == (
        puzzles.check(1, solutions.everybody_to_everybody).scores
    )


def test_calls_that_the_api_does_not_have(subtests):
    def unknown(me):
        me._call("reset_clock", ())

    def not_allowed(me):
        me._call("all_reduce", (me.gradient,))

    def garbage(me):
        me.free()
        me._line._socket.sendall(b"\x03\x00\x00\x00abc")
        me._line._incoming.wait()

    for solve, words in (
        (unknown, "does not allow me.reset_clock"),
        (not_allowed, "does not allow me.all_reduce"),
        (garbage, "The rank has left"),
    ):
        with subtests.test(solve.__name__):
            assert words in told(1, solve)


def test_nobody_else_takes_a_seat():
    def solve(me):
        import socket
        import sys

        from distlab.puzzles import messages

        frame = sys._getframe()
        while "token" not in frame.f_locals:
            frame = frame.f_back
        port, token = frame.f_locals["port"], frame.f_locals["token"]
        with socket.create_connection(("127.0.0.1", port)) as other:
            messages.send(other, messages.Hello(token, (me.rank + 1) % me.size))
            assert other.recv(1) == b""  # shown the door
        solutions.ring(me)

    assert puzzles.check(1, solve).passed


def test_an_error_that_is_caught_is_an_error():
    def solve(me):
        with contextlib.suppress(BaseException):
            me.send(99, me.gradient)
        solutions.ring(me)

    assert "there is no rank 99" in told(1, solve)


def test_an_operation_is_no_collective(subtests):
    for number, puzzle in puzzles.PUZZLES.items():
        size, generator = puzzle.sizes[0], np.random.default_rng(0)
        task = TASKS[number](RandomData(generator), size)
        methods = (*puzzle.calls, "compute")
        world = World(task, size, methods, puzzle.operations, generator, lambda *_: None)
        tensor = next(iter(world.given(0).values())).tensors[0].number
        for name in puzzle.operations:
            with subtests.test(f"{number} {name}"):
                world.seats[0] = Seat()
                world.on_call(0, Call(name, SolverLine("f", 1, ""), [tensor]))
                assert f"does not allow me.{name}." in world.seats[0].why

    def half_price(me):
        me._call("update", (me.weights[0],))

    assert "does not allow me.update" in told(2, half_price)


def test_a_method_is_no_operation(subtests):
    for name in ("add", "split", "all_reduce", "compute"):
        with subtests.test(name):
            message = told(2, lambda me, name=name: me.compute(name, me.x, me.target))
            assert f"This puzzle has no operation '{name}'. It has: forward" in message


def test_calls_with_too_few_tensors_are_told(subtests):
    for kind in ("split", "add", "send", "shape", "join"):
        with subtests.test(kind):
            message = told(1, lambda me, kind=kind: me._call(kind, ()))
            assert kind in message
            assert "cannot be carried out" not in message
    with subtests.test("all_reduce"):
        message = told(2, lambda me: me._call("all_reduce", ()))
        assert "me.all_reduce takes 1 tensor, not 0." in message


def test_what_ranks_return_is_never_read(monkeypatch):
    monkeypatch.setattr(checking, "SILENCE", 3.0)
    monkeypatch.setattr(standings, "TABLE", standings.StarTable())

    def solve(me):
        import os
        import signal

        from distlab.launching.protocol import functions

        class Winner:  # whoever reads its pickle has three stars for puzzle 11
            def __reduce__(self):
                return exec, (code,)

        write = functions.write_result
        functions.write_result = lambda path, _: write(path, Winner())
        if me.rank == 0:
            os.kill(pid, signal.SIGSTOP)

    code = (
        "from distlab.puzzles import standings as s; "
        "s.TABLE._standings.setdefault(11, s._Standing()).stars = 3"
    )
    puzzles.warm_up()
    pid = checking._keepers[0].process.pid
    with pytest.raises(RuntimeError, match=r"All ranks have ended \(rank 0 done"):
        puzzles.check(1, solve)
    assert 11 not in standings.TABLE._standings


def test_the_keeper_cannot_be_kept_busy(subtests):
    def empty_parts(me):
        empty, _ = me.split(me.gradient, [0, 48])
        me.split(empty, 1_200_000)

    def many_sizes(me):
        me.split(me.gradient, [0] * 100_000 + [48])

    def many_tensors(me):
        rest = me.gradient
        while True:
            *_, rest = me.split(rest, [0] * 1_000 + [48])

    def huge(me):
        me.split(me.gradient, 2**70)

    for solve, words in (
        (empty_parts, "0 rows do not divide into 1200000 equal parts"),
        (many_sizes, "100,001 parts; 1,024 are allowed"),
        (many_tensors, "It has made 10,010 tensors; 10,000 are allowed."),
        (huge, "me.split takes numbers of at most nine digits, not 1.181e+21"),
    ):
        with subtests.test(solve.__name__):
            assert words in told(1, solve)


def test_one_ranks_words_are_no_sign_of_life_of_others(monkeypatch):
    monkeypatch.setattr(checking, "PATIENCE", checking.Patience(600.0, 600.0, 1.0))

    def solve(me):
        import time

        end = time.monotonic() + 3
        while me.rank == 0 and time.monotonic() < end:
            me.free()
            time.sleep(0.1)
        while time.monotonic() < end:
            time.sleep(0.1)

    assert "has not called me for 1 seconds" in told(1, solve)


def test_a_rank_that_does_not_say_where_it_is(monkeypatch):
    monkeypatch.setattr(checking, "PATIENCE", checking.Patience(600.0, 600.0, 1.0))

    def solve(me):
        import threading

        threading.Event().wait()

    message = told(1, solve)
    assert "has not called me for 1 seconds since it began, and does not say where" in message


def test_more_connections_than_ranks_are_closed():
    def solve(me):
        import socket

        port, opened, closed = me._line._socket.getpeername()[1], [], me.size != 4 or me.rank > 0
        while not closed:
            opened.append(socket.create_connection(("127.0.0.1", port)))
            opened[-1].settimeout(0.02)
            with contextlib.suppress(TimeoutError):
                closed = opened[-1].recv(1) == b""
            assert len(opened) < 500
        solutions.ring(me)

    assert puzzles.check(1, solve).passed


def test_a_seat_takes_the_token():
    notebook, there = socket.socketpair()
    with notebook, there:
        served = keeper.Keeper(there)
        served._begin(messages.BeginCheck(1, b"", checking.PATIENCE))
        (told, *_) = incoming.Incoming(notebook).arrived()
        tokens = messages.to_notebook.decode(told).tokens
        run = served._runs[0]
        for token in ("", "0" * 32, tokens[6]):
            assert (run, 0) not in served._seat(messages.Hello(token, 0), there)
        assert served._seat(messages.Hello(tokens[4], 0), there) == [(run, 0)]
        assert served._seat(messages.Hello(tokens[4], 0), there) == []
        served._listening.close()
        served._selector.close()


# The table, in the notebook's process.


def test_a_number_that_changes_its_mind_is_a_plain_one(monkeypatch):
    class Number(int):
        asked = 0

        def __hash__(self):
            Number.asked += 1
            return hash(1 if Number.asked < 3 else 11)

        def __eq__(self, other):
            return other in (1, 11)

    monkeypatch.setattr(standings, "TABLE", standings.StarTable())
    assert puzzles.check(Number(1), solutions.ring).passed
    assert list(standings.TABLE._standings) == [1]


def test_the_text_is_that_of_the_code_that_ran(monkeypatch):
    @functools.wraps(solutions.everybody_to_everybody)
    def solve(me):
        solutions.ring(me)

    text = copying.as_text(1, solve)
    assert "def solve(me):" in text
    assert "everybody_to_everybody" not in text


def test_the_text_of_a_decorated_function_runs(tmp_path):
    def twice(function):
        def inner(me):
            return function(me) * 2

        return inner

    @twice
    def solve(me):
        return me + 1

    empty = solve
    if tmp_path is None:
        late = 1

    def user(me):
        return empty(me) if me else late

    program = copying.as_text(1, user)
    before_check = program[: program.index("print(puzzles.check(1, user))")]
    names = {}
    exec(before_check, names)
    assert names["user"](1) == 4


# Memory.


def hoard(where):
    """A pass over all 25 layers that hides the outputs somewhere."""

    def solve(me):
        saved = where(me)
        saved.append(me.x)
        for w in me.weights:
            saved.append(me.compute("forward", w, saved[-1]))
        me.keep("weights", me.weights)

    return solve


def test_memory_is_counted_wherever_a_tensor_is_held(subtests):
    def in_a_global(me):
        return HELD

    def in_a_closure(me, kept=None):
        kept = []
        me.reach = lambda: kept
        return me.reach()

    def in_a_default(me, kept=[]):  # noqa: B006
        return kept

    def in_an_attribute(me):
        me.held = []
        return me.held

    def in_a_module(me):
        import math

        math.held = []
        return math.held

    def in_a_cycle(me):
        held = []
        held.append(held)
        return held

    for where in (
        in_a_global,
        in_a_closure,
        in_a_default,
        in_an_attribute,
        in_a_module,
        in_a_cycle,
    ):
        with subtests.test(where.__name__):
            scores = puzzles.check(8, hoard(where)).scores
            assert all(score.memory >= 26 * 8192 for score in scores.values())


def test_a_number_is_no_handle():
    def solve(me):
        from distlab.puzzles.handles import Tensor

        number = me.gradient._number
        del me.gradient
        me.free()
        me.keep("sum", Tensor(number, (48, 64), "memory", None, []))

    assert "no variable held it" in told(1, solve)


def test_a_handle_that_says_it_is_gone_is_gone():
    def solve(me):
        me._line._dropped.append(me.gradient._number)
        me.free()
        me.keep("sum", me.gradient)

    assert "no variable held it" in told(1, solve)


def test_what_waits_in_the_network_counts():
    def solve(me):
        after, before = (me.rank + 1) % me.size, (me.rank - 1) % me.size
        me.send(after, me.gradient)
        me.free(me.gradient)  # parked with a neighbour
        me.free()
        me.keep("sum", me.receive(before))

    scores = puzzles.check(1, solve).scores
    assert {score.memory for score in scores.values()} == {2 * 48 * 64 * 4}


# Bytes and time.


def test_messages_to_oneself_are_refused():
    assert "a rank has no messages for itself" in told(1, lambda me: me.send(me.rank, me.gradient))


def test_two_tensors_do_not_fit_into_one(subtests):
    generator = np.random.default_rng(0)
    about = arithmetic.Rounding(generator)
    a, b = generator.standard_normal((2, 3, 16, 16))
    packed = a.copy()
    for _ in range(20):  # what adding can do: 2**20 times b
        b = about(b + b)
    packed = about(packed + b)
    unpacked = packed - np.round(packed / 2**20, 2) * 2**20
    assert np.abs(unpacked - a).max() > 1e-2
    with subtests.test("every operation rounds"):
        for name, operation in arithmetic.OPERATIONS.items():
            operands = [
                np.abs(generator.standard_normal((3, *[8] * len(axes)))) + 0.5
                for axes in operation.signature.split(",")
            ]
            exact = operation.apply(operands, arithmetic.exactly)
            rounded = operation.apply(operands, about)
            for one, other in zip(exact, rounded, strict=True):
                error = np.abs(one - other).max() / np.abs(one).max()
                assert 1e-9 < error < 3e-6, name


def test_the_whole_batch_on_every_rank_is_over_budget():
    def solve(me):
        x, target = me.all_gather(me.x), me.all_gather(me.target)
        state = [[me.all_gather(part) for part in parts] for parts in (me.m, me.v)]
        saved = solutions.forward(me, me.weights, x)
        dy = me.compute("loss", saved[-1], target)
        slopes = solutions.backward(me, me.weights, saved, dy)
        for i, dw in enumerate(slopes):
            me.weights[i] = me.compute("adam", me.weights[i], state[0][i], state[1][i], dw)[0]
        me.keep("weights", me.weights)

    message = told(4, solve)
    assert "over budget" in message
    assert "ticks of 700" in message
    assert "bytes of memory of 294,912" in message


def test_a_clock_does_not_go_back():
    def solve(me):
        a, b = me.split(me.gradient, 2)
        if me.rank == 0:
            for _ in range(50):
                a = me.add(a, b)
            me.keep("sum", me.join([a, b]))
        else:
            me.keep("sum", me.join([a, b]))

    scores = puzzles.check(1, solve).scores
    assert {score.time for score in scores.values()} == {50 * 24 * 64 / 4096}


# The text.

LIMIT, STEP = float("inf"), 2
RANGES = [(1, 2.5), {"a": {3}, "b": set()}]
ROUND: list = []
ROUND.append(ROUND)
SINGLE = np.float64(1.5)
gradient = np.zeros(3)


class Kind(enum.IntEnum):
    FIRST = 1


FIRST = Kind.FIRST


@dataclasses.dataclass
class Pair:
    one: int
    other: int = STEP


def test_the_values_in_a_text_are_those_of_the_function():
    def user(me, step=STEP):
        return me.gradient, LIMIT, RANGES, step, Kind.FIRST, Pair(3)

    program = copying.as_text(1, user)
    names = {}
    exec(program[: program.index("print(")], names)
    me = types.SimpleNamespace(gradient=7)  # which is no global in the text
    assert names["user"](me)[:-1] == (7, math.inf, RANGES, 2, 1)
    assert names["user"](me)[-1].other == 2
    assert "gradient =" not in program


def test_values_that_have_no_text_are_told(subtests):
    def around(me):
        return ROUND

    def numpys(me):
        return SINGLE

    def member(me):
        return FIRST

    def array(me):
        return gradient

    for solve, words in (
        (around, "ROUND, and a list that contains itself"),
        (numpys, "SINGLE, and a float64 cannot"),
        (member, "FIRST, and a Kind cannot"),
        (array, "gradient, and a ndarray cannot"),
    ):
        with subtests.test(words), pytest.raises(copying.NoTextError, match=words):
            copying.as_text(1, solve)


# Hangs.


def test_a_rank_that_does_not_read_its_answers():
    def solve(me):
        call = messages.Call("free", SolverLine("f", 1, ""))
        message = msgspec.msgpack.encode(call)
        many = (len(message).to_bytes(4, "little") + message) * 1_000
        with contextlib.suppress(OSError):
            while me.rank == 0:  # until the keeper has shown it the door
                me._line._socket.sendall(many)
        me.receive(0).shape  # noqa: B018 - waits

    assert "Rank 0, f, line 1: \nIt has made 1,000 calls." in told(1, solve)


def test_a_log_that_is_no_file():
    def solve(me):
        import os

        path = pathlib.Path("/proc/self/fd/1").readlink()
        path.unlink()
        os.mkfifo(path)

    assert "returned without me.keep" in told(1, solve)


class Evil(int):
    def __repr__(self):
        return "1\nprint('in the kernel of whoever checks the text')"


EVIL = Evil(1)


def test_a_value_that_writes_code():
    def solve(me):
        return EVIL

    with pytest.raises(copying.NoTextError, match="EVIL, and a Evil cannot be written"):
        copying.as_text(1, solve)


def test_the_keepers_memory_cannot_be_filled():
    def solve(me):
        total = me.x
        while True:
            total = me.join([total, me.all_gather(total, group=[me.rank])])  # doubles

    message = told(6, solve)
    assert "It holds " in message
    assert "bytes; a check has room for 5,000,000." in message


def test_messages_on_their_way_count_as_held():
    tensors = Tensors(2)
    given = tensors.new(0, "given", 0.0, values=np.zeros((3, 10, 10)))
    assert tensors.held_by(0, [given]) == 400  # once
    tensors.release(given, 0.0, "it was freed")
    assert tensors.held_by(0) == 0
    assert tensors.held_by(0, [given]) == 400


def test_no_operation_makes_more_than_there_is_room_for():
    task = TASKS[9](RandomData(np.random.default_rng(0)), 4)
    answers = []
    world = World(
        task,
        4,
        ["compute"],
        ["attend"],
        np.random.default_rng(0),
        lambda *told: answers.append(told),
    )
    numbers = [
        world._tensors.new(0, "given", 0.0, values=np.zeros((3, 1_200, 16))).number
        for _ in range(3)
    ]
    world.on_call(0, Call("compute", SolverLine("f", 1, ""), numbers, "attend"))
    assert "it would make 5,760,000 bytes, and a check has room for" in world.seats[0].why
    assert answers == [(0, None)]


def test_a_token_that_is_no_ascii_ends_nothing():
    def solve(me):
        if me.rank == 0 and me.size == 4:
            port = me._line._socket.getpeername()[1]
            for token in ("\u00e4" * 32, "x" * 10_000_000):
                with (
                    contextlib.suppress(OSError),
                    socket.create_connection(("127.0.0.1", port)) as other,
                ):
                    messages.send(other, messages.Hello(token, 5))
        solutions.ring(me)

    assert puzzles.check(1, solve).passed


def test_threads_take_their_turns():
    def solve(me):
        import threading

        def frees():
            for _ in range(50):
                me.free()

        threads = [threading.Thread(target=frees) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        solutions.ring(me)

    assert puzzles.check(1, solve).passed


def test_two_calls_at_once_are_refused():
    task = TASKS[1](RandomData(np.random.default_rng(0)), 4)
    world = World(task, 4, ["receive"], (), np.random.default_rng(0), lambda *_: None)
    world.on_call(0, Call("receive", SolverLine("f", 1, ""), number=1))
    number = max(world._tensors._tensors)
    world.on_call(0, Call("shape", SolverLine("f", 2, ""), [number]))
    world.on_call(0, Call("free", SolverLine("f", 3, "")))
    assert "while a call in a different thread was under way" in world.seats[0].why


def test_a_check_has_an_end_however_slow_its_calls(monkeypatch):
    monkeypatch.setattr(checking, "PATIENCE", messages.Patience(60.0, 60.0, 60.0, all=3.0))

    def solve(me):
        import time

        while True:
            time.sleep(0.2)
            me.free()

    assert "The check has taken 3 seconds. Is there a loop that never ends?" in told(1, solve)


def test_the_text_of_a_line_is_short_in_the_keeper():
    long = keeper._short(SolverLine("f" * 1_000, 1, "x" * 15_000_000))
    assert (len(long.file), len(long.text)) == (500, 500)


def test_a_solution_that_changes_its_file_has_the_text_that_ran(tmp_path, monkeypatch):
    file = tmp_path / "changing.py"
    text = "import _puzzle_solutions as solutions\n\n\ndef solve(me):\n    solutions.ring(me)\n"
    file.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(standings, "TABLE", standings.StarTable())
    import changing

    carry_out = checking.carry_out

    def and_change(*given):
        outcomes = carry_out(*given)
        file.write_text(text.replace("ring", "everybody_to_everybody") + "\n")
        return outcomes

    monkeypatch.setattr(checking, "carry_out", and_change)
    assert puzzles.check(1, changing.solve).passed
    assert "everybody" in file.read_text()
    assert "solutions.ring(me)" in puzzles.solution_text(1)


def test_code_without_numbers_of_lines(subtests):
    def solve(me):
        solutions.ring(me)

    def fails(me):
        me.nothing()

    for each, words in ((solve, "Passed"), (fails, "me has no attribute 'nothing'")):
        each.__code__ = each.__code__.replace(co_linetable=b"")
        with subtests.test(words):
            assert words in puzzles.check(1, each).message


def test_the_text_of_a_class_in_a_cell_runs(monkeypatch):
    cell = (
        "STEP = 2\n\n\nclass Adder:\n    def __init__(self, me):\n        self.me = me\n\n"
        "    def go(self):\n        return self.me + STEP\n\n\n"
        "def solve(me):\n    return Adder(me).go()\n"
    )
    file = "<cell 1>"
    monkeypatch.setitem(linecache.cache, file, (len(cell), None, cell.splitlines(True), file))
    module = types.ModuleType("__cells__")  # as a kernel's, which has no file
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(cell, file, "exec"), vars(module))
    program = copying.as_text(1, module.solve)
    names = {}
    exec(program[: program.index("print(")], names)
    assert names["solve"](1) == 3
