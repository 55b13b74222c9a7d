"""`python -m distlab run`, as a shell would start it."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
from _processes import family, wait_gone

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="watches processes through /proc")
COMMAND = [sys.executable, "-m", "distlab"]


@pytest.fixture
def script(tmp_path):
    """Write a script that has the usual imports and its rank; return its path."""

    def write(code: str) -> str:
        path = tmp_path / "job.py"
        head = "import os, signal, sys, time\nrank = int(os.environ['RANK'])\n"
        path.write_text(head + textwrap.dedent(code))
        return str(path)

    return write


def run(*words: str, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "run", *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **options,
    )


def test_the_command_has_a_name_of_its_own():
    command = [Path(sys.executable).with_name("distlab"), "--version"]
    assert subprocess.check_output(command, text=True) == f"distlab {version('distlab')}\n"


class Answer(NamedTuple):
    """What a command leaves."""

    status: int
    out: str
    errors: str


def answers(*commands: list[str], **options) -> list[Answer]:
    """What several commands leave that one process runs, one after another."""
    code = """
import json, sys
from click.testing import CliRunner
from distlab.__main__ import commands

invoke = CliRunner().invoke
told = json.loads(sys.argv[1])
ended = [invoke(commands, words, prog_name='python -m distlab') for words in told]
print(json.dumps([[each.exit_code, each.stdout, each.stderr] for each in ended]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(commands)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **options,
    )
    assert done.returncode == 0, done.stderr
    return [Answer(*each) for each in json.loads(done.stdout)]


@contextlib.contextmanager
def started(*words: str):
    """The command in the background, and all that it has started gone in the end."""
    process = subprocess.Popen(
        [*COMMAND, "run", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def pids(process: subprocess.Popen[str], count: int) -> list[int]:
    """Read lines until so many ranks have said `ready PID`."""
    found = []
    while len(found) < count:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        found += [int(pid) for pid in re.findall(r"ready (\d+)", line)]
    return found


# What reaches the ranks, and what comes back.


def test_every_line_has_its_rank_in_front(script):
    done = run("--nprocs", "3", script("print('hello'); print('from', rank, file=sys.stderr)"))
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == [
        line for rank in range(3) for line in (f"[rank {rank}] from {rank}", f"[rank {rank}] hello")
    ]


def test_what_follows_the_script_is_the_scripts(script, subtests):
    path = script("print(sys.argv[1:])")
    befores = ["--nprocs", "1"], ["--nprocs", "1", "--"]
    afters = ["--lr", "0.1"], ["-h", "--nprocs", "9"], ["--", "--x"], ["a", "--", "--x"], ["--"], []
    cases = [(before, words) for before in befores for words in afters]
    found = answers(*(["run", *before, path, *words] for before, words in cases))
    for (before, words), answer in zip(cases, found, strict=True):
        with subtests.test(before=before, words=words):
            assert answer.out == f"[rank 0] {words}\n"
    with subtests.test("in a process of its own"):
        assert run("--nprocs", "1", "--", path, "--", "--x").stdout == "[rank 0] ['--', '--x']\n"


@pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed")
def test_the_environment_and_devices_reach_the_ranks(script, tmp_path):
    path = script("""
        import jax
        print(os.environ["A"], os.environ["WORLD_SIZE"], os.getcwd(), jax.device_count())
    """)
    options = ["--framework", "jax", "--nprocs", "1", "--devices-per-rank", "3"]
    done = run(*options, path, env=os.environ | {"A": "1=2"}, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == f"[rank 0] 1=2 1 {tmp_path} 3"


def test_a_terminal_that_knows_only_ascii(script):
    done = run(
        "--nprocs", "1", script("print('é')"), env=os.environ | {"PYTHONIOENCODING": "ascii"}
    )
    assert (done.returncode, done.stdout) == (0, "[rank 0] \\xe9\n")


# Failures.


def test_the_exit_status_is_that_of_the_first_rank_that_failed(script, tmp_path, subtests):
    # Rank 0 would fail with 9, but only because it was stopped.
    path = script("""
        signal.signal(signal.SIGTERM, lambda *_: os._exit(9))
        if rank == 1:
            while not os.path.exists(sys.argv[2]):
                time.sleep(0.01)
            exec(sys.argv[1])
        open(sys.argv[2], "w").close()
        signal.pause()
    """)
    cases = [
        ("sys.exit(7)", 7, "failed: SystemExit: 7"),
        ("raise ValueError('wrong')", 1, "failed: ValueError: wrong"),
        ("os._exit(3)", 3, "exited with status 3"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", 128 + 11, "was ended by SIGSEGV"),
        ("os.kill(os.getpid(), signal.SIGKILL)", 128 + 9, "was ended by SIGKILL"),
    ]
    commands = [
        ["run", "--nprocs", "2", path, end, f"{tmp_path}/ready{number}"]
        for number, (end, *_) in enumerate(cases)
    ]
    for (end, status, words), answer in zip(cases, answers(*commands), strict=True):
        with subtests.test(end):
            assert answer.status == status
            assert answer.errors.startswith(f"distlab: rank 1 of 2 {words}")


def test_the_failure_is_told_once(script):
    done = run("--nprocs", "1", script("raise ValueError('wrong')"))
    assert done.returncode == 1
    assert re.search(r"^\[rank 0\] Traceback", done.stdout)
    assert done.stdout.count("ValueError: wrong") == 1
    said = r"distlab: rank 0 of 1 failed: ValueError: wrong \(.*, line \d+ in <module>\)\n"
    assert re.fullmatch(said, done.stderr)


@pytest.mark.skipif(not find_spec("torch"), reason="torch is not installed")
@pytest.mark.parametrize("options", [["--framework", "torch"], []])
def test_only_the_cause_prints_its_traceback(script, tmp_path, options):
    path = script("""
        open(f"here{rank}", "w").close()
        while not os.path.exists(f"here{1 - rank}"):
            time.sleep(0.01)
        if rank == 1:
            raise ValueError("bad batch")
        raise RuntimeError("[pair.cc:553] Connection closed by peer")
    """)
    done = run(*options, "--nproc_per_node", "2", path, cwd=tmp_path)  # as torchrun has it
    assert re.search(r"^\[rank 1\] Traceback", done.stdout, re.MULTILINE)
    gone = r"^\[rank 0\] Another rank is gone \(.*, line 9 in <module>\)$"
    assert bool(re.search(gone, done.stdout, re.MULTILINE)) == bool(options), "only in a group"
    assert done.stdout.count("Traceback") == 2 - bool(options)
    said, others = done.stderr.splitlines()
    assert re.search(r"rank 1 of 2 failed: ValueError: bad batch \(.*, line 8.*\)", said)
    assert others == "As a result, rank 0 lost connections."


def test_equal_failures_are_told_once_and_endless_ones_shortened(script, tmp_path):
    path = script("""
        def first(): second()
        def second(): first()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open(f"here{rank}", "w").close()
        while not os.path.exists(f"here{1 - rank}"):
            time.sleep(0.01)
        first()
    """)
    done = run("--nprocs", "2", path, cwd=tmp_path)
    words = "RecursionError: maximum recursion depth exceeded"
    assert re.fullmatch(rf"distlab: both ranks failed: {words}.*\n", done.stderr)
    assert len(done.stdout.splitlines()) < 200
    assert done.stdout.count(words) == 2


def test_a_timeout_shows_where_the_ranks_were(script):
    path = script("""
        def wait_for_godot():
            time.sleep(600)
        wait_for_godot()
    """)
    done = run("--nprocs", "2", "--timeout", "1", path)
    assert done.returncode == 124
    assert "ranks 0 and 1, each: was still running" in done.stderr
    headline, below = done.stderr.split("\n", 1)
    assert re.search(r" Where they were: ranks 0 and 1 at .* in wait_for_godot", headline)
    assert below.count("in wait_for_godot") == 1


# Ends from outside.

WAITING = """
    def end(*_):
        time.sleep(2.2)  # longer than what a notebook's cancel() waits
        print("saved", flush=True)
        sys.exit(0)
    signal.signal(signal.SIGTERM, end)
    print("ready", os.getpid(), flush=True)
    while True:
        signal.pause()
"""
STUBBORN = """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    print("ready", os.getpid(), flush=True)
    time.sleep(600)
"""


def test_a_signal_stops_everything(script, subtests):
    path = script(WAITING)
    with contextlib.ExitStack() as stack:
        sent = []
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            process = stack.enter_context(started("--nprocs", "2", path))
            sent.append((number, process, {*pids(process, 2), *family(process.pid)}))
            process.send_signal(number)
        for number, process, everything in sent:
            with subtests.test(number.name):
                rest, errors = process.communicate(timeout=60)
                assert process.returncode == 128 + number
                assert sorted(rest.splitlines()) == ["[rank 0] saved", "[rank 1] saved"]
                said = f"stopped by {number.name}"
                if number == signal.SIGINT:
                    said = r"interrupted; ranks 0 and 1 at .*, line \d+ in <module>"
                assert re.fullmatch(f"distlab: {said}\n", errors)
                assert wait_gone(everything, 10) == []


def test_a_script_that_is_silent_is_said_to_be_somewhere(script):
    path = script("""
        print("ready", flush=True)
        time.sleep(1.5 * (os.environ["RANK"] == "1"))
    """)
    quiet = "import distlab.__main__ as it; it._LONG = 0.5; it.commands()"
    command = [sys.executable, "-c", quiet, "run", "--nprocs", "2", path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    where = r"distlab: silent for 0.5 s: rank 1 at .*, line \d+ in <module>\n"
    assert re.match(where, done.stderr)


def test_a_second_ctrl_c_does_not_wait_for_the_stubborn(script):
    with started("--nprocs", "2", script(STUBBORN)) as process:
        everything = {*pids(process, 2), *family(process.pid)}
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.1)
        assert time.monotonic() - began < 1.5, "it waited for ranks that ignore SIGTERM"
        assert process.returncode == 130
        assert process.stderr.read() == ""
        assert wait_gone(everything, 10) == []


def test_when_nobody_reads_any_more(script):
    path = script("""
        print("ready", os.getpid(), flush=True)
        while True:
            print("more", flush=True)
            time.sleep(0.01)
    """)
    with started("--nprocs", "2", path) as process:
        ranks = pids(process, 2)
        process.stdout.close()
        assert process.wait(10) == 1
        assert process.stderr.read() == ""
        assert wait_gone(ranks, 10) == []


# Errors of use.


def test_errors_of_use(script, tmp_path, subtests):
    path = script("print('never')")
    cases = [
        ("", "Missing argument 'SCRIPT'."),
        ("--nprocs 2", "Missing argument 'SCRIPT'."),
        ("SCRIPT", "Say how many ranks there are, before the script: --nprocs N."),
        ("SCRIPT --lr 1 --nprocs 2", "before the script: --nprocs N."),
        (
            "--nprocs two SCRIPT",
            "Invalid value for '--nprocs' / '--nproc-per-node': 'two' is not a valid integer",
        ),
        ("--nprocs 0 SCRIPT", "nprocs must be from 1 to 512, not 0."),
        ("--nprocs 2 nowhere.py", "There is no script '/"),
        ("--nprocs 2 folder", "folder'."),
        ("--nprocs 2 --framework pytorch SCRIPT", "did you mean 'torch'?"),
        ("--nprocs 2 --devices-per-rank 2 SCRIPT", "devices_per_rank is for JAX and TensorFlow"),
        ("--nprocs 2 --timeout nan SCRIPT", "A timeout must be above 0 seconds, not nan."),
        ("--nproc 2 SCRIPT", "Did you mean one of: '--nproc-per-node', '--nprocs'?"),
        ("--quiet --nprocs 2 SCRIPT", "No such option '--quiet'."),
        (
            "--nprocs 2 --engine kubernetes SCRIPT",
            "engine is 'kubernetes'; expected None, for this",
        ),
        ("--nprocs 2 --max-restarts -1 SCRIPT", "max_restarts must be from 0 to 512, not -1."),
    ]
    (tmp_path / "folder").mkdir()
    commands = [["run", *words.replace("SCRIPT", path).split()] for words, _ in cases]
    found = answers(*commands, cwd=tmp_path)
    # The same from the shell.
    done = subprocess.run([*COMMAND, "doctr"], capture_output=True, text=True, check=False)
    unknown = Answer(done.returncode, done.stdout, done.stderr)
    cases.append(("doctr", "No such command 'doctr'. Did you mean 'doctor'?"))
    for (words, complaint), answer in zip(cases, [*found, unknown], strict=True):
        with subtests.test(words):
            assert (answer.status, answer.out) == (2, "")
            assert answer.errors.startswith("Usage: ")
            assert complaint in answer.errors.splitlines()[-1]


def test_checkpoint_and_restarts(script, tmp_path):
    path = script("""
        saved = os.environ["DISTLAB_CHECKPOINT"]
        if not os.path.exists(saved):
            open(saved, "w").close()
            sys.exit("once")
        print("again")
    """)
    done = run(
        "--nprocs", "1", "--checkpoint", str(tmp_path / "saved"), "--max-restarts", "1", path
    )
    assert done.returncode == 0, done.stderr
    assert "[rank 0] again\n" in done.stdout


def test_help(subtests):
    commands = (["--help"], ["run", "--help"], ["doctor", "--help"])
    for words, answer in zip(commands, answers(*commands), strict=True):
        with subtests.test(words=words):
            assert (answer.status, answer.errors) == (0, "")
            assert answer.out.startswith("Usage: python -m distlab")
