"""What is left of a job that did not come to a good end, gathered into one error."""

import math
import os
import re
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path

from distlab.launching import tracebacks
from distlab.launching.kernel.accounts import account, read_report
from distlab.launching.kernel.record import JobRecord
from distlab.launching.kernel.status import LOST, RankStatus, label
from distlab.launching.protocol.files import rank_file
from distlab.launching.protocol.messages import WriteStacks
from distlab.launching.rank_errors import (
    PEER_GONE,
    JobTimeoutError,
    RankError,
    RankFailure,
    alike,
    name_ranks,
)


def rank_error(record: JobRecord, headline: str | None = None) -> RankError:
    """The error for a job that did not come to a good end, the first rank to fail first."""
    if record.how == "timeout":
        seconds = f" of {record.timeout:g} s" if record.timeout is not None else ""
        return timeout_error(record, f"The job did not end within its timeout{seconds}.")
    if record.how == "lost":
        headline = record.why_lost
    ranks = record.statuses()
    found = in_turn(record.directory, ranks)
    failures = [said for _, said in found]
    failed = [status for status, _ in found]
    stopped = [s for s in ranks if s.state == "stopped" and s.pid is not None and s not in failed]
    waited = failures and tracebacks.TIMED_OUT.search(failures[0].what)
    told = _still_running if waited else account
    others = [told(record.directory, ranks, status) for status in stopped]
    if headline is None and failures:
        headline = _headline(ranks, failures) + _hint(record.framework, failures[0])
    stopped_by = "cancelled" if record.cancelled else "stopped"
    return RankError(headline or f"The job was {stopped_by}.", failures, others)


def _headline(ranks: list[RankStatus], failures: list[RankFailure]) -> str:
    """Who failed how, of all ranks: those that failed as the first did, and whom they have lost."""
    what, same = tracebacks.headline(failures[0].what), alike(failures)[0]
    who = name_ranks(same) if len(same) <= _FEW else f"{len(same)} ranks"
    all_ranks = "both ranks" if len(ranks) == 2 else f"all {len(ranks)} ranks"
    who = all_ranks if len(same) == len(ranks) > 1 else f"{who} of {len(ranks)}"
    done = [status.rank for status in ranks if status.state == "done"]
    gone = [RankFailure(rank, label(ranks, rank), "", "", "") for rank in done]
    if done and _LATE in what:  # PyTorch says so of rank 0, the one that has waited
        return f"{who} waited for {name_ranks(gone)}, which had returned already"
    if PEER_GONE.search(what):
        if 0 < len(gone) <= _FEW:
            theirs = "their connections" if same[1:] else "its connection"
            return f"{who} lost {theirs}, as {name_ranks(gone)} had returned already"
        what = "a connection to another rank was closed"
    if what.startswith(("was ", "exited ")):
        return f"{who} {re.sub('^was ', 'were ', what) if same[1:] else what}"
    return f"{who} failed: {what}"


def in_turn(directory: Path, ranks: list[RankStatus]) -> list[tuple[RankStatus, RankFailure]]:
    """The ranks that failed and what is known of each, a cause before what came of it."""
    failed = [status for status in ranks if status.state in LOST]
    stopped = [s for s in ranks if s.state == "stopped" and s.pid is not None]
    if failed:
        failed += [status for status in stopped if _failed_meanwhile(directory, status)]

    def turn(found: tuple[RankStatus, RankFailure]) -> tuple[bool, bool, bool, float]:
        # One that was killed comes first: what others have raised may well come of that, in their
        # own words. One that has lost a peer did not fail first if another has failed otherwise,
        # and nor did one that was to be stopped already, whatever was heard of first.
        status, said = found
        silent = read_report(directory, status.rank, status.attempt) is None
        ended_by = -(status.exitcode or 0) if silent and status.state != "stopped" else 0
        killed = status.state == "killed" or ended_by in (signal.SIGKILL, signal.SIGTERM)
        lost_a_peer = PEER_GONE.search(f"{said.what}\n{said.traceback}") is not None
        when = status.failed or status.ended or math.inf
        return not killed, lost_a_peer, status.state == "stopped", when

    return sorted(((status, _failed(directory, ranks, status)) for status in failed), key=turn)


