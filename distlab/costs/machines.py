"""Machines: what a device computes, keeps and sends."""

from dataclasses import dataclass, replace

from distlab.costs.checking import flags, in_unit, numbers, positive


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

    def __post_init__(self) -> None:
        numbers(self, "flops", "memory", "memory_bandwidth", "inner_bandwidth", "outer_bandwidth")
        in_unit("memory", self.memory, "bytes", "80e9 for 80 GB")
        for name in ("memory_bandwidth", "inner_bandwidth", "outer_bandwidth"):
            in_unit(name, getattr(self, name), "bytes per second", "50e9 for 400 Gb/s")
        numbers(self, "inner_latency", "outer_latency", zero=True)
        others = ("flops_32", "flops_8", "flops_4")
        numbers(self, "matmul", "flash", *(n for n in others if getattr(self, n) is not None))
        for name in ("flops", *others):
            in_unit(name, getattr(self, name) or 0, "FLOPs per second", "312e12")
        for name in ("matmul", "flash"):
            if getattr(self, name) > 1:
                raise ValueError(f"{name}={getattr(self, name)}: give a fraction, at most 1")
        flags(self, "fitted")
        positive(self, ("devices_per_node",))

    def peak(self, size: float) -> float:
        """FLOPs per second at most, in products of numbers of `size` bytes."""
        if size > 2:
            return self.flops / 2 if self.flops_32 is None else self.flops_32
        eight = self.flops_8 or self.flops
        return self.flops if size == 2 else eight if size >= 1 else self.flops_4 or eight


GIB = 2**30
NEWER_FLASH = 0.45
"""Fraction of an H100's `flops` that attention's kernels of 2024 reach, forward and backward: a
guess by hand, which brings the runs of Llama 3.1 8B with NVIDIA's NeMo near (docs/costs.md).
FlashAttention 3 published more, up to 0.75 forward (https://arxiv.org/abs/2407.08608)."""
OLDER_FLASH = 0.25
"""An H100 whose `flash` is below this has kernels of 2023, made for the A100."""

