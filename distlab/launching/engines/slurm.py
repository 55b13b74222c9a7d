"""Ranks on a Slurm cluster: srun starts one task per rank, and carries what they say.

srun is Slurm's own launcher. A job that it starts ends when it does, so nothing is left behind by
a kernel that has gone; a job submitted to the queue would have to be found and cancelled.
"""

import contextlib
import os
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from distlab.errors import shown
from distlab.launching import processes
from distlab.launching.engines.base import Engine, PartLostError, PlacementError, Work
from distlab.launching.engines.slurm_task import END, Begin, Here, Order, read_answer
from distlab.launching.kernel.arguments import check_count, check_text, check_timeout
from distlab.launching.protocol.messages import VERSION, AnyEvent, AnyRequest
from distlab.launching.protocol.tasks import Part
from distlab.launching.tracebacks import in_words

_POLL = 0.5
_PATIENCE = 10.0
"""Seconds for tasks to end their ranks when they are told to; then srun ends them."""


@dataclass(frozen=True, kw_only=True)
class Slurm(Engine):
    """A Slurm cluster, for `launch(..., engine=Slurm(nodes=2))`, where srun is at hand.

    Inside an allocation (salloc, sbatch) the ranks run as a step of it. Otherwise srun asks for
    one, and waits in the queue like any job.

    Args:
        partition: Where to run; Slurm's default otherwise.
        nodes: How many nodes; Slurm decides otherwise.
        tasks_per_node: How many ranks on each. With `nodes` it must make up `nprocs`.
        time: The most it may take: minutes, or text such as `"1-12:00:00"`.
        placement_timeout: How many seconds to wait in the queue; for ever by default.
        options: Other words for srun, such as `["--gpus-per-task=1", "--account=me"]`.

    Raises:
        TypeError: If there is no such option, or it is of another type.
        ValueError: If an option is out of range.

    Example:
        >>> import distlab
        >>> engine = distlab.Slurm(nodes=2, tasks_per_node=4, partition="gpu", time=60)
    """

    partition: str | None = None
    nodes: int | None = None
    tasks_per_node: int | None = None
    time: int | str | None = None
    placement_timeout: float | None = None
    options: Sequence[str] = ()

    def __post_init__(self) -> None:
        words = [] if isinstance(self.options, str) else list(self.options)
        if isinstance(self.options, str) or not all(isinstance(word, str) for word in words):
            raise TypeError(
                "options is a list of words for srun, such as ['--account=me'], "
                f"not {shown(self.options)}."
            )
        check_text(self.partition, "partition", "gpu")
        check_timeout(self.placement_timeout, "placement_timeout")
        if not isinstance(self.time, int) or isinstance(self.time, bool):
            check_text(self.time, "time", "1-12:00:00")
        for name in ("nodes", "tasks_per_node", "time"):
            value = getattr(self, name)
            if value is not None and (name != "time" or isinstance(value, int)):
                check_count(value, name, 1, most=None)

    def command(self, count: int) -> list[str]:
        """The command that starts `count` tasks."""
        given = {
            "--partition": self.partition,
            "--nodes": self.nodes,
            "--ntasks-per-node": self.tasks_per_node,
            "--time": self.time,
            "--immediate": None
            if self.placement_timeout is None
            else max(1, round(self.placement_timeout)),
        }
        words = [f"{name}={value}" for name, value in given.items() if value is not None]
        own = ["--label", "--kill-on-bad-exit=1", "--input=all", "--job-name=distlab"]
        return ["srun", f"--ntasks={count}", *own, *words, *self.options]

    def check(self, count: int) -> None:
        """Raise ValueError if so many ranks do not make up the nodes asked for."""
        if self.nodes and self.tasks_per_node and self.nodes * self.tasks_per_node != count:
            raise ValueError(
                f"nprocs is {count}, but nodes={self.nodes} with tasks_per_node="
                f"{self.tasks_per_node} makes {self.nodes * self.tasks_per_node}."
            )
        if shutil.which("srun") is None:
            raise FileNotFoundError(
                "The engine Slurm needs Slurm's command srun, which is not on this machine: use it "
                "where you would submit a job."
            )

    def place(self, work: Work, cancelled: threading.Event) -> "SlurmPlacement":
        """Start one task per rank, and wait until each has said where it is."""
        command = self.command(len(work.launch.tasks))
        _ask(command)
        placement = SlurmPlacement(command, work.launch.cwd)
        try:
            placement.fill(work, cancelled)
        except BaseException:
            placement.release()
            raise
        return placement


