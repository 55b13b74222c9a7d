"""The command: run a script as several ranks, check this machine, estimate a training step."""

import io
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import click

import distlab
from distlab.costs.command import costs
from distlab.frameworks import FRAMEWORKS
from distlab.launching.kernel import following
from distlab.launching.kernel.arguments import check_timeout
from distlab.launching.kernel.failures import still_running, whereabouts
from distlab.launching.kernel.job import Job
from distlab.launching.launch import launch
from distlab.launching.rank_errors import JobTimeoutError, RankError, alike, causes, name_ranks
from distlab.launching.tracebacks import headline, own_place

TIMED_OUT = 124
"""The exit status of the command `timeout`, too."""
_SIGNALLED = 128
"""What shells add to the number of the signal that ended a process."""
_LONG = 10.0
"""Seconds of silence that may be a hang."""
_EXAMPLE = "Example: python -m distlab run --framework torch --nprocs 4 train.py --lr 0.1"


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EXAMPLE)
@click.version_option(distlab.__version__, message="distlab %(version)s")
def commands() -> None:
    """Run a script as several ranks, check this machine, or estimate a training step."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what ranks print may not fit the terminal
            stream.reconfigure(errors="backslashreplace")


@commands.result_callback()
def _tell(answer: str | None) -> None:
    if answer is not None:
        click.echo(answer)


commands.add_command(costs)


@commands.command()
@click.option(
    "--clean",
    is_flag=True,
    help="End your processes that no kernel steers any more, and remove the directories of runs "
    "that have ended.",
)
def doctor(clean: bool) -> None:
    """Check versions, whether groups of ranks form, and what earlier runs have left behind.

    The exit status is 1 if something is marked as a problem and 0 otherwise; notes are good to
    know.
    """
    from distlab.launching.doctor import examine

    problems = 0
    for title, findings in examine(clean):
        click.echo(title)
        for level, words in findings:
            click.echo(f"  {level:<8} " + words.replace("\n", "\n" + 11 * " "))
            problems += level == "problem"
        click.echo()
    click.echo("Not all is well: see what is marked as a problem." if problems else "All is well.")
    sys.exit(1 if problems else 0)


_AS_TORCHRUN = {
    "allow_interspersed_args": False,
    "token_normalize_func": lambda word: word.replace("_", "-"),  # --nproc_per_node
}


@commands.command(context_settings=_AS_TORCHRUN, epilog=_EXAMPLE)
@click.option("--framework", metavar=f"[{'|'.join(FRAMEWORKS)}]", help="Whose group they can form.")
@click.option(
    "--nprocs", "--nproc-per-node", "nprocs", type=int, metavar="N", help="How many ranks."
)
@click.option("--devices-per-rank", type=int, metavar="N", help="JAX, TensorFlow: virtual devices.")
@click.option("--timeout", type=float, metavar="SECONDS", help="End the ranks after so long.")
@click.option(
    "--grace",
    type=float,
    default=30.0,
    metavar="SECONDS",
    help="What ranks have to save and end, after SIGTERM or Ctrl-C, before they are killed; 30.",
)
@click.option("--checkpoint", metavar="PATH", help="Start all ranks again when one is lost.")
@click.option("--max-restarts", type=int, metavar="N", help="By default 3 with --checkpoint.")
@click.option("--engine", metavar="[ray]", help="Start them on a Ray cluster, a CPU for each.")
@click.option("--address", metavar="HOST:PORT", help="Where a Ray cluster runs already.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def run(context: click.Context, /, script: str, arguments: tuple[str, ...], **given: Any) -> None:
    """Run a script as several ranks that can form a group, and show what they print.

    The ranks have the environment and the directory of this command. Its exit status is that of
    the first rank that failed; 124 after a timeout. The script finds the PATH of --checkpoint in
    DISTLAB_CHECKPOINT. In a program, distlab.launch has more options.
    """
    if given["nprocs"] is None:
        context.fail("Say how many ranks there are, before the script: --nprocs N.")
    try:
        check_timeout(grace := given.pop("grace"), "--grace")
        if (address := given.pop("address")) is not None:
            given["engine"] = distlab.Ray(address=address)
        job = launch(script, args=arguments, **given)
    except (TypeError, ValueError, OSError, ModuleNotFoundError) as error:
        context.fail(str(error))
    sys.exit(_follow(job, grace))


def _follow(job: Job, grace: float) -> int:
    """Show what the ranks of a job print, to its end; the exit status."""
    received, places = _stop_on_signals(job, grace)
    with job:  # which ends where nobody reads any more
        following.follow(job._record, range(job.nprocs), _tell_of_silence(job))
        error = job.exception()
    if received:
        name = "interrupted" if received[0] == signal.SIGINT else f"stopped by {received[0].name}"
        click.echo("; ".join([f"distlab: {name}", *places]), err=True)
        return _SIGNALLED + received[0]
    if error is None:
        return 0
    click.echo(f"distlab: {_summary(error)}", err=True)
    return _exit_status(job, error)


def _tell_of_silence(job: Job) -> Callable[..., None]:
    """Say where the ranks are when they have printed nothing for ten seconds, twenty, forty."""
    since, long = time.monotonic(), _LONG

    def tick(printed: bool = False) -> None:
        nonlocal since, long
        if printed:
            since, long = time.monotonic(), _LONG
        elif time.monotonic() - since > long:
            places = whereabouts(job._record, still_running(job._record))
            if places:
                click.echo(f"distlab: silent for {long:g} s: {'; '.join(places)}", err=True)
            long *= 2

    return tick


def _stop_on_signals(job: Job, grace: float) -> tuple[list[signal.Signals], list[str]]:
    """Have the signals that ask a command to end stop the job; return those that have come.

    And where the ranks were at an interrupt. What ranks print while they end is still shown. A
    second signal ends this process at once, and the ranks with it.
    """
    received: list[signal.Signals] = []
    places: list[str] = []

    def stop() -> None:
        if received[0] == signal.SIGINT:
            places.extend(whereabouts(job._record, still_running(job._record)))
        job.cancel(grace)

    def handle(number: int, _: object) -> None:
        if received:
            os._exit(_SIGNALLED + number)
        received.append(signal.Signals(number))
        # The signal may have come while this thread holds what stopping the job needs.
        threading.Thread(target=stop, daemon=True).start()

    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(each) != signal.SIG_IGN:
            signal.signal(each, handle)
    return received, places


def _summary(error: RankError) -> str:
    """What went wrong, less the output and the tracebacks that have been shown already."""
    if isinstance(error, JobTimeoutError):  # where the ranks were has not been shown
        return str(error)
    words = re.sub(r'with framework="(\w+)"', r"with --framework \1", error.headline)
    lines = [re.sub(r'env={"(\w+)": "(\w+)"}', r"\1=\2 in the environment", words)]
    trace = error.failures[0].traceback if error.failures else ""
    if place := own_place(trace):
        first, *hints = lines[0].splitlines()
        lines = [f"{first} ({place})", *hints]
    told = causes(error.failures)
    for group in alike(told)[1:]:
        lines.append(f"then failed {name_ranks(group)}: {headline(group[0].what)}")
    if victims := [each for each in error.failures if each not in told]:
        lines.append(f"As a result, {name_ranks(victims)} lost connections.")
    return "\n".join(lines)


def _exit_status(job: Job, error: RankError) -> int:
    if isinstance(error, JobTimeoutError):
        return TIMED_OUT
    status = job.status[error.failures[0].rank].exitcode if error.failures else None
    if not status:  # it ended well before its script did, or with its supervisor
        return 1
    return status if status > 0 else _SIGNALLED - status


if __name__ == "__main__":
    commands(prog_name="python -m distlab")
