"""How a training step is divided among devices, and in which number formats."""

from dataclasses import dataclass

from distlab.costs.checking import divisible, held, one_of
from distlab.costs.models import RECOMPUTE, Transformer

ATTENTION = ("standard", "flash")


@dataclass(frozen=True)
class Precision:
    """Bytes per number; docs/costs.md has those that have names.

    Attributes:
        weights: Of the weights that are kept.
        gradients: Of the gradients that are kept, and sent.
        master: Of a second copy of the weights that the optimizer updates; 0 for none.
        moments: Of the optimizer's state: 8 for Adam in fp32, 2 for Adam in 8 bits.
        compute: Of activations, and of weights as they are multiplied and gathered.
        products: Of what the matrices of the layers are multiplied in, by default as `compute`: 1
            for FP8, 17 / 32 for MXFP4, whose blocks of 32 share a scale. Embedding, output,
            routers, attention's own products, normalizations and what is kept for the backward
            pass stay in `compute`.
        matrix_moments: Of the optimizer's state of the layers' matrices, by default as `moments`.
            Muon keeps one moment of these, and is Adam for embedding, output and vectors.

    Raises:
        TypeError: If one is no number.
        ValueError: If one is negative, or 0 where something has to be kept.
    """

    weights: float
    gradients: float
    master: float
    moments: float
    compute: float
    products: float | None = None
    matrix_moments: float | None = None

    def __post_init__(self) -> None:
        held(self, "master", "moments", "matrix_moments")

    @property
    def multiplied(self) -> float:
        """Bytes of what the matrices of the layers are multiplied in."""
        return self.products or self.compute


PRECISIONS = {
    "fp32": Precision(4, 4, 0, 8, 4),
    "bf16": Precision(2, 2, 4, 8, 2),
    "bf16_fp32_gradients": Precision(2, 4, 4, 8, 2),
    "bf16_compute": Precision(4, 4, 0, 8, 2),
    "bf16_only": Precision(2, 2, 0, 4, 2),
    "bf16_8bit_adam": Precision(2, 2, 4, 2, 2),
    "bf16_muon": Precision(2, 4, 4, 8, 2, matrix_moments=4),
    "fp8": Precision(2, 2, 4, 8, 2, products=1),
    "fp8_compute": Precision(4, 4, 0, 8, 2, products=1),
    "fp8_deepseek": Precision(1, 4, 4, 4, 2, products=1),
    "mxfp4": Precision(2, 2, 4, 8, 2, products=17 / 32),
}
"""By name: `bf16` keeps fp32 master weights, 16 bytes per weight in all (Rajbhandari and others,
2020, https://arxiv.org/abs/1910.02054, section 3.1); Megatron-LM adds gradients in fp32, 18 bytes;
`bf16_compute` keeps everything in fp32 and computes in bf16, as FSDP does. `bf16_only`
has no fp32 at all, 8 bytes per weight. `bf16_8bit_adam` is `bf16` with Adam's two moments in a byte
each (Dettmers and others, 2022, https://arxiv.org/abs/2110.02861); it keeps fp32 master weights, 10
bytes per weight. `bf16_muon` is `bf16_fp32_gradients` with Muon (Liu and others, 2025,
https://arxiv.org/abs/2502.16982); its products, less than a percent of a step's, are not in the
time. `fp8` and `fp8_compute` multiply in FP8 as Transformer Engine and torchtitan do; with
`fp8_deepseek` weights are kept in FP8, and moments in bf16 (DeepSeek-AI, 2024,
https://arxiv.org/abs/2412.19437, section 3.3). For others, give
`precision=costs.Precision(...)`."""