def _ask(command: list[str]) -> None:
    """Raise PlacementError if no node of the cluster could ever run this: srun would wait."""
    if "SLURM_JOB_ID" in os.environ:
        return  # a step of an allocation, of which srun knows at once
    words = [word for word in command if not word.startswith("--immediate")]
    asked = subprocess.run(
        [*words, "--test-only", "true"], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if asked.returncode:
        said = asked.stderr.replace("srun: ", "").replace("error: ", "")
        lines = "".join(f"\n  {line.strip()}" for line in said.splitlines() if line.strip())
        raise PlacementError(f"Slurm does not take the job. Its words:{lines}")


class SlurmPlacement:
    """One srun and its tasks.

    Args:
        command: srun with its options.
        cwd: The directory to work in, on every node.
    """

    def __init__(self, command: list[str], cwd: str) -> None:
        self.places: list[SlurmPlace] = []
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - read until the last moment
        self._cwd = cwd
        self._lines: dict[int, queue.SimpleQueue[AnyEvent]] = {}
        self._arrived: queue.SimpleQueue[tuple[int, Here]] = queue.SimpleQueue()
        self._broken = ""
        """Why nobody listens to srun any more."""
        self._ended = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._sending = threading.Lock()
        started = threading.Event()
        # Started by the thread that reads it to the end: srun is signalled when that ends.
        self._reader = threading.Thread(
            target=self._attend, args=(command, started), name="distlab-srun", daemon=True
        )
        self._reader.start()
        started.wait()

    def _attend(self, command: list[str], started: threading.Event) -> None:
        setpriv = shutil.which("setpriv")
        tie = [setpriv, "--pdeathsig", "TERM"] if setpriv else []
        try:
            self._process = subprocess.Popen(
                [*tie, *command, *processes.python("engines.slurm_task")],
                cwd=self._cwd,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,  # an interrupt of the kernel is not meant for it
            )
            started.set()
            self._listen(self._process)
        except Exception as error:  # noqa: BLE001 - told wherever the tasks are missed
            self._broken = in_words(error)
        started.set()
        if (process := self._process) is not None and process.stdout is not None:
            while process.stdout.read(1 << 16):  # what nobody understands
                pass
            process.wait()
        self._ended.set()

    def _listen(self, process: "subprocess.Popen[bytes]") -> None:
        unfinished: dict[int, bytes] = {}
        assert process.stdout is not None
        for line in process.stdout:
            label, _, text = line.rstrip(b"\n").partition(b": ")
            task = int(label)
            *whole, unfinished[task] = (unfinished.get(task, b"") + text).split(END)
            for message in whole:
                self._on_message(task, read_answer(message))

    def _on_message(self, task: int, message: Here | AnyEvent) -> None:
        if isinstance(message, Here):
            self._lines[task] = queue.SimpleQueue()
            self._arrived.put((task, message))
        else:
            self._lines[task].put(message)

    def fill(self, work: Work, cancelled: threading.Event) -> None:
        """Learn where the tasks are. Raises PlacementError."""
        launch = work.launch
        count = len(launch.tasks)
        heard: dict[int, Here] = {}
        while len(heard) < count:
            with contextlib.suppress(queue.Empty):
                task, here = self._arrived.get(timeout=0.1)
                heard[task] = here
                continue
            if cancelled.is_set():
                raise PlacementError("The job was stopped before Slurm had room for it.")
            if self._broken or self._ended.is_set():
                raise PlacementError(f"Slurm did not start the ranks: {self.why()}")
        if other := {here.version for here in heard.values()} - {VERSION}:
            raise PlacementError(
                f"The nodes have another version of distlab: its messages have the version "
                f"{other.pop()}, ours {VERSION}. Install the same distlab there."
            )
        target = None if launch.script else (Path(launch.directory) / "target").read_bytes()
        # Every task reads it: what it carries is sent once, and not once for each of them.
        self.send(Begin(launch.framework, work.fork, launch.overrides, work.settings, target))
        order = sorted({here.node for here in heard.values()})
        for task, here in sorted(heard.items()):
            on_node = [other for other in range(count) if heard[other].node == here.node]
            part = Part([task], here.host, order.index(here.node), len(order), on_node)
            self.places.append(SlurmPlace(part, here.name, self))

    def send(self, message: Begin | Order) -> None:
        """Write a message that every task reads. Raises PartLostError."""
        assert self._process is not None
        assert self._process.stdin is not None
        with self._sending:
            try:
                self._process.stdin.write(msgspec.json.encode(message) + b"\n")
                self._process.stdin.flush()
            except (OSError, ValueError) as error:  # closed
                raise PartLostError(f"was lost with its Slurm job: {self.why()}") from error

    def receive(self, task: int) -> list[AnyEvent]:
        """Wait a while for what a task says. Raises PartLostError."""
        lines = self._lines[task]
        # Asked first: what was said before the end is heard.
        over = bool(self._broken) or self._ended.is_set()
        events = []
        with contextlib.suppress(queue.Empty):
            events.append(lines.get(timeout=0 if over else _POLL))
        while not lines.empty():
            events.append(lines.get())
        if over and not events:
            raise PartLostError(f"was lost with its Slurm job: {self.why()}")
        return events

    def why(self) -> str:
        """The last words of srun."""
        if self._broken:
            return self._broken
        self._errors.seek(0)
        said = self._errors.read().decode("utf-8", "backslashreplace").splitlines()
        words = [line.removeprefix("srun: ").removeprefix("error: ") for line in said if line]
        return " ".join(words[-4:]) or "srun has ended without a word."

    def release(self) -> None:
        """End the tasks; Slurm's job ends with them."""
        if (process := self._process) is None:
            return
        with self._sending, contextlib.suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        if not self.places:  # waiting in the queue, or just starting
            self._signal(signal.SIGTERM)
        # Killed, it would leave its job behind: that comes last.
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not self._ended.wait(_PATIENCE):
                self._signal(number)
        if not self._ended.wait(_PATIENCE):
            raise PlacementError(f"srun (process {process.pid}) does not end.")
        self._reader.join()

    def _signal(self, number: int) -> None:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


class SlurmPlace:
    """One task.

    Args:
        part: Its rank.
        name: Its node.
        placement: The srun that speaks for it.
    """

    def __init__(self, part: Part, name: str, placement: SlurmPlacement) -> None:
        self.part = part
        self.name = name
        self._placement = placement

    def send(self, request: AnyRequest) -> None:
        """Pass a request on."""
        self._placement.send(Order(self.part.ranks[0], request))

    def receive(self) -> list[AnyEvent]:
        """Wait a while for events."""
        return self._placement.receive(self.part.ranks[0])