def _failed(directory: Path, ranks: list[RankStatus], status: RankStatus) -> RankFailure:
    """What is known of a rank that failed, with its stack if it crashed in native code."""
    said = account(directory, ranks, status)
    crashed = not said.traceback and -(status.exitcode or 0) in _CRASHES
    stack = _read_stack(directory, status.rank, status.attempt) if crashed else said.traceback
    return replace(said, traceback=stack)


def _hint(framework: str | None, first: RankFailure) -> str:
    """A line on what the frameworks' own words leave out, where that is known; else nothing."""
    aborted = "SIGABRT" in first.what and "gloo" in first.output
    if aborted or _LATE in first.what or PEER_GONE.search(first.what):
        words = "Do all ranks call the same collectives, as often, with equal shapes and dtypes?"
        words += " Has each recv its send?"
        if framework == "torch" and _LATE not in first.what:
            words += f"\n{_DETAIL} PyTorch says what differs, unless a rank leaves one out."
        return f"\n{words}"
    hints = _UNTOLD if framework is None else _HINTS
    return next((f"\n{hint}" for words, hint in hints.items() if re.search(words, first.what)), "")


_HINTS = {
    r"^NameError: name '(torch|dist|np|numpy|jax|jnp|tf|keras|os|sys|time|math|random)' is not": (
        "Import it in the function, or where the function is defined."
    ),
    r"NCCL built in|NCCL is only supported with GPUs": 'On CPUs, say init_process_group("gloo").',
    "Could not locate (class|function) '": "Make the model in the function, on each rank.",
    "process group has not been init": 'On each rank, first call init_process_group("gloo").',
    r"not compiled with CUDA|_cuda_setDevice|No CUDA GPUs|no NVIDIA driver": "This computer has no "
    'GPU that PyTorch can use: with torch.cuda.is_available() choose "cuda" or "cpu".',
    "^exited with status": "No exception of your code ended the process, but os._exit(), exit() in "
    "native code, os.exec... or an error in an atexit handler: raise an exception, or return.",
    r"^BdbQuit|^EOFError: EOF when": "A rank has no keyboard for breakpoint() or input(): print "
    "there, or call the function here, in this process.",
}
_LATE = "failed to pass monitoredBarrier"
"""What PyTorch says of ranks that did not come, under `DETAIL` before every collective."""
_DETAIL = 'With env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}'
_UNTOLD = _HINTS | {
    "MASTER_ADDR": 'Launch it with framework="torch": then ranks are told where to meet.',
    "coordinator_address": 'Launch it with framework="jax": then ranks are told where to meet.',
}
"""Hints where the launch named no framework."""


def _failed_meanwhile(directory: Path, status: RankStatus) -> bool:
    """Whether a rank failed by itself before it was, or while it should have been, stopped."""
    report = read_report(directory, status.rank, status.attempt)
    if report is not None:  # where the target handles SIGTERM, that is how it left
        return not report["leaves"]
    ended_by = -(status.exitcode or 0)
    return ended_by != 0 and ended_by not in (signal.SIGTERM, signal.SIGKILL)


def timeout_error(record: JobRecord, headline: str) -> JobTimeoutError:
    """The error for a job that takes too long, with the stack that each rank is asked for."""
    ready = record.client.ready.is_set()
    ranks, accounts = record.statuses(), still_running(record)
    if places := whereabouts(record, accounts):
        headline += f" Where they were: {'; '.join(places)}."
    waiting = [s.rank for s in ranks if s.state in ("waiting", "starting")]
    if waiting:
        headline += f" Not started: {', '.join(label(ranks, rank) for rank in waiting)}"
        headline += "." if ready else f" ({record.client.preparing})."
    if record.framework and places[1:]:
        headline += (
            "\nDo all ranks call the same collectives, in the same order, and each recv its send?"
        )
    elif record.framework and "(recv)" in "".join(places):
        headline += "\nHas each recv its send?"
    return JobTimeoutError(headline, accounts, [])


def still_running(record: JobRecord) -> list[RankFailure]:
    """The ranks that run, or were stopped, each with the stack that it is asked for."""
    if record.client.ready.is_set() and record.how is None:
        seen = record.stacks
        record.client.send(record, WriteStacks(job=record.name))
        record.wait_until(lambda: record.stacks > seen or record.how is not None)
    ranks = record.statuses()
    running = [status for status in ranks if status.state in ("running", "paused", "stopped")]
    return [_still_running(record.directory, ranks, status) for status in running]


