"""What `distlab.costs` counts for ZeRO 3 is what PyTorch's `fully_shard` allocates."""

import subprocess
import sys

import pytest

from distlab import costs

RANKS = 8
MODEL = costs.Transformer(layers=6, hidden=256, heads=4, sequence=8, vocabulary=16)

MEASURE = """
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

ranks, layers, rows, columns = map(int, sys.argv[1:5])


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, columns))

    def forward(self, x):
        return x * (x @ self.weight.t()).mean()


dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
mesh = init_device_mesh("cpu", (ranks,))
for names in sys.argv[5:]:
    compute, reduce = (getattr(torch, name) for name in names.split(","))
    policy = MixedPrecisionPolicy(param_dtype=compute, reduce_dtype=reduce)
    model = nn.Sequential(*(Layer() for _ in range(layers)))
    for layer in model:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    with MemTracker() as live:
        model(torch.randn(1, columns)).sum().backward()
    peak = live.get_tracker_snapshot("peak")[torch.device("cpu")]
    print(peak["Total"] - sum(parameter.to_local().nbytes for parameter in model.parameters()))
dist.destroy_process_group()
"""


PRECISIONS = {
    "bfloat16,float32": costs.Precision(4, 4, 0, 8, 2),
    "bfloat16,bfloat16": costs.Precision(4, 2, 0, 8, 2),
    "float32,float32": costs.Precision(4, 4, 0, 8, 4),
}
"""By the types that weights are gathered in, and that gradients are reduced in."""


def test_weights_and_gradients_that_are_whole_at_a_time_take_the_bytes_counted():
    """The peak is in the backward pass of the second layer: four have their gradients already."""
    layers, columns, numbers = MODEL.layers, MODEL.hidden, MODEL.kinds[0][1].parameters
    words = map(str, (RANKS, layers, numbers // columns, columns))
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *words, *PRECISIONS],
        capture_output=True,
        text=True,
        check=True,
    )
    peaks = [int(line) for line in done.stdout.splitlines()]
    finished = 4 * numbers * (layers - 2) / RANKS  # shards in fp32, as the weights
    for peak, precision in zip(peaks, PRECISIONS.values(), strict=True):
        plan = costs.Plan(data=RANKS, batch=RANKS, zero=3, precision=precision)
        buffers = costs.estimate(MODEL, plan, costs.H100_SXM).memory["buffers"]
        assert peak == pytest.approx(buffers + finished, rel=0.005)
