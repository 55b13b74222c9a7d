"""How long a launch takes, beside an earlier build of distlab and accelerate's notebook_launcher.

    python tests/benchmarks/launching.py [--repeat 15] [--before REVISION] [--busy]

Prints a Markdown table of medians. Each contestant is a process of its own, warm; they take turns
on this one's word, in an order drawn anew each round, so a slow moment of the machine meets all.
The earlier build is taken from git; accelerate is installed into a folder that goes at the end.
"""

import argparse
import contextlib
import functools
import io
import os
import random
import select
import signal
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
from table import Row, seconds, show

ROOT = Path(__file__).parents[2]
PEERS = ("accelerate==1.15.0", "huggingface_hub", "safetensors")
TORCH = {"KERAS_BACKEND": "torch"}  # torch ranks have Keras too, on all sides
PATIENCE = 60.0
"""Seconds. accelerate forks a process that has threads: now and then a rank of it never ends."""
REST = 0.5
"""Seconds before each launch: a notebook's cells are not run at once, but one after another."""


# What the ranks do.


def rank() -> int:
    return int(os.environ["RANK"])


def all_reduce() -> float:
    import keras  # noqa: F401
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    dist.destroy_process_group()
    return total.item()


def cluster() -> int:
    import tensorflow as tf

    return int(tf.distribute.MultiWorkerMirroredStrategy().num_replicas_in_sync)


def global_sum() -> float:
    import jax

    jax.distributed.initialize()
    from jax.sharding import NamedSharding, PartitionSpec

    mesh = jax.make_mesh((jax.device_count(),), ("all",))
    sharding = NamedSharding(mesh, PartitionSpec("all"))
    ones = jax.make_array_from_process_local_data(sharding, jax.numpy.ones(2))
    return float(jax.jit(jax.numpy.sum)(ones))


# What a contestant is asked to do. distlab is imported there, one build or the other.


def launch(target: Callable, nprocs: int, framework: str | None, expected: object, **options):
    import distlab

    results = distlab.run(target, nprocs, framework, quiet=True, **options)
    assert results == (list(range(nprocs)) if expected is None else [expected] * nprocs)


def twice(action: Callable[[], object]) -> None:
    action()
    action()


def notebook_launcher() -> None:
    import socket

    from accelerate import notebook_launcher

    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port = str(holder.getsockname()[1])
    notebook_launcher(all_reduce, num_processes=4, use_port=port)


def memory() -> float:
    """What four ranks that wait add to the supervisor's memory, as a part of it (PSS)."""
    import distlab
    from distlab.launching.kernel import client

    def held(process: psutil.Process) -> int:
        everyone = [process, *process.children(recursive=True)]
        return sum(each.memory_full_info().pss for each in everyone)

    distlab.prewarm("torch", env=TORCH | {"LD_BENCHMARK": "a supervisor of its own"})
    supervisor = list(client._clients.values())[-1]
    supervisor.ready.wait()
    alone = held(psutil.Process(supervisor.pid))
    launch(rank, 4, "torch", None, env=TORCH | {"LD_BENCHMARK": "a supervisor of its own"})
    time.sleep(2)
    return held(psutil.Process(supervisor.pid)) / alone - 1


four = functools.partial(launch, rank, 4, "torch", None, env=TORCH)
WORK: dict[str, Callable[[], object]] = {
    "all-reduce": functools.partial(launch, all_reduce, 4, "torch", 4.0, env=TORCH),
    "notebook_launcher": notebook_launcher,
    "4 ranks": four,
    "8 ranks": functools.partial(launch, rank, 8, "torch", None, env=TORCH),
    "4 ranks twice": functools.partial(twice, four),
    "2 plain ranks": functools.partial(launch, rank, 2, None, None),
    "TensorFlow": functools.partial(launch, cluster, 4, "tensorflow", 4),
    "JAX": functools.partial(launch, global_sum, 4, "jax", 8.0, devices_per_rank=2),
}


def contestant() -> None:
    """Do what is asked on standard input, a line each, and say how many seconds it took."""
    if sys.argv[2] == "accelerate":
        import keras  # noqa: F401 - as a notebook has
        import torch  # noqa: F401
    for line in sys.stdin:
        name = line.strip()
        print("TOOK", memory() if name == "memory" else seconds(WORK[name]), flush=True)