A100_80GB = Machine(
    "A100 80 GB",
    flops=312e12,
    memory=79.25 * GIB,
    memory_bandwidth=2.039e12,
    devices_per_node=8,
    inner_bandwidth=300e9,
    outer_bandwidth=25e9,
    matmul=0.83,
    flash=0.34,
    fitted=True,
    flops_32=156e12,
)
"""In a DGX A100: NVLink 600 GB/s in both directions, one 200 Gb/s adapter for each device
(https://www.nvidia.com/en-us/data-center/a100/). PyTorch reports 79.25 GiB, 85.1 GB
(https://github.com/wbfwonderful/Vad-R1/issues/11); other drivers keep 0.1 GiB more."""
A100_40GB = replace(A100_80GB, name="A100 40 GB", memory=39.5 * GIB, memory_bandwidth=1.555e12)
"""With less and slower memory than `A100_80GB`, and its rates; none of its runs was fitted. PyTorch
reports 39.50 GiB, 42.4 GB (https://github.com/TianheWu/CoSeR/issues/10)."""
H100_SXM = Machine(
    "H100 SXM",
    flops=989.4e12,
    memory=79.18 * GIB,
    memory_bandwidth=3.35e12,
    devices_per_node=8,
    inner_bandwidth=450e9,
    outer_bandwidth=50e9,
    matmul=0.70,
    flash=0.45,
    fitted=True,
    flops_32=494.7e12,
    flops_8=1978.9e12,
)
"""In a DGX H100: NVLink 900 GB/s in both directions, one 400 Gb/s adapter for each device
(https://www.nvidia.com/en-us/data-center/h100/). PyTorch reports
81,082 MiB, which is 79.18 GiB or 85.0 GB (`torch.cuda.get_device_properties`; torchtitan's log
prints it, too). The rate of attention is that of the kernels of 2023 (LLM Foundry's runs).
FlashAttention 3 and cuDNN of 2024 reach more; for them, use
`dataclasses.replace(H100_SXM, flash=0.45)` (docs/costs.md)."""
H100_96GB = replace(
    H100_SXM,
    name="H100 96 GB",
    memory=95.0 * GIB,
    memory_bandwidth=2.4e12,
    matmul=0.65,
    flash=0.20,
)
"""Meta's, with HBM2e and 500 W
(https://github.com/pytorch/torchtitan/blob/main/benchmarks/llama3_h100_202412_torchtitan.md).
torchtitan calls them "SXM H100 (95GB)" (docs/performance.md at 3faaa1a): 95.0 GiB, which are
102.0 GB."""
TPU_V4 = Machine(
    "TPU v4",
    275e12,
    32.0 * GIB,
    1.2e12,
    4096,
    200e9,
    200e9,
    inner_latency=2e-6,
    matmul=0.85,
    flash=0.4,
)
"""In one pod, whose torus counts as the node: six links of 50 GB/s, of which a ring over one or two
dimensions uses some (Jouppi and others, 2023, https://arxiv.org/abs/2304.01433)."""
H200 = replace(
    H100_SXM, name="H200", memory=139.8 * GIB, memory_bandwidth=4.8e12, flash=0.45, fitted=False
)
"""An H100 with more and faster memory, 2024 (https://www.nvidia.com/en-us/data-center/h200/). Of
141 GB PyTorch reports 139.80 GiB. Its kernels of attention are taken to be those of 2024."""
B200 = Machine(
    "B200",
    flops=2.25e15,
    memory=178.35 * GIB,
    memory_bandwidth=8e12,
    devices_per_node=8,
    inner_bandwidth=900e9,
    outer_bandwidth=50e9,
    matmul=0.7,
    flash=0.35,
    flops_32=1.125e15,
    flops_8=4.5e15,
    flops_4=9e15,
)
"""In a DGX B200, 2024: 36 and 72 PFLOP/s in BF16 and FP8 with sparsity for eight, NVLink 14.4 TB/s,
one 400 Gb/s adapter each (https://www.nvidia.com/en-us/data-center/dgx-b200/). PyTorch reports
178.35 GiB."""
GB200 = replace(
    B200,
    name="GB200 NVL72",
    flops=2.5e15,
    memory=184.31 * GIB,
    devices_per_node=72,
    flops_32=1.25e15,
    flops_8=5e15,
    flops_4=10e15,
)
"""72 that NVLink connects, 2024: 360 and 720 PFLOP/s in BF16 and FP8 with sparsity
(https://www.nvidia.com/en-us/data-center/gb200-nvl72/). PyTorch reports 184.31 GiB."""
B300 = replace(B200, name="B300", memory=267.69 * GIB, outer_bandwidth=100e9, flops_4=13.5e15)
"""In a DGX B300, 2025: 72 PFLOP/s in FP8 with sparsity and 108 in FP4 without for eight, one 800
Gb/s adapter each (https://www.nvidia.com/en-us/data-center/dgx-b300/). PyTorch reports 267.69
GiB."""
MI300X = Machine(
    "MI300X",
    flops=1307.4e12,
    memory=191.98 * GIB,
    memory_bandwidth=5.3e12,
    devices_per_node=8,
    inner_bandwidth=448e9,
    outer_bandwidth=50e9,
    matmul=0.5,
    flops_32=653.7e12,
    flops_8=2614.9e12,
)
"""Eight that seven links of 128 GB/s in both directions connect, 2023
(https://www.amd.com/en/products/accelerators/instinct/mi300/mi300x.html); PyTorch reports 191.98
GiB. AMD's own products of matrices reach about half of the peak."""
MI355X = replace(
    MI300X,
    name="MI355X",
    flops=2516.6e12,
    memory=287.98 * GIB,
    memory_bandwidth=8e12,
    inner_bandwidth=537.6e9,
    flops_32=157.3e12,
    flops_8=5033.2e12,
    flops_4=10066.3e12,
)
"""The same with links of 153.6 GB/s, 2025
(https://www.amd.com/en/products/accelerators/instinct/mi350/mi355x.html); PyTorch reports 287.98
GiB. Without TF32."""
TPU_V5P = replace(
    TPU_V4,
    name="TPU v5p",
    flops=459e12,
    memory=95.0 * GIB,
    memory_bandwidth=2.765e12,
    devices_per_node=8960,
    inner_bandwidth=400e9,
    outer_bandwidth=400e9,
)
"""2023; like v6e and v7 from https://docs.cloud.google.com/tpu/docs/tpu7x (2025), in a pod. Of the
bandwidth in one direction, 600 GB/s here, a ring is taken to use two thirds, as in TPU v4."""
TPU_V6E = replace(
    TPU_V5P,
    name="TPU v6e",
    flops=918e12,
    memory=32.0 * GIB,
    memory_bandwidth=1.638e12,
    devices_per_node=256,
    inner_bandwidth=267e9,
    outer_bandwidth=267e9,
)
"""Trillium, 2024: 400 GB/s in one direction. Its FP8 is as fast as BF16."""
TPU_V7 = replace(
    TPU_V5P,
    name="TPU v7",
    flops=2307e12,
    memory=192.0 * GIB,
    memory_bandwidth=7.38e12,
    devices_per_node=9216,
    flops_8=4614e12,
)
"""Ironwood, 2025: 600 GB/s in one direction."""

MACHINES = {
    "a100": A100_80GB,
    "a100-40gb": A100_40GB,
    "h100": H100_SXM,
    "h100-96gb": H100_96GB,
    "h200": H200,
    "b200": B200,
    "gb200": GB200,
    "b300": B300,
    "mi300x": MI300X,
    "mi355x": MI355X,
    "tpu-v4": TPU_V4,
    "tpu-v5p": TPU_V5P,
    "tpu-v6e": TPU_V6E,
    "tpu-v7": TPU_V7,
}
"""Machines by the name that a shell takes."""