@dataclass(frozen=True)
class Plan:
    """How many devices, along which axes, and what is kept.

    The number of devices is data x tensor x pipeline x context. Along the node tensor comes first,
    then context, data and pipeline (Megatron-LM's order).

    Attributes:
        data: Replicas of the model.
        tensor: Devices that share each matrix.
        pipeline: Stages.
        context: Devices that share each sequence.
        expert: Devices that share each layer's experts; of the data and context axes.
        batch: Sequences in a step, of all replicas.
        micro_batch: Sequences that a device computes with at a time.
        recompute: None keeps all activations. "selective" recomputes the attention's scores, "full"
            keeps only each layer's input, "matmuls" keeps the outputs of attention and of every
            second matrix (torchtitan's selective activation checkpointing of operations).
        sequence_parallel: Between the matrices each device of the tensor axis has a part of the
            sequence.
        zero: 0; or what is sharded over data x context: 1 optimizer states, 2 gradients too, 3
            weights too. With 2, weights that are kept in more bytes than they are multiplied in are
            sharded, and gathered once in the fewer bytes; gradients are reduced after each
            micro-batch, but a pipeline adds up those of its micro-batches unsharded, and reduces
            them once (PyTorch's FSDP with `reshard_after_forward=False`).
        interleave: Chunks of layers per stage, v in the formulas.
        short_ends: The first and the last stage have one layer less than the others, as they have
            the embedding and the output (Llama 3; Megatron-LM's
            `--account-for-embedding-in-pipeline-split` and `--account-for-loss-in-pipeline-split`).
        precision: A name in `costs.PRECISIONS`, or a `costs.Precision`.
        attention: "standard" writes the scores to memory, "flash" does not.
        fused: Operations between the matrices run as few kernels (Megatron-LM's, or compiled);
            False is one kernel for each, as PyTorch does by itself.
        fused_loss: The loss works on the logits in place, as Megatron-LM's does; False is PyTorch's
            `cross_entropy`: the log-softmax, its gradient and that of the logits, all in fp32.
        overlap: Communication of gradients and of gathered weights runs beside computation.
        overlap_tensor: Communication over the tensor axis runs beside the matrix products, piece by
            piece (torchtitan's asynchronous tensor parallelism, Megatron-LM's `--tp-comm-overlap`).

    Raises:
        TypeError: If a size is no whole number, or a choice is not True or False.
        ValueError: If sizes are not positive or do not divide, or a name is not known.
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    batch: int = 1
    micro_batch: int = 1
    recompute: str | None = None
    sequence_parallel: bool = False
    zero: int = 0
    interleave: int = 1
    short_ends: bool = False
    precision: str | Precision = "bf16"
    attention: str = "standard"
    fused: bool = True
    fused_loss: bool = False
    overlap: bool = True
    overlap_tensor: bool = False

    def __post_init__(self) -> None:
        held(self, "zero")
        one_of("recompute", self.recompute, RECOMPUTE)
        one_of("zero", self.zero, (0, 1, 2, 3))
        one_of("attention", self.attention, ATTENTION)
        if not isinstance(self.precision, Precision):
            one_of("precision", self.precision, tuple(PRECISIONS))
        divisible("batch", self.batch, "data x micro_batch", self.data * self.micro_batch)
        if self.pipeline == 1 and (self.short_ends or self.interleave > 1):
            raise ValueError("interleave= and short_ends=: give pipeline= of at least 2, too")
        if self.interleave > 1:
            m, p = self.micro_batches, self.pipeline
            divisible("micro-batches", m, "pipeline", p, "or give interleave=1")
        divisible("data x context", self.data * self.context, "expert", self.expert)

    @property
    def devices(self) -> int:
        """How many devices the plan needs."""
        return self.data * self.tensor * self.pipeline * self.context

    @property
    def micro_batches(self) -> int:
        """Micro-batches of one replica in a step, m in the formulas."""
        return self.batch // (self.data * self.micro_batch)

    @property
    def formats(self) -> Precision:
        """The number formats."""
        return PRECISIONS[self.precision] if isinstance(self.precision, str) else self.precision

    def layers_of(self, model: Transformer, stage: int) -> float:
        """Layers of a stage."""
        if not self.short_ends:
            return model.layers / self.pipeline
        return (model.layers + 2) / self.pipeline - (stage in (0, self.pipeline - 1))

    def check(self, model: Transformer) -> None:
        """Raise a ValueError unless the model can be divided so."""
        chunks = self.pipeline * self.interleave
        if self.short_ends:
            divisible("layers + 2", model.layers + 2, "pipeline x interleave", chunks)
        else:
            cure = "or give short_ends=True" if (model.layers + 2) % chunks == 0 else ""
            divisible("layers", model.layers, "pipeline x interleave", chunks, cure)
        for _, layer in model.kinds:
            heads, feed = layer.attention.kv_heads, layer.feed
            divisible("heads", layer.attention.heads, "tensor", self.tensor)
            if heads % self.tensor and self.tensor % heads:
                raise ValueError(
                    f"kv_heads={heads} and tensor={self.tensor}: choose sizes of which one divides "
                    "the other"
                )
            divisible("ffn", feed.inner, "tensor", self.tensor)
            divisible("ffn", feed.shared, "tensor", self.tensor)
            divisible("experts", feed.experts, "expert", self.expert)
        divisible("sequence", model.sequence, "context", self.context)
        if self.sequence_parallel:
            divisible("sequence", model.sequence, "context x tensor", self.context * self.tensor)
        if not model.routed:
            divisible("experts", 1, "expert", self.expert)
