"""The words after `python -m distlab`: which there are, and what is wrong with some."""

import argparse
import contextlib
import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

from distlab import __version__
from distlab.frameworks import FRAMEWORKS, check_name
from distlab.launchers import ROLES
from distlab.launching.engines.base import Engine
from distlab.launching.engines.ray import Ray
from distlab.launching.engines.slurm import Slurm
from distlab.launching.kernel.arguments import MAX_RANKS

USAGE_ERROR = 2
_DESCRIPTION = (
    "Run a script as several ranks, look whether all is well on this machine, or estimate what a "
    "training step takes."
)
_EXAMPLE = "Example: python -m distlab run --framework torch --nprocs 4 train.py --lr 0.1"
_COUNTS = ("--nprocs", "--framework", "--role", "--timeout", "--engine", "--nodes")
"""What is often put after the script by mistake."""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, instead of the whole usage."""

    known: Iterable[str] = ()
    """The options that may have been meant."""

    def error(self, message: str) -> NoReturn:
        _, unknown, words = message.partition("unrecognized arguments: ")
        meant = difflib.get_close_matches(words.split("=")[0], self.known, 1) if unknown else ()
        message += "".join(f"; did you mean {near}?" for near in meant)
        self.exit(USAGE_ERROR, f"{self.prog}: {message}\n")


def parsers(command: str = "") -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
    """The parser of everything, and that of `run`; `costs` has options if it is the command."""
    parser = _Parser(
        prog="python -m distlab", description=_DESCRIPTION, epilog=_EXAMPLE, allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"distlab {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="run | doctor | costs")
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
    run.add_argument("--nprocs", type=_count, metavar="N", help="how many ranks")
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
        type=_count,
        metavar="N",
        help="JAX, TensorFlow: virtual CPU devices in each rank",
    )
    run.add_argument(
        "--timeout", type=_seconds, metavar="SECONDS", help="end the ranks after so long"
    )
    run.add_argument(
        "--checkpoint",
        metavar="PATH",
        help="start all ranks again when one is lost; the script finds PATH in DISTLAB_CHECKPOINT",
    )
    run.add_argument(
        "--max-restarts",
        type=_number,
        metavar="N",
        help="how many times; 3 with --checkpoint, else 0",
    )
    run.add_argument("--cwd", metavar="DIR", help="the directory to work in")
    run.add_argument(
        "--start-method", choices=("fork", "spawn"), help="fork ranks, or start interpreters"
    )
    _add_engines(run)
    run.add_argument("script", help="the script's path")
    rest = run.add_argument(
        "arguments", nargs=argparse.REMAINDER, help="the script's own arguments"
    )
    rest.required = False
    parser.known = run._option_string_actions
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
    costs = commands.add_parser(
        "costs",
        help="estimate memory and time of a training step",
        description="Estimate what a training step of a transformer takes: with --devices the "
        "plans that fit, best first; else one plan, from its axes.",
        epilog="Example: python -m distlab costs llama3-70b --devices 64 --batch 512",
        allow_abbrev=False,
    )
    if command == "costs":  # which `run` need not wait for
        from distlab.costs.command import add_options

        add_options(costs)
        parser.known = costs._option_string_actions
    return parser, run


def _add_engines(run: argparse.ArgumentParser) -> None:
    """Add what says who starts the ranks. An option is called as the engine's own argument is."""
    run.add_argument(
        "--engine", choices=("ray", "slurm"), help="start the ranks on a Ray cluster, or on Slurm"
    )
    ray = run.add_argument_group("--engine ray")
    ray.add_argument(
        "--address", metavar="HOST:PORT", help="a running cluster; else one is started here"
    )
    ray.add_argument(
        "--resource",
        dest="resources",
        type=_resource,
        action="append",
        metavar="NAME=N",
        help="what to reserve for each rank, such as GPU=1; may be repeated; else CPU=1",
    )
    ray.add_argument("--strategy", metavar="NAME", help="PACK, SPREAD, STRICT_PACK, STRICT_SPREAD")
    ray.add_argument(
        "--no-upload-cwd",
        dest="upload_cwd",
        action="store_false",
        default=None,
        help="do not send the working directory",
    )
    slurm = run.add_argument_group("--engine slurm")
    slurm.add_argument("--partition", metavar="NAME", help="where to run")
    slurm.add_argument("--nodes", type=_count, metavar="N", help="how many nodes")
    slurm.add_argument("--tasks-per-node", type=_count, metavar="N", help="how many ranks on each")
    slurm.add_argument("--time", metavar="TIME", help="the most it may take, such as 60 (minutes)")
    slurm.add_argument(
        "--srun",
        dest="options",
        action="append",
        metavar="WORD",
        help="another word for srun, such as --srun=--account=me; may be repeated",
    )
    both = run.add_argument_group("both engines")
    both.add_argument(
        "--placement-timeout",
        type=_seconds,
        metavar="SECONDS",
        help="how long to wait for room; on Ray 60 by default, on Slurm for ever",
    )


