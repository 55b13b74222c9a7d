"""Run a script as several ranks, check this machine, or estimate what a training step takes."""

import argparse
import io
import os
import signal
import sys
import threading
import traceback
from dataclasses import replace
from pathlib import Path

from distlab.errors import JobTimeoutError, RankError, alike, name_ranks
from distlab.launching.kernel.job import Job
from distlab.launching.launch import launch
from distlab.launching.tracebacks import headline
from distlab.options import USAGE_ERROR, check, engine, note, parsers

TIMED_OUT = 124
"""The exit status of the command `timeout`, too."""
_SIGNALLED = 128
"""What shells add to the number of the signal that ended a process."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: The words after `python -m distlab`; by default those of this process.

    Returns:
        The exit status.
    """
    try:
        try:
            return _obey(sys.argv[1:] if arguments is None else arguments)
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


def _obey(words: list[str]) -> int:
    parser, run_parser = parsers(*words[:1])
    if not words:  # somebody who asks what there is
        parser.print_help()
        return 0
    options = parser.parse_args(words)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what ranks print may not fit the terminal
            stream.reconfigure(errors="backslashreplace")
    if options.command == "doctor":
        return _doctor(options.clean)
    if options.command == "costs":
        return _costs(options, parser)
    # argparse takes away a `--` that the script is meant to see.
    before = len(words) - len(options.arguments) - 1
    if words[before] == "--":
        options.arguments.insert(0, "--")
    return _run(options, run_parser)


def _doctor(clean: bool) -> int:
    from distlab.launching import doctor

    problems = 0
    for title, findings in doctor.examine(clean):
        print(title)
        for finding in findings:
            print(finding, flush=True)
            problems += finding.level == "problem"
        print()
    print("Not all is well: see what is marked as a problem." if problems else "All is well.")
    return 1 if problems else 0


def _costs(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    from distlab.costs.command import answer

    try:
        print(answer(options), flush=True)
    except (TypeError, ValueError) as error:
        parser.exit(USAGE_ERROR, f"{parser.prog} costs: {error}\n")
    except BrokenPipeError:
        raise
    except OSError as error:  # a full disk, for one
        _unread()  # what is left to write has no place either
        parser.exit(1, f"{parser.prog} costs: the answer cannot be written: {error.strerror}\n")
    return 0


def _check_readable(script: str) -> None:
    """Raise a ValueError, in the words of the command line, for a script that cannot be read."""
    try:
        Path(script).read_bytes()
    except FileNotFoundError:
        where = "" if Path(script).is_absolute() else f" in {str(Path.cwd())!r}"
        raise ValueError(f"there is no script {script!r}{where}") from None
    except IsADirectoryError:
        raise ValueError(f"{script!r} is a directory: name a script in it") from None
    except OSError as error:
        raise ValueError(f"the script {script!r} cannot be read: {error.strerror}") from None


def _run(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    try:
        check(options)
        _check_readable(options.script)
        if words := note(options):
            _say(words)
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
            start_method=options.start_method,
            checkpoint=options.checkpoint,
            max_restarts=options.max_restarts,
            engine=engine(options),
        )
    except SyntaxError as error:
        sys.stderr.write("".join(traceback.format_exception_only(error)))
        _say("no rank was started")
        return 1
    except (TypeError, ValueError, OSError, ModuleNotFoundError) as error:
        parser.error(str(error))
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
        threading.Thread(target=job.cancel, daemon=True).start()

    named = [getattr(signal, name, None) for name in ("SIGINT", "SIGTERM", "SIGHUP")]
    handled = [each for each in named if each and signal.getsignal(each) != signal.SIG_IGN]
    for each in handled:
        signal.signal(each, handle)
    return received


def _summary(error: RankError) -> str:
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