def _still_running(directory: Path, ranks: list[RankStatus], status: RankStatus) -> RankFailure:
    what = "is paused" if status.state == "paused" else "was still running"
    stack = _read_stack(directory, status.rank, status.attempt)
    return replace(account(directory, ranks, status, what), traceback=stack)


def whereabouts(record: JobRecord, running: list[RankFailure]) -> list[str]:
    """In which line of the reader's ranks are: `rank 3 at Cell In[5], line 4 in f (barrier)`.

    The fewest first: the others may well wait for them.
    """
    at: dict[str, list[RankFailure]] = {}
    for each in running:
        line = _own_line(each.traceback).removeprefix("File ").replace('"', "")
        called = _called(each.traceback)
        if not line and "<frozen importlib" in each.traceback:  # too deep for a stack to end there
            packages = re.findall(r"/site-packages/(\w+)", each.traceback)
            line, called = "".join(f"an import of {name}" for name in packages[-1:]), None
        if called or line:  # the target may have returned, and what called it waits
            inner = f" ({called})" if called and not line.endswith(f" in {called}") else ""
            at.setdefault(f"{f'at {line}' if line else _ELSEWHERE}{inner}", []).append(each)
    groups = sorted(at.items(), key=lambda item: len(item[1]))
    known = not all(where.startswith(_ELSEWHERE) for where in at)
    all_ranks = len(groups) == 1 and len(running) == len(record.ranks) > 2
    who = [f"all {len(running)} ranks" if all_ranks else name_ranks(group) for _, group in groups]
    return [f"{ranks} {where}" for ranks, (where, _) in zip(who, groups, strict=True) if known]


def _called(stack: str) -> str | None:
    """The function that the reader's nearest line has called, less what libraries wrap around it.

    Where that says nothing, the innermost function.
    """
    own = _own_line(stack)
    names = _IN.findall(stack.partition(own)[0]) if own else []
    public = [name for name in names if not name.startswith("_") and name not in _WRAPPERS]
    return next(iter([*public[-1:], *_IN.findall(stack)]), None)


def _read_stack(directory: Path, rank: int, attempt: int) -> str:
    """The Python stacks a rank wrote down when last asked to, less distlab's own lines."""
    path = rank_file(directory, rank, attempt, "stack")
    if not path.exists():
        return ""
    last = _BETWEEN.split(path.read_text(errors="replace").strip())[-1]
    threads = Counter(filter(None, map(_without_own_lines, last.split("\n\n"))))
    stacks = [f"{count} times:\n{text}" if count > 1 else text for text, count in threads.items()]
    stacks.reverse()  # the main thread, which is the last in a dump, says most
    stacks.sort(key=lambda text: not _own_line(text))
    return "\n\n".join(stacks)


def _own_line(stack: str) -> str:
    """The line in no library that is nearest to what a thread does; empty if there is none."""
    lines = (line.strip() for line in stack.splitlines() if _LINE.search(line))
    return next((line for line in lines if not tracebacks.LIBRARY.search(line)), "")


_CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
_ELSEWHERE = "in no line of yours"
_FEW = 8
"""So many ranks a headline names."""
_LINE = re.compile(r", line \d+ in ")
_IN = re.compile(r", line \d+ in (\w+)$", re.MULTILINE)
_WRAPPERS = ("wrapper", "inner", "error_handler", "decorate_context")


_THREAD = re.compile(r"(Current thread|Thread) 0x[0-9a-f]+")
_BETWEEN = re.compile(rf"(?<!\n)\n(?={_THREAD.pattern})")
"""Where one dump of all threads ends and the next one begins: within one there are empty lines."""


def _without_own_lines(thread: str) -> str:
    """A thread's stack less addresses and what is no line of the target's; empty if all is that."""
    lines = thread.splitlines()
    kept = [line for line in lines[1:] if not line.strip().startswith(_OWN_LINES)]
    text = "\n".join([_THREAD.sub(r"\1", lines[0]), *kept]) if kept else ""
    return tracebacks.name_cells(text)


_OWN_LINES = (
    f'File "{Path(__file__).parents[1]}{os.sep}',
    'File "<string>", line 1 in <module>',
)