def note(options: argparse.Namespace) -> str:
    """What should be said of options that go together, but may not be meant; empty if nothing."""
    if options.engine is None and "--engine" in (word.split("=")[0] for word in options.arguments):
        return (
            f"--engine stands after {options.script}, which gets it; the ranks run on this machine"
        )
    return ""


def engine(options: argparse.Namespace) -> Engine | None:
    """The engine that the options name; None for this machine.

    Raises:
        ValueError: If an option is out of range, or another engine's, in the words of the command.
    """
    given = {name: getattr(options, name) for name in (*_RAY, *_SLURM, "placement_timeout")}
    given = {name: value for name, value in given.items() if value is not None}
    kind, names = {"ray": (Ray, _RAY), "slurm": (Slurm, _SLURM)}.get(options.engine, (None, {}))
    for name in given:
        if kind is None or name not in (*names, "placement_timeout"):
            owners = [each for each, own in (("ray", _RAY), ("slurm", _SLURM)) if name in own]
            word = (_RAY | _SLURM).get(name, f"--{name}")
            raise ValueError(f"{word} is for --engine {' or '.join(owners or ('ray', 'slurm'))}")
    if "resources" in given:
        given["resources"] = dict(given["resources"])
    return None if kind is None else kind(**given)


_RAY = {
    "address": "--address",
    "resources": "--resource",
    "strategy": "--strategy",
    "upload_cwd": "--no-upload-cwd",
}
_SLURM = {
    "partition": "--partition",
    "nodes": "--nodes",
    "tasks_per_node": "--tasks-per-node",
    "time": "--time",
    "options": "--srun",
}
"""The options of each engine, by the names of its arguments."""


def _resource(word: str) -> tuple[str, float]:
    name, _, amount = word.partition("=")
    with contextlib.suppress(ValueError):
        if name and float(amount) > 0:
            return name, float(amount)
    raise argparse.ArgumentTypeError(f"{word!r} is not NAME=N, such as GPU=1")


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
    if name not in ROLES:
        raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(ROLES)}")
    return name, int(count)


def _count(word: str) -> int:
    if not word.isdecimal() or not 1 <= int(word) <= MAX_RANKS:
        raise argparse.ArgumentTypeError(f"{word!r} is not a number from 1 to {MAX_RANKS}")
    return int(word)


def _number(word: str) -> int:
    if not word.isdecimal():
        raise argparse.ArgumentTypeError(f"{word!r} is not a number from 0 on")
    return int(word)


def _seconds(word: str) -> float:
    with contextlib.suppress(ValueError):
        if (seconds := float(word)) > 0:
            return seconds
    raise argparse.ArgumentTypeError(f"{word!r} is not a number of seconds above 0")


def check(options: argparse.Namespace) -> None:
    """Raise a ValueError, in the words of the command line, for options that do not go together."""
    if options.nprocs is None and not options.role:
        if after := [word for word in options.arguments if word.split("=")[0] in _COUNTS]:
            raise ValueError(
                f"{after[0]} stands after the script, which gets it: put it before {options.script}"
            )
        raise ValueError("say how many ranks there are: --nprocs N")
    if options.role and options.framework != "tensorflow":
        raise ValueError("--role is for --framework tensorflow")
    roles = dict(options.role or ())
    if len(roles) < len(options.role or ()):
        raise ValueError("--role names the same role twice")
    if options.role and not any(roles.values()):
        raise ValueError("--role makes no rank at all: give one role at least 1")
    if options.role and options.nprocs not in (None, sum(roles.values())):
        count = sum(roles.values())
        raise ValueError(f"--role makes {count} in all: leave --nprocs out")
    if options.devices_per_rank and options.framework not in ("jax", "tensorflow"):
        raise ValueError(
            "--devices-per-rank is for --framework jax and --framework tensorflow; "
            "PyTorch has one device in each rank: ask for more ranks with --nprocs"
        )
    if options.cwd is not None and not Path(options.cwd).is_dir():
        raise ValueError(f"--cwd: there is no directory {options.cwd!r}")
