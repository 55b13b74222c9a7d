"""Machines: what a device computes, keeps and sends."""

import json
from dataclasses import dataclass, field
from pathlib import Path

from distlab.costs.checking import held

_LEAST = 1e6
"""What is below was meant in another unit, such as gigabytes."""
_BANDWIDTHS = ("memory_bandwidth", "inner_bandwidth", "outer_bandwidth")
_UNITS = {
    "bytes, such as 80e9 for 80 GB": ("memory",),
    "bytes per second, such as 50e9 for 400 Gb/s": _BANDWIDTHS,
    "FLOPs per second, such as 312e12": ("flops", "flops_32", "flops_8", "flops_4"),
}


@dataclass(frozen=True)
class Machine:
    """Devices of one kind, in nodes that a network connects.

    Attributes:
        name: What it is called in messages.
        flops: Peak of one device in 16-bit formats without sparsity, in FLOPs per second.
        memory: Bytes of one device that a program can use. The "80 GB" of a GPU are 80 GiB, of
            which the driver keeps a part; those named here have what PyTorch reports as the total.
        memory_bandwidth: Bytes per second.
        devices_per_node: How many devices a node has.
        inner_bandwidth: Bytes per second that a device sends inside its node.
        outer_bandwidth: Bytes per second that a device sends to other nodes.
        inner_latency: Seconds until a message inside a node arrives.
        outer_latency: Seconds until one between nodes arrives.
        matmul: Fraction of `flops` that the largest matrix products reach.
        flash: Fraction of `flops` that fused attention reaches.
        fitted: Whether `matmul` and `flash` were fitted to published runs; else they are a guess.
        flops_32: Peak for products of fp32 numbers, by default half of `flops`. For NVIDIA's GPUs
            this is TF32 on tensor cores; without TF32 the A100 has 19.5e12, the H100 66.9e12.
        flops_8: Peak for products of FP8 numbers, by default `flops`.
        flops_4: Peak for products of FP4 numbers, by default `flops_8`.
        source: Where these numbers stand, and of which year they are.

    Raises:
        TypeError: If one of these is no number.
        ValueError: If a latency is below 0, another one not above 0, or a fraction above 1.
    """

    name: str
    flops: float
    memory: float
    memory_bandwidth: float
    devices_per_node: int
    inner_bandwidth: float
    outer_bandwidth: float
    inner_latency: float = 5e-6
    outer_latency: float = 10e-6
    matmul: float = 0.7
    flash: float = 0.35
    fitted: bool = False
    flops_32: float | None = None
    flops_8: float | None = None
    flops_4: float | None = None
    source: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        held(self, "inner_latency", "outer_latency")
        for unit, names in _UNITS.items():
            for name in names:
                if (getattr(self, name) or _LEAST) < _LEAST:
                    raise ValueError(f"{name}={getattr(self, name):g}: give {unit}")
        for name in ("matmul", "flash"):
            if getattr(self, name) > 1:
                raise ValueError(f"{name}={getattr(self, name)}: give a fraction, at most 1")

    def peak(self, size: float) -> float:
        """FLOPs per second at most, in products of numbers of `size` bytes."""
        if size > 2:
            return self.flops / 2 if self.flops_32 is None else self.flops_32
        eight = self.flops_8 or self.flops
        return self.flops if size == 2 else eight if size >= 1 else self.flops_4 or eight


_TEXT = Path(__file__).with_name("machines.json").read_text(encoding="utf-8")
MACHINES = {
    name: Machine(memory=row.pop("memory_gib") * 2**30, **row)
    for name, row in json.loads(_TEXT).items()
}
"""Machines by the name that a shell takes; `source` says where their numbers stand."""
A100_80GB, A100_40GB = MACHINES["a100"], MACHINES["a100-40gb"]
H100_SXM, H100_96GB = MACHINES["h100"], MACHINES["h100-96gb"]