class Contestant:
    """A process that does on our word what it is asked to, and is started again if it hangs."""

    def __init__(self, name: str, *path: Path) -> None:
        self.name = name
        self._path = path
        self._begin()

    def _begin(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--contestant", self.name],
            env=os.environ | TORCH | {"PYTHONPATH": os.pathsep.join(map(str, self._path))},
            cwd=self._path[0],  # Python looks there for distlab, too
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def do(self, work: str) -> float | None:
        """What it says of some work; None if it has hung."""
        self._process.stdin.write(f"{work}\n".encode())
        self._process.stdin.flush()
        while select.select([self._process.stdout], [], [], PATIENCE)[0]:
            line = self._process.stdout.readline()
            if line.startswith(b"TOOK"):
                return float(line.split()[1])
            if not line:
                raise SystemExit(f"{self.name} ended with {self._process.wait()}")
        print(f"{self.name} hung in: {work}\n", file=sys.stderr)
        self.end()
        self._begin()
        return None

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()


@contextlib.contextmanager
def contestants(before: str) -> Iterator[dict[str, Contestant]]:
    with tempfile.TemporaryDirectory() as folder:
        old, peers = Path(folder, "old"), Path(folder, "peers")
        git = ["git", "-C", str(ROOT), "archive", before, "distlab"]
        with tarfile.open(fileobj=io.BytesIO(subprocess.check_output(git))) as archive:
            archive.extractall(old)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
        subprocess.run([*pip, str(peers), *PEERS], check=True)
        all_of_them = {
            "here": Contestant("here", ROOT),
            before: Contestant(before, old),
            "accelerate": Contestant("accelerate", ROOT, peers),
        }
        try:
            yield all_of_them
        finally:
            for each in all_of_them.values():
                each.end()


def compare(here: Contestant, work: str, peer: Contestant, theirs: str, repeat: int):
    """Medians of both, in turns after two launches that do not count."""
    turns = {here: work, peer: theirs}
    times: dict[Contestant, list[float]] = {here: [], peer: []}
    for round_ in range(-2, repeat):
        for each in random.sample([here, peer], 2):
            time.sleep(REST)
            took = each.do(turns[each])
            if round_ >= 0 and took is not None:
                times[each].append(took)
    return statistics.median(times[here]), statistics.median(times[peer])


def rows(before: str, repeat: int) -> list[Row]:
    table = []
    with contestants(before) as them:
        here, old = them["here"], them[before]

        def row(what: str, work: str, most: float, peer: Contestant, theirs: str) -> None:
            ours, other = compare(here, work, peer, theirs, repeat)
            good = ours <= most * other
            table.append(Row(what, ours, other, peer.name, f"at most {most:g} times", good, "ms"))

        row("4 torch+Keras ranks, all-reduce", "all-reduce", 0.3, them["accelerate"],
            "notebook_launcher")  # fmt: skip
        for what, work, most in (
            ("4 torch+Keras ranks that return their rank", "4 ranks", 0.1),
            ("8 of them", "8 ranks", 0.1),
            ("4 of them, and 4 at once after them", "4 ranks twice", 0.6),
            ("2 plain ranks", "2 plain ranks", 0.5),
            ("TensorFlow: a cluster of 4 workers", "TensorFlow", 0.7),
            ("JAX: 4 x 2 devices, a global sum", "JAX", 0.7),
        ):
            row(what, work, most, old, work)
        added = here.do("memory")
        table.append(Row("memory that 4 ranks add that wait (PSS)", added, 1.0, "one supervisor",
                         "at most 0.25 times", added <= 0.25, "of it"))  # fmt: skip
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=15, help="runs of which the median is taken")
    parser.add_argument("--before", default="fa5495b", help="the revision to compare with")
    parser.add_argument("--busy", action="store_true", help="keep one core busy meanwhile")
    options = parser.parse_args()
    spin = [sys.executable, "-c", "while True: pass"]
    with subprocess.Popen(spin) if options.busy else contextlib.nullcontext() as busy:
        try:
            show(lambda: rows(options.before, options.repeat))
        finally:
            print(f"\nLoad at the end: {os.getloadavg()[0]:.1f}")
            if busy is not None:
                busy.kill()


if __name__ == "__main__":
    contestant() if sys.argv[1:2] == ["--contestant"] else main()
