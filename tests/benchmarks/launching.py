"""How fast ranks are launched, and what they cost, beside other launchers in the same run.

    python tests/benchmarks/launching.py [--repeat 7] [--peers FOLDER]

Prints a Markdown table of medians. `accelerate` is the only peer that the project does not install:
`pip install --no-deps --target FOLDER accelerate huggingface_hub safetensors` gets it without
touching the environment; without it that row is left out. Run it on a machine that does nothing
else.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from table import Row, median, show

import distlab

os.environ["KERAS_BACKEND"] = "torch"  # torch ranks have Keras too, on both sides
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


# What the ranks do.


def all_reduce() -> float:
    import keras  # noqa: F401
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    dist.destroy_process_group()
    return total.item()


def spawned(rank: int, port: int, world_size: int) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world_size)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    assert all_reduce() == world_size


def global_sum() -> float:
    import jax

    if "COLD" in os.environ:
        jax.config.update("jax_num_cpu_devices", 2)
        address, count, rank = os.environ["COLD"].split()
        jax.distributed.initialize(address, int(count), int(rank))
    else:
        jax.distributed.initialize()
    from jax.sharding import NamedSharding, PartitionSpec

    mesh = jax.make_mesh((jax.device_count(),), ("all",))
    sharding = NamedSharding(mesh, PartitionSpec("all"))
    ones = jax.make_array_from_process_local_data(sharding, jax.numpy.ones(2))
    total = float(jax.jit(jax.numpy.sum)(ones))
    assert total == 8.0
    return total


def fit() -> float:
    import numpy as np
    import tensorflow as tf
    import tf_keras

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = tf_keras.Sequential([tf_keras.layers.Input((4,)), tf_keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    history = model.fit(np.ones((32, 4)), np.ones((32, 1)), batch_size=32, verbose=0)
    assert strategy.num_replicas_in_sync == 4
    return float(history.history["loss"][0])


def hold(ready: str) -> None:
    all_reduce()
    Path(ready, str(os.getpid())).touch()
    signal.pause()


def fail() -> None:
    if os.environ["RANK"] == "1":
        raise ValueError("on purpose")
    signal.pause()


def fail_beside_the_stubborn() -> None:
    if os.environ["RANK"] == "1":
        time.sleep(0.2)  # until the others ignore what they are going to be sent
        raise ValueError("on purpose")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.pause()


# How ranks come to be.


def free_port() -> int:
    import socket

    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        return int(holder.getsockname()[1])


def python(code: str, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code], env=os.environ | environment, **QUIET)


def this(call: str) -> str:
    """Code that calls a function of this file in another process."""
    here = str(Path(__file__).parent)
    return f"import sys; sys.path.insert(0, {here!r}); from launching import *; {call}"


def cold(call: str, environments: list[dict[str, str]]) -> None:
    processes = [python(this(call), **environment) for environment in environments]
    for process in processes:
        assert process.wait(300) == 0


def cold_tensorflow() -> None:
    workers = [f"127.0.0.1:{free_port()}" for _ in range(4)]
    configs = [
        {"cluster": {"worker": workers}, "task": {"type": "worker", "index": i}} for i in range(4)
    ]
    cold("fit()", [{"TF_CONFIG": json.dumps(config)} for config in configs])


def cold_jax() -> None:
    address = f"127.0.0.1:{free_port()}"
    cold("global_sum()", [{"COLD": f"{address} 4 {rank}"} for rank in range(4)])


def torchrun(script: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4"]
    subprocess.run([*command, str(script)], check=True, **QUIET)


def accelerate_times(peers: str, repeat: int) -> float | None:
    """Median of `notebook_launcher` in a process that has imported torch and Keras."""
    code = f"""
import torch, keras
sys.path.append({peers!r})
from accelerate import notebook_launcher
for _ in range({repeat}):
    start = time.perf_counter()
    notebook_launcher(all_reduce, num_processes=4, use_port=str(free_port()))
    print("\\nTOOK", time.perf_counter() - start, flush=True)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", f"{this('pass')}\n{code}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    # It forks a process that has threads, and now and then a rank of it never ends.
    try:
        output, _ = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        print("accelerate hung in one of its launches; the median is of those before.\n")
    times = [float(x.split()[1]) for x in output.splitlines() if x.startswith("TOOK")]
    if not times:
        print(f"accelerate does not run here: {output.strip()[-300:]}\n")
    return statistics.median(times) if times else None


def total_memory(directory: str) -> float:
    """Proportional memory of the four processes that have announced themselves."""
    while len(pids := [int(path.name) for path in Path(directory).iterdir()]) < 4:
        time.sleep(0.05)
    return float(sum(psutil.Process(pid).memory_full_info().pss for pid in pids))


