"""Carry out a check: a keeper, real ranks, and what became of them."""

import atexit
import os
import select
import socket
import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from distlab import processes
from distlab.interrupts import Held, interrupted
from distlab.launching import launch, prewarm
from distlab.protocol import functions
from distlab.puzzles import messages, ranks
from distlab.puzzles.incoming import Incoming
from distlab.puzzles.messages import BeginCheck, Listening, Outcome, Patience
from distlab.puzzles.puzzle import Puzzle
from distlab.runtime.job import Job
from distlab.runtime.logs import Head

PATIENCE = Patience(computing=2.0, calling=60.0, silent=65.0)
"""How long a rank may go without a call: an import on a busy machine takes many seconds."""
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_LOOK = 0.25
"""Seconds after which it is looked whether ranks have ended that the keeper never met."""
_LINES_TOLD = 20
_MOST_SOLUTION = 8_000_000
SILENCE = 6.0
"""Seconds after which it is told that ranks have ended that the keeper never met."""


class _Keeper:
    """The keeper's process, which stays for the next check."""

    def __init__(self) -> None:
        here, there = socket.socketpair()
        with there:
            os.set_inheritable(there.fileno(), True)
            self.process = subprocess.Popen(
                processes.python("puzzles.keeper", str(there.fileno())),
                stdin=subprocess.DEVNULL,
                pass_fds=[there.fileno()],
                env={**os.environ, **dict.fromkeys(_THREADS, "1")},
                cwd="/",  # what lies in the notebook's folder is not imported in its place
            )
        self.socket = here
        self._incoming = Incoming(here)

    def alive(self) -> bool:
        return self.process.poll() is None

    def wait(self, seconds: float | None = None) -> Listening | Outcome | None:
        """The next thing that it says; None if it says nothing within a time."""
        buffered = self._incoming.unread  # two outcomes may have come at once
        if seconds is not None and not buffered and not self._readable(seconds):
            return None
        try:
            said: Listening | Outcome = messages.to_notebook.decode(self._incoming.wait())
        except EOFError:
            raise RuntimeError(
                "The process that holds the numbers was ended during the check. Check again."
            ) from None
        return said

    def _readable(self, seconds: float) -> bool:
        return bool(select.select([self.socket], [], [], seconds)[0])

    def end(self) -> None:
        """End it."""
        self.socket.close()
        self.process.kill()
        self.process.wait()


_keepers: list[_Keeper] = []
_one_at_a_time = threading.Lock()


def _keeper() -> _Keeper:
    while _keepers and not _keepers[0].alive():
        _keepers.pop().end()
    if not _keepers:
        _keepers.append(_Keeper())
    return _keepers[0]


@atexit.register
def end_keeper() -> None:
    """End the keeper, if there is one."""
    while _keepers:
        _keepers.pop().end()


def warm_up() -> None:
    """Start, in the background, what a check needs."""
    prewarm()
    _keeper()


def carry_out(
    puzzle: Puzzle, solve: Callable[[ranks.Me], Any]
) -> tuple[list[Outcome], dict[int, list[Head]]]:
    """Run a solution with each number of ranks.

    Args:
        puzzle: Which.
        solve: The solver's function.

    Raises:
        ValueError: If the function is too large to be sent.

    Returns:
        How the ranks of each size fared, and what each of them has printed.
    """
    packed = functions.dumps(solve, (), {})
    if len(packed) > _MOST_SOLUTION:
        raise ValueError(
            f"check() sends the solution to each rank. With all that it refers to it takes "
            f"{len(packed):,} bytes; {_MOST_SOLUTION:,} are allowed. Make large values inside of "
            "it."
        )
    with _one_at_a_time:
        return _run(puzzle, packed)


def _run(puzzle: Puzzle, packed: bytes) -> tuple[list[Outcome], dict[int, list[Head]]]:
    jobs: dict[int, Job] = {}
    keeper = _keeper()
    try:
        messages.send(keeper.socket, BeginCheck(puzzle.number, packed, PATIENCE))
        listening = keeper.wait()
        assert isinstance(listening, Listening)
        with Held():  # a job that runs without a name here could not be stopped
            for size, token in listening.tokens.items():
                jobs[size] = launch(ranks.run, nprocs=size, args=(listening.port, token))
        outcomes = _follow(keeper, jobs)
    except BaseException as error:
        _keepers.remove(keeper)
        keeper.end()  # the next check begins with a new one
        if isinstance(error, KeyboardInterrupt):
            raise interrupted(sum(job.nprocs for job in jobs.values() if not job.over)) from None
        raise
    finally:
        for job in jobs.values():
            job.stop()  # no rank is in the solver's code any more, but for one that never ends
    printed = {
        size: [job._log_head(rank) for rank in range(job.nprocs)] for size, job in jobs.items()
    }
    return [outcomes[size] for size in puzzle.sizes], printed


def _follow(keeper: _Keeper, jobs: dict[int, Job]) -> dict[int, Outcome]:
    """Wait until the keeper has told how each run has ended.

    What the ranks return is never read: it is a pickle, which a rank could have made of code.

    Raises:
        RuntimeError: If all ranks of one have ended, and the keeper says nothing of them.
    """
    found: dict[int, Outcome] = {}
    looks = Counter[int]()
    while len(found) < len(jobs):
        heard = keeper.wait(_LOOK)
        if isinstance(heard, Outcome):
            found[heard.size] = heard
        elif heard is None:
            looks.update(size for size, job in jobs.items() if job.over and size not in found)
            for size, times in looks.items():
                if times * _LOOK > SILENCE:  # else what they have said is still on its way
                    raise RuntimeError(_silence(jobs[size]))
    return found


def _silence(job: Job) -> str:
    states = ", ".join(f"rank {rank} {one.state}" for rank, one in enumerate(job.status))
    printed = [line for rank in range(job.nprocs) for line in job._log_head(rank).text.splitlines()]
    return "\n".join(
        [
            f"All ranks have ended ({states}), and the process that holds the numbers has said "
            f"nothing of them for {SILENCE:g} seconds. Check again.",
            *printed[-_LINES_TOLD:],
        ]
    )
