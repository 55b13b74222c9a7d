"""How long ranks on a warm Ray cluster take, beside Ray Train used by hand.

Run it with `python tests/benchmarks/ray_train.py`; docs/benchmarks.md has the figures. Each round
takes both ways in turn, on one cluster that this process is connected to.
"""

import argparse
import logging
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

STEPS = 400
WIDTH = 512


def train(steps: int, width: int) -> dict[str, float]:
    """Form a group, all-reduce once, then train a small model with DDP."""
    import torch
    import torch.distributed as dist

    if not dist.is_initialized():  # Ray Train has formed one
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    value = torch.ones(1)
    dist.all_reduce(value)
    reduced = time.time()
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(64, width), torch.nn.ReLU(), torch.nn.Linear(width, 10))
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    images = torch.randn(64, 64)
    labels = torch.randint(10, (64,))
    start = time.perf_counter()
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    rate = steps / (time.perf_counter() - start)
    dist.barrier()
    return {"reduced": reduced, "rate": rate, "threads": torch.get_num_threads()}


def ours() -> tuple[float, float, float]:
    """Seconds to the first all-reduce, steps per second, seconds to the end: with distlab."""
    import distlab

    start = time.time()
    found = distlab.run(
        train, 2, "torch", args=[STEPS, WIDTH], engine=distlab.Ray(strategy="SPREAD"), quiet=True
    )
    end = time.time()
    return max(f["reduced"] for f in found) - start, min(f["rate"] for f in found), end - start


def theirs() -> tuple[float, float, float]:
    """The same with Ray Train's TorchTrainer."""
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    with tempfile.TemporaryDirectory() as directory:

        def loop() -> None:
            import json

            import ray.train

            found = train(STEPS, WIDTH)
            rank = ray.train.get_context().get_world_rank()
            Path(f"{directory}/{rank}").write_text(json.dumps(found))

        start = time.time()
        TorchTrainer(
            loop,
            torch_config=TorchConfig(backend="gloo"),
            scaling_config=ScalingConfig(num_workers=2, placement_strategy="SPREAD"),
            run_config=RunConfig(storage_path=directory),
        ).fit()
        end = time.time()
        import json

        found: list[dict[str, Any]] = [
            json.loads(Path(f"{directory}/{rank}").read_text()) for rank in range(2)
        ]
    return max(f["reduced"] for f in found) - start, min(f["rate"] for f in found), end - start


def main() -> None:
    """Print the medians and their ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    os.environ["RAY_TRAIN_V2_ENABLED"] = "1"
    logging.disable(logging.INFO)
    from _ray import two_nodes

    with two_nodes() as cluster:
        import ray

        ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
        try:
            ours(), theirs()  # what is imported for the first time is not counted
            taken = [(ours(), theirs()) for _ in range(rounds)]
        finally:
            ray.shutdown()  # while there is a cluster still
    names = ("to the first all-reduce, s", "steps per second", "from start to end, s")
    for index, name in enumerate(names):
        mine = [one[index] for one, _ in taken]
        other = [one[index] for _, one in taken]
        ratio = statistics.median(a / b for a, b in zip(mine, other, strict=True))
        print(
            f"{name}: distlab {statistics.median(mine):.2f}, Ray Train "
            f"{statistics.median(other):.2f}, ratio {ratio:.2f} "
            f"({min(a / b for a, b in zip(mine, other, strict=True)):.2f} to "
            f"{max(a / b for a, b in zip(mine, other, strict=True)):.2f})"
        )


if __name__ == "__main__":
    main()