def expect_failure(target: Callable[[], None]) -> None:
    try:
        distlab.run(target, 4, quiet=True)
    except distlab.RankError as error:
        assert error.failures[0].what.startswith("ValueError")
        return
    raise AssertionError("the rank did not fail")


# The table.


def torch_rows(repeat: int, peers: str, scratch: Path) -> list[Row]:
    script = scratch / "train.py"
    script.write_text(this("all_reduce()"))

    def ours() -> None:
        assert distlab.run(all_reduce, 4, "torch", quiet=True) == [4.0] * 4

    imports = "import torch, torch.distributed, keras"
    interpreter = median(lambda: python(imports).wait(), 3)
    first = statistics.median(_cold_launches(3))
    ours()
    warm = median(ours, repeat)
    rows = []
    accelerate = accelerate_times(peers, repeat) if peers else None
    if accelerate is not None:
        again = min(warm, median(ours, repeat))  # on both sides of the peer: the machine may drift
        name = "accelerate.notebook_launcher"
        bound = "at most 1.2 times"
        rows.append(Row("warm, 4 torch+Keras ranks, all-reduce", again, accelerate, name, bound,
                        again <= 1.2 * accelerate))  # fmt: skip
    import torch.multiprocessing as mp

    start = mp.get_context("spawn")
    assert start is not None
    run_torch = median(lambda: torchrun(script), 3)
    spawn = median(
        lambda: mp.start_processes(spawned, (free_port(), 4), nprocs=4, start_method="spawn"), 3
    )
    for name, peer in (("torchrun", run_torch), ("mp.start_processes spawn", spawn)):
        rows.append(Row("the same", warm, peer, name, "40 times faster", 40 * warm <= peer))
    rows.append(Row("first launch, cold", first, interpreter, "one interpreter, same imports",
                    "at most 1.3 times", first <= 1.3 * interpreter))  # fmt: skip
    with tempfile.TemporaryDirectory() as mine, tempfile.TemporaryDirectory() as theirs:
        with distlab.launch(hold, 4, "torch", args=(mine,)):
            memory = total_memory(mine)
        script.write_text(this(f"hold({theirs!r})"))
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        group = subprocess.Popen([*command, "--nproc-per-node=4", str(script)], **QUIET)
        peer_memory = total_memory(theirs)
        group.terminate()
        group.wait()
    rows.append(Row("memory of 4 such ranks (PSS)", memory, peer_memory, "torchrun",
                    "at most 0.4 times", memory <= 0.4 * peer_memory, "MB"))  # fmt: skip
    return rows


def _cold_launches(repeat: int) -> list[float]:
    code = this(
        "start = time.perf_counter();"
        "assert distlab.run(all_reduce, 4, 'torch', quiet=True) == [4.0] * 4;"
        "print(time.perf_counter() - start)"
    )
    command = [sys.executable, "-c", code]
    return [float(subprocess.check_output(command)) for _ in range(repeat)]


def other_rows(repeat: int) -> list[Row]:
    legacy = {"TF_USE_LEGACY_KERAS": "1"}
    os.environ |= legacy

    def tensorflow() -> None:
        distlab.run(fit, 4, "tensorflow", quiet=True)

    def jax() -> None:
        distlab.run(global_sum, 4, "jax", devices_per_rank=2, quiet=True)

    tensorflow()
    warm_tf, slow_tf = median(tensorflow, repeat), median(cold_tensorflow, 3)
    jax()
    warm_jax, slow_jax = median(jax, repeat), median(cold_jax, 3)
    distlab.run(os.getpid, 1)
    many = median(lambda: distlab.run(os.getpid, 32, quiet=True), repeat)
    raised = median(lambda: expect_failure(fail), repeat)
    stubborn = median(lambda: expect_failure(fail_beside_the_stubborn), 3)
    return [
        Row("TensorFlow: 4 workers, one tiny fit, warm", warm_tf, slow_tf, "four cold interpreters",
            "under 2 s, 4 times faster", warm_tf < 2 and 4 * warm_tf <= slow_tf),
        Row("JAX: 4 processes x 2 devices, one sum, warm", warm_jax, slow_jax,
            "four cold interpreters", "under 0.5 s, 8 times faster",
            warm_jax < 0.5 and 8 * warm_jax <= slow_jax),
        Row("32 plain ranks and back", many, None, "", "under 2 s", many < 2),
        Row("a rank raises: the error is here", raised, None, "", "under 0.3 s", raised < 0.3),
        Row("the same, peers ignore SIGTERM", stubborn, None, "", "under 3 s", stubborn < 3),
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=7, help="runs of which the median is taken")
    parser.add_argument("--peers", default="", help="folder that accelerate was installed into")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        torch = (options.repeat, options.peers, Path(scratch))
        show(lambda: torch_rows(*torch) + other_rows(options.repeat))


if __name__ == "__main__":
    main()
