"""The command: run a script as several ranks, check this machine, estimate a training step."""

import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import click

import distlab
from distlab.costs.command import costs
from distlab.errors import JobTimeoutError, RankError, alike, did_you_mean, name_ranks
from distlab.frameworks import FRAMEWORKS
from distlab.launchers import ROLES
from distlab.launching.kernel.job import Job
from distlab.launching.launch import launch
from distlab.launching.tracebacks import headline

TIMED_OUT = 124
"""The exit status of the command `timeout`, too."""
_SIGNALLED = 128
"""What shells add to the number of the signal that ended a process."""
_PROGRAM = "python -m distlab"
_EXAMPLE = f"Example: {_PROGRAM} run --framework torch --nprocs 4 train.py --lr 0.1"


def main(arguments: list[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: The words after `python -m distlab`; by default those of this process.

    Returns:
        The exit status.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what ranks print may not fit the terminal
            stream.reconfigure(errors="backslashreplace")
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        try:
            return _obey(arguments or ["--help"])
        finally:
            if sys.stdout is not None:  # as it is where the shell has closed it
                sys.stdout.flush()
    except KeyboardInterrupt:
        return _SIGNALLED + signal.SIGINT
    except BrokenPipeError:
        return _unread()


def _unread() -> int:
    """End as a command does whose output nobody reads any more, such as `| head` at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return _SIGNALLED + signal.SIGPIPE


def _obey(arguments: list[str]) -> int:
    # Not click's own way to run a command, which has a way of its own with interrupts.
    try:
        with commands.make_context(_PROGRAM, list(arguments)) as context:
            answer = commands.invoke(context)
    except click.exceptions.Exit as end:  # after --help, for one
        return end.exit_code
    except click.UsageError as error:  # in one line, where click shows the usage, too
        words, path = error.format_message(), error.ctx.command_path if error.ctx else _PROGRAM
        if isinstance(error, click.NoSuchOption) and error.ctx:
            known = [name for each in error.ctx.command.params for name in each.opts]
            words = f"{error.option_name} is no option.{did_you_mean(error.option_name, known)}"
        print(f"{path}: {words}", file=sys.stderr)
        return error.exit_code
    if isinstance(answer, int):
        return answer
    print(answer, flush=True)
    return 0


def _pair(metavar: str, example: str, kind: type = str) -> Callable[[str], tuple[str, Any]]:
    """What reads a word such as `NAME=VALUE`."""

    def read(word: str) -> tuple[str, Any]:
        name, equals, value = word.partition("=")
        with contextlib.suppress(ValueError):
            if name and equals:
                return name, kind(value)
        raise click.BadParameter(f"{word!r} is not {metavar}, such as {example}")

    return read


def _option(
    name: str, kind: Any, metavar: str | None, words: str, example: str = ""
) -> click.Option:
    if example:  # of one that may be repeated
        kind, words = _pair(metavar or "", example, kind), f"{words} May be repeated."
    taken = {"type": kind, "metavar": metavar, "multiple": bool(example), "default": None}
    return click.Option(name.split(), help=words, **taken)


_OPTIONS = [
    _option("--framework", str, f"[{'|'.join(FRAMEWORKS)}]", "Tell ranks their place its way."),
    _option("--nprocs", int, "N", "How many ranks."),
    _option("--role roles", int, "ROLE=N", f"TensorFlow: {', '.join(ROLES)}.", "worker=2"),
    _option("--env", str, "NAME=VALUE", "Set a variable in the ranks.", "A=1"),
    _option("--devices-per-rank", int, "N", "JAX, TensorFlow: virtual CPU devices in each rank."),
    _option("--timeout", float, "SECONDS", "End the ranks after so long."),
    _option("--checkpoint", str, "PATH", "Start all ranks again when one is lost."),
    _option("--max-restarts", int, "N", "How many times; 3 with --checkpoint, else 0."),
    _option("--cwd", str, "DIR", "The directory to work in."),
    _option("--start-method", click.Choice(["fork", "spawn"]), None, "How ranks are started."),
    _option("--engine", str, "[ray]", "Start them on a Ray cluster."),
]
_OF_RAY = [
    _option("--address", str, "HOST:PORT", "Ray: a running cluster; else one is started here."),
    _option("--resource resources", float, "NAME=N", "Ray: for each rank; else CPU=1.", "GPU=1"),
    _option("--strategy", str, "NAME", "Ray: PACK, SPREAD, STRICT_PACK or STRICT_SPREAD."),
    _option("--upload-cwd/--no-upload-cwd", bool, None, "Ray: send the working directory."),
    _option("--placement-timeout", float, "SECONDS", "Ray: how long to wait for room; else 60."),
]
"""By the names of `distlab.Ray`'s arguments."""


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EXAMPLE)
@click.version_option(distlab.__version__, message="distlab %(version)s")
def commands() -> None:
    """Run a script as several ranks, check this machine, or estimate a training step."""


commands.add_command(costs)


@commands.command()
@click.option(
    "--clean",
    is_flag=True,
    help="End your processes that no kernel steers any more, and remove the directories of runs "
    "that have ended.",
)
def doctor(clean: bool) -> int:
    """Check versions, whether groups of ranks form, and what earlier runs have left behind.

    The exit status is 1 if something is marked as a problem and 0 otherwise; notes are good to
    know.
    """
    from distlab.launching.doctor import examine

    problems = 0
    for title, findings in examine(clean):
        print(title)
        for finding in findings:
            print(finding, flush=True)
            problems += finding.level == "problem"
        print()
    print("Not all is well: see what is marked as a problem." if problems else "All is well.")
    return 1 if problems else 0


@commands.command(
    context_settings={"allow_interspersed_args": False},
    epilog=_EXAMPLE,
    params=[
        *_OPTIONS,
        *_OF_RAY,
        click.Argument(["script"]),
        click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED),
    ],
)
@click.pass_context
def run(context: click.Context, /, script: str, arguments: tuple[str, ...], **given: Any) -> int:
    """Run a script as several ranks that can form a group, and show what they print.

    The exit status is that of the first rank that failed; 124 after a timeout. The script finds
    the PATH of --checkpoint in DISTLAB_CHECKPOINT.
    """
    given = {name: value for name, value in given.items() if value not in (None, ())}
    if not given.keys() & {"nprocs", "roles"}:
        context.fail("Say how many ranks there are, before the script: --nprocs N.")
    given |= {name: dict(given[name]) for name in given.keys() & {"roles", "env", "resources"}}
    asked = {each.name: given.pop(each.name) for each in _OF_RAY if each.name in given}
    if asked and given.get("engine") != "ray":
        words = [each.opts[-1] for each in _OF_RAY if each.name in asked]
        context.fail(f"{words[0]} is for --engine ray.")
    try:
        if asked:
            given["engine"] = distlab.Ray(**asked)
        job = launch(script, args=arguments, **given)
    except (TypeError, ValueError, OSError, ModuleNotFoundError) as error:
        context.fail(str(error))
    return _follow(job)


