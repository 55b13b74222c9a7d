"""Run a script as several ranks, or look whether all is well on this machine."""

import argparse
import io
import os
import signal
import sys
import threading
from dataclasses import replace
from typing import NoReturn

from distlab import __version__
from distlab.errors import JobTimeoutError, WorkerError, alike, name_ranks
from distlab.frameworks import FRAMEWORKS, check_name
from distlab.job import Job
from distlab.launch import launch

USAGE_ERROR = 2
TIMED_OUT = 124
"""The exit status of the command `timeout`, too."""
_EXAMPLE = "Example: python -m distlab run --framework torch --nprocs 4 train.py --lr 0.1"
_COUNTS = ("--nprocs", "--framework", "--role", "--timeout")
"""What is often put after the script by mistake."""
_SIGNALLED = 128
"""What shells add to the number of the signal that ended a process."""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, instead of the whole usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE_ERROR, f"{self.prog}: {message}\n")


def main(arguments: list[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: The words after `python -m distlab`; by default those of this process.

    Returns:
        The exit status.
    """
    words = sys.argv[1:] if arguments is None else arguments
    parser, run_parser = _parsers()
    if not words:  # somebody who asks what there is
        parser.print_help()
        return 0
    options = parser.parse_args(words)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what ranks print may not fit the terminal
            stream.reconfigure(errors="backslashreplace")
    try:
        if options.command == "doctor":
            return _doctor(options.clean)
        # argparse takes away a `--` that the script is meant to see.
        before = len(words) - len(options.arguments) - 1
        if words[before] == "--":
            options.arguments.insert(0, "--")
        return _run(options, run_parser)
    except KeyboardInterrupt:
        return _SIGNALLED + signal.SIGINT


def _parsers() -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
    """The parser of everything, and that of `run`."""
    parser = _Parser(
        prog="python -m distlab", description=__doc__, epilog=_EXAMPLE, allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"distlab {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="run | doctor")
    run = commands.add_parser(
        "run",
        help="run a script as several ranks",
        description="Run a script as several ranks that can form a group, and show what they "
        "print. The exit status is that of the first rank that failed; 124 after a timeout.",
        epilog=_EXAMPLE,
        allow_abbrev=False,
    )
    run.add_argument(
        "--framework",
        type=_framework,
        metavar=f"{{{','.join(FRAMEWORKS)}}}",
        help="tell ranks their place as this one expects it",
    )
    run.add_argument("--nprocs", type=int, metavar="N", help="how many ranks")
    run.add_argument(
        "--role",
        type=_role,
        action="append",
        metavar="ROLE=N",
        help="TensorFlow: how many of chief, worker, ps or evaluator; may be repeated",
    )
    run.add_argument(
        "--env",
        type=_assignment,
        action="append",
        metavar="NAME=VALUE",
        help="set a variable in the ranks; may be repeated",
    )
    run.add_argument(
        "--devices-per-rank",
        type=int,
        metavar="N",
        help="JAX, TensorFlow: virtual CPU devices in each rank",
    )
    run.add_argument("--timeout", type=float, metavar="SECONDS", help="end the ranks after so long")
    run.add_argument("--cwd", metavar="DIR", help="the directory to work in")
    run.add_argument("--fresh", action="store_true", help="new interpreters instead of forks")
    run.add_argument("script", help="the script's path")
    rest = run.add_argument(
        "arguments", nargs=argparse.REMAINDER, help="the script's own arguments"
    )
    rest.required = False
    doctor = commands.add_parser(
        "doctor",
        help="check this machine",
        description="Check versions, whether groups of ranks form, and what earlier runs have "
        "left behind. The exit status is 1 if something is marked as a problem and 0 otherwise; "
        "notes are good to know.",
        allow_abbrev=False,
    )
    doctor.add_argument(
        "--clean",
        action="store_true",
        help="end your processes that no kernel steers any more, and remove the directories of "
        "runs that have ended",
    )
    return parser, run


def _doctor(clean: bool) -> int:
    from distlab import doctor

    problems = 0
    for title, findings in doctor.examine(clean):
        print(title)
        for finding in findings:
            print(finding, flush=True)
            problems += finding.level == "problem"
        print()
    print("Not all is well: see what is marked as a problem." if problems else "All is well.")
    return 1 if problems else 0


def _framework(word: str) -> str:
    try:
        return check_name(word)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _assignment(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{word!r} is not NAME=VALUE, such as A=1")
    return name, value


def _role(word: str) -> tuple[str, int]:
    name, _, count = word.partition("=")
    if not name or not count.isdecimal():
        raise argparse.ArgumentTypeError(f"{word!r} is not ROLE=N, such as worker=2")
    return name, int(count)


def _run(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    if options.nprocs is None and not options.role:
        if after := [word for word in options.arguments if word.split("=")[0] in _COUNTS]:
            parser.error(
                f"{after[0]} stands after the script, which gets it: put it before {options.script}"
            )
        parser.error("say how many ranks there are: --nprocs N")
    try:
        job = launch(
            options.script,
            options.nprocs,
            options.framework,
            options.arguments,
            env=dict(options.env or ()),
            devices_per_rank=options.devices_per_rank,
            roles=dict(options.role) if options.role else None,
            timeout=options.timeout,
            cwd=options.cwd,
            fresh=options.fresh,
        )
    except (TypeError, ValueError, OSError, ModuleNotFoundError) as error:
        parser.error(str(error))
    received = _stop_on_signals(job)
    try:
        job.follow()
    except BrokenPipeError:  # nobody reads any more
        job.stop()
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _SIGNALLED + signal.SIGPIPE
    try:
        job.wait()
    except WorkerError as error:
        if not received:
            _say(_summary(error))
            return _exit_status(job, error)
    if received:
        _say(f"stopped by {received[0].name}")
        return _SIGNALLED + received[0]
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
        threading.Thread(target=job.stop, daemon=True).start()

    named = [getattr(signal, name, None) for name in ("SIGINT", "SIGTERM", "SIGHUP")]
    handled = [each for each in named if each and signal.getsignal(each) != signal.SIG_IGN]
    for each in handled:
        signal.signal(each, handle)
    return received


def _summary(error: WorkerError) -> str:
    """What went wrong, less the output and the tracebacks that have been shown already."""
    groups = alike(error.failures)
    if isinstance(error, JobTimeoutError):
        names = [f"{name_ranks(one)}{', each' * (len(one) > 1)}" for one in groups]
        stacks = [
            str(replace(one[0], name=name, output=""))
            for one, name in zip(groups, names, strict=True)
        ]
        return "\n".join([str(error).partition("\n\n")[0], *stacks])
    lines = [str(error).partition("\n\n")[0]]
    later = [replace(one[0], name=name_ranks(one)) for one in groups]
    if groups and (same := groups[0][1:]):
        later[0] = replace(same[0], name=name_ranks(same))
    else:
        later = later[1:]
    lines += [f"then failed {failure.name}: {failure.what}" for failure in later]
    if error.failures and error.others:
        lines.append(f"because of it stopped: {', '.join(other.name for other in error.others)}")
    return "\n".join(lines)


def _exit_status(job: Job, error: WorkerError) -> int:
    if isinstance(error, JobTimeoutError):
        return TIMED_OUT
    status = job.status[error.failures[0].rank].status if error.failures else None
    if not status:  # it ended well before its script did, or with its supervisor
        return 1
    return status if status > 0 else _SIGNALLED - status


def _say(words: str) -> None:
    print(f"distlab: {words}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
