"""A transformer as sizes: how many weights it has, and how many FLOPs a step takes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from distlab.costs.checking import divisible, held, one_of, whole
from distlab.costs.configs import described
from distlab.costs.parts import Attention, Feed, Layer

RECOMPUTE = (None, "selective", "full", "matmuls")


@dataclass(frozen=True)
class Transformer:
    """A decoder-only transformer.

    With `gated=False` it is GPT-3's: two matrices in the feed-forward part, biases, layer
    normalization, dropout, learned positions. With `gated=True` it is Llama's: three matrices, no
    biases, no dropout, normalization by the root mean square, rotary positions. Both have the
    embedding as output matrix unless `tied=False`.

    Attributes:
        layers: Number of layers, L in the formulas.
        hidden: Width of the residual stream, h.
        heads: Number of attention heads, a.
        sequence: Tokens in a sequence, s.
        vocabulary: Number of tokens, V.
        ffn: Width inside the feed-forward part, by default 4 h.
        kv_heads: Heads of keys and values, fewer than `heads` in grouped-query attention.
        head_size: Width of a head, by default h / a.
        gated: Llama's kind instead of GPT-3's.
        dropout: Whether masks are kept for dropout, by default as in GPT-3's kind.
        tied: One matrix for the embedding and the output.
        experts: Feed-forward parts per layer; more than 1 in a mixture of experts.
        top_k: How many experts each token goes to.
        side_by_side: Attention and feed-forward part read the same normalized input, and their
            outputs are added together: one normalization, and half the sums over the tensor axis
            (PaLM, Falcon, GPT-J).
        blocks: How many layers there are of each kind, for models that these sizes don't describe;
            by default all are of the one kind that they do. `from_config` makes them.
        others: Numbers outside the layers and the matrices of the vocabulary, by default those of
            the last normalization, and of positions that are learned.

    Raises:
        TypeError: If a size is no whole number, or a choice is not True or False.
        ValueError: If sizes are not positive, or do not divide.

    Example:
        >>> gpt2 = Transformer(layers=12, hidden=768, heads=12, sequence=1024, vocabulary=50257)
        >>> gpt2.parameters
        124439808
    """

    layers: int
    hidden: int
    heads: int
    sequence: int
    vocabulary: int
    ffn: int | None = None
    kv_heads: int | None = None
    head_size: int | None = None
    gated: bool = False
    dropout: bool | None = None
    tied: bool = True
    experts: int = 1
    top_k: int = 1
    side_by_side: bool = False
    blocks: tuple[tuple[int, Layer], ...] | None = None
    others: int | None = None

    @classmethod
    def from_config(
        cls, config: str | Path | Mapping[str, Any] | Any, sequence: int | None = None
    ) -> "Transformer":
        """Read a published configuration, as the Hugging Face Hub has them.

        What it leaves out takes its architecture's default. The attention of a layer reaches as far
        as its window, and layers of different kinds are taken as evenly spread over a pipeline.

        Args:
            config: Path of a `config.json` or of its folder, its content, or a config object of
                `transformers`.
            sequence: Tokens in a sequence; by default 4,096, or as many as the model takes.

        Returns:
            A model whose `parameters` are those of `transformers.AutoModelForCausalLM`.

        Raises:
            FileNotFoundError: If there is no such file.
            TypeError: If a field is of the wrong kind.
            ValueError: If a field has no possible value, or the architecture is not known.

        Example:
            >>> config = {"model_type": "qwen3", "num_hidden_layers": 36, "hidden_size": 2560}
            >>> config |= {"intermediate_size": 9728, "num_key_value_heads": 8}
            >>> model = Transformer.from_config(config | {"tie_word_embeddings": True})
            >>> model.parameters
            4022468096
        """
        sizes = described(config)
        most = sizes.pop("positions")
        return cls(**sizes, sequence=min(4096, most) if sequence is None else sequence)

    def __post_init__(self) -> None:
        held(self, "others")
        if self.head_size is None and self.blocks is None:
            divisible("hidden", self.hidden, "heads", self.heads, "or give head_size=")
        if self.kv_heads is not None:
            divisible("heads", self.heads, "kv_heads", self.kv_heads)
        if self.blocks is not None and (sum(n for n, _ in self.blocks)) != self.layers:
            raise ValueError(f"layers={self.layers}: blocks has another number; change both")
        if self.top_k > self.experts:
            raise ValueError(f"top_k={self.top_k}: give at most experts={self.experts}")

    @cached_property
    def kinds(self) -> tuple[tuple[int, Layer], ...]:
        """How many layers there are of each kind."""
        return self.blocks or ((self.layers, self._layer()),)

    def _layer(self) -> Layer:
        """The layer that the sizes describe."""
        h, kv_heads = self.hidden, self.kv_heads or self.heads
        head = h // self.heads if self.head_size is None else self.head_size
        inner = 4 * h if self.ffn is None else self.ffn
        query, key = self.heads * head, kv_heads * head
        biases, norms = not self.gated, 1 if self.side_by_side else 2
        attention = Attention(
            h,
            self.heads,
            kv_heads,
            query,
            key,
            value=key,
            mixed=query,
            joined=biases,
            rotary=self.gated,
            vectors=biases * (query + 2 * key + h),
        )
        feed = Feed(
            h,
            inner,
            self.gated,
            experts=self.experts if self.experts > 1 else 0,
            top_k=self.top_k,
            vectors=biases * self.experts * (inner + h),
        )
        vectors = norms * h * (1 + biases)
        return Layer(attention, feed, norms, vectors, self.gated, self.side_by_side)

    def mean(self, of: Callable[[Layer], float]) -> float:
        """The mean of something over the layers."""
        return sum(count * of(layer) for count, layer in self.kinds) / self.layers

    @cached_property
    def routed(self) -> int:
        """Experts in a layer that has most; 0 without."""
        return max(layer.feed.experts for _, layer in self.kinds)

    @cached_property
    def masks(self) -> bool:
        """Whether dropout keeps masks."""
        return not self.gated if self.dropout is None else self.dropout

    @cached_property
    def outside(self) -> int:
        """Numbers outside the layers and the matrices of the vocabulary."""
        if self.others is not None:
            return self.others
        return self.hidden if self.gated else self.hidden * (self.sequence + 2)

    @cached_property
    def parameters(self) -> int:
        """Numbers in the model; a matrix that is used twice counts once.

        For GPT-3's kind 12 L h^2 (1 + 13 / (12 h) + (V + s) / (12 L h)) (Narayanan and others,
        2021, https://arxiv.org/abs/2104.04473, equation 2), plus the last normalization, which that
        leaves out.
        """
        ends = self.hidden * self.vocabulary * (1 if self.tied else 2) + self.outside
        return sum(count * layer.parameters for count, layer in self.kinds) + ends

    @cached_property
    def active_parameters(self) -> int:
        """Numbers that a token meets: all but the experts it is not sent to."""
        return self.parameters - sum(count * layer.idle for count, layer in self.kinds)

    @cached_property
    def attention_flops(self) -> float:
        """FLOPs of a layer's scores and values for one token, forward, without a causal mask."""
        return self.mean(lambda layer: layer.attention.flops(self.sequence))

    def flops(self, batch: int, recompute: str | None = None) -> float:
        """FLOPs of one training step: what is multiplied, and each addition.

        For GPT-3's kind this is 72 B L s h^2 (1 + s / (6 h) + V / (12 h L)), and 4/3 of the layers'
        part with full recompute (Korthikanti and others, 2022, https://arxiv.org/abs/2205.05198,
        appendix A). Like theirs it counts the whole attention, also the half that a causal mask
        throws away. Selective recompute adds s / (18 h) in the bracket: one forward pass of the
        attention, as their text says. Their equation 8 adds three times that.

        Args:
            batch: Sequences in the step.
            recompute: None, or "selective", which computes the attention's scores and values once
                more, or "matmuls", every second one of a layer's `matrices`, or "full", each layer.

        Raises:
            TypeError: If the batch is no whole number.
            ValueError: If it is below 1, or there is no such recompute.
        """
        batch = whole("batch", batch)
        one_of("recompute", recompute, RECOMPUTE)
        attention = self.attention_flops
        matrices = self.mean(lambda layer: layer.matmul_flops)
        again = {
            None: 0.0,
            "selective": attention,
            "matmuls": self.mean(lambda layer: layer.again_flops),
            "full": matrices + attention,
        }[recompute]
        layer = 3 * (matrices + attention) + again
        head = 3 * 2 * self.hidden * self.vocabulary  # the output matrix
        return batch * self.sequence * (self.layers * layer + head)


GPT3_175B = Transformer(layers=96, hidden=12288, heads=96, sequence=2048, vocabulary=51200)
"""Brown and others, 2020 (https://arxiv.org/abs/2005.14165); Megatron-LM pads the vocabulary."""
LLAMA3_8B = Transformer(
    layers=32,
    hidden=4096,
    heads=32,
    sequence=8192,
    vocabulary=128256,
    ffn=14336,
    kv_heads=8,
    gated=True,
    tied=False,
)
"""Grattafiori and others, 2024 (https://arxiv.org/abs/2407.21783, table 3)."""
LLAMA3_70B = replace(LLAMA3_8B, layers=80, hidden=8192, heads=64, ffn=28672)
LLAMA3_405B = replace(LLAMA3_8B, layers=126, hidden=16384, heads=128, ffn=53248)
MODELS = {
    "gpt3-175b": GPT3_175B,
    "llama3-8b": LLAMA3_8B,
    "llama3-70b": LLAMA3_70B,
    "llama3-405b": LLAMA3_405B,
}
"""Models by the name that a shell takes."""