def _follow(job: Job) -> int:
    """Show what the ranks of a job print, to its end; the exit status."""
    received = _stop_on_signals(job)
    try:
        job.follow()
    except BrokenPipeError:  # nobody reads any more
        job.cancel()
        return _unread()
    try:
        job.results()
    except RankError as error:
        if not received:
            _say(_summary(error))
            return _exit_status(job, error)
    if received:
        first = received[0]
        _say("interrupted" if first == signal.SIGINT else f"stopped by {first.name}")
        return _SIGNALLED + first
    return 0


def _stop_on_signals(job: Job) -> list[signal.Signals]:
    """Have the signals that ask a command to end stop the job; return those that have come.

    What ranks print while they end is still shown. A second signal ends this process at once,
    and the ranks with it.
    """
    received: list[signal.Signals] = []

    def handle(number: int, _: object) -> None:
        received.append(signal.Signals(number))
        if len(received) > 1:
            for each in handled:  # a third would find Python half ended, and change its exit status
                signal.signal(each, signal.SIG_IGN)
            raise KeyboardInterrupt
        # The signal may have come while this thread holds what stopping the job needs.
        threading.Thread(target=job.cancel, daemon=True).start()

    named = [getattr(signal, name, None) for name in ("SIGINT", "SIGTERM", "SIGHUP")]
    handled = [each for each in named if each and signal.getsignal(each) != signal.SIG_IGN]
    for each in handled:
        signal.signal(each, handle)
    return received


def _summary(error: RankError) -> str:
    """What went wrong, less the output and the tracebacks that have been shown already."""
    if isinstance(error, JobTimeoutError):  # where the ranks were has not been shown
        return str(error)
    groups, lines = alike(error.failures), [str(error).partition("\n\n")[0]]
    if groups and (same := groups[0][1:]):
        lines.append(f"then failed {name_ranks(same)} with the same error")
    lines += [f"then failed {name_ranks(one)}: {headline(one[0].what)}" for one in groups[1:]]
    if error.failures and error.others:
        lines.append(f"because of it stopped: {', '.join(other.name for other in error.others)}")
    return "\n".join(lines)


def _exit_status(job: Job, error: RankError) -> int:
    if isinstance(error, JobTimeoutError):
        return TIMED_OUT
    status = job.status[error.failures[0].rank].exitcode if error.failures else None
    if not status:  # it ended well before its script did, or with its supervisor
        return 1
    return status if status > 0 else _SIGNALLED - status


def _say(words: str) -> None:
    print(f"distlab: {words}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
