"""A transformer as sizes: how many weights it has, and how many FLOPs a step takes."""

from dataclasses import dataclass, replace

from distlab.costs.checking import divisible, flags, one_of, positive, whole


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

    def __post_init__(self) -> None:
        positive(
            self,
            ("layers", "hidden", "heads", "sequence", "vocabulary"),
            ("experts", "top_k"),
            tuple(n for n in ("ffn", "kv_heads", "head_size") if getattr(self, n) is not None),
        )
        flags(self, "gated", "tied", "side_by_side", *("dropout",) * (self.dropout is not None))
        if self.head_size is None:
            divisible("hidden", self.hidden, "heads", self.heads, "or give head_size=")
        if self.kv_heads is not None:
            divisible("heads", self.heads, "kv_heads", self.kv_heads)
        if self.top_k > self.experts:
            raise ValueError(
                f"top_k={self.top_k}: a token cannot go to more than all {self.experts} experts; "
                "give experts="
            )

    @property
    def inner(self) -> int:
        """Width inside the feed-forward part."""
        return 4 * self.hidden if self.ffn is None else self.ffn

    @property
    def head(self) -> int:
        """Width of one head."""
        return self.hidden // self.heads if self.head_size is None else self.head_size

    @property
    def masks(self) -> bool:
        """Whether dropout keeps masks."""
        return not self.gated if self.dropout is None else self.dropout

    @property
    def query(self) -> int:
        """Width of all heads' queries."""
        return self.heads * self.head

    @property
    def key(self) -> int:
        """Width of all heads' keys, and of their values."""
        return (self.kv_heads or self.heads) * self.head

    def key_on(self, tensor: int) -> float:
        """Width of the keys on each of so many devices, which have a whole head at least."""
        return max(self.key / tensor, self.head)

    @property
    def attention_weights(self) -> int:
        """Numbers in the four matrices of one layer's attention."""
        return self.hidden * (2 * self.query + 2 * self.key)

    @property
    def expert_weights(self) -> int:
        """Numbers in the matrices of one feed-forward part."""
        return self.hidden * self.inner * (3 if self.gated else 2)

    @property
    def norms(self) -> int:
        """Normalizations in one layer."""
        return 1 if self.side_by_side else 2

    @property
    def layer_vectors(self) -> int:
        """Numbers in one layer's biases and normalizations."""
        if self.gated:
            return self.norms * self.hidden
        biases = self.query + 2 * self.key + self.hidden + self.experts * (self.inner + self.hidden)
        return biases + 2 * self.norms * self.hidden

    @property
    def router_weights(self) -> int:
        """Numbers in one layer's router; 0 without experts."""
        return self.hidden * self.experts if self.experts > 1 else 0

    @property
    def layer_parameters(self) -> int:
        """Numbers in one layer."""
        experts = self.experts * self.expert_weights
        return self.attention_weights + experts + self.router_weights + self.layer_vectors

    @property
    def embedding_parameters(self) -> int:
        """Numbers in the embedding, and in the learned positions."""
        return self.hidden * (self.vocabulary + (0 if self.gated else self.sequence))

    @property
    def parameters(self) -> int:
        """Numbers in the model.

        For GPT-3's kind 12 L h^2 (1 + 13 / (12 h) + (V + s) / (12 L h)) (Narayanan and others,
        2021, https://arxiv.org/abs/2104.04473, equation 2), plus the last normalization, which that
        leaves out.
        """
        head = 0 if self.tied else self.hidden * self.vocabulary
        last = self.hidden * (1 if self.gated else 2)
        return self.layers * self.layer_parameters + self.embedding_parameters + head + last

    @property
    def active_parameters(self) -> int:
        """Numbers that a token meets: all but the experts it is not sent to."""
        return self.parameters - self.layers * (self.experts - self.top_k) * self.expert_weights

    @property
    def layer_matmul_flops(self) -> float:
        """FLOPs of one layer's matrices for one token, forward."""
        return 2.0 * (
            self.attention_weights + self.top_k * self.expert_weights + self.router_weights
        )

    @property
    def matrices(self) -> tuple[tuple[int, int, int], ...]:
        """Rows, columns and uses per token of one layer's matrices, in the order of the products.

        GPT-3's kind has one for queries, keys and values together, Llama's one for each.
        """
        h, q, kv, f, k = self.hidden, self.query, self.key, self.inner, self.top_k
        attention = ((h, q, 1), (h, kv, 1), (h, kv, 1)) if self.gated else ((h, q + 2 * kv, 1),)
        up = ((h, f, k), (h, f, k)) if self.gated else ((h, f, k),)
        return (*attention, (q, h, 1), *up, (f, h, k))

    @property
    def again_flops(self) -> float:
        """FLOPs of every second one of these `matrices` for one token, forward."""
        return 2.0 * sum(rows * columns * uses for rows, columns, uses in self.matrices[1::2])

    @property
    def layer_attention_flops(self) -> float:
        """FLOPs of one layer's scores and values for one token, forward, without a causal mask."""
        return 4.0 * self.sequence * self.query

    @property
    def head_flops(self) -> float:
        """FLOPs of the output matrix for one token, forward."""
        return 2.0 * self.hidden * self.vocabulary

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
        one_of("recompute", recompute, (None, "selective", "matmuls", "full"))
        attention = self.layer_attention_flops
        layer = 3 * (self.layer_matmul_flops + attention)
        if recompute == "selective":
            layer += attention
        elif recompute == "matmuls":
            layer += self.again_flops
        elif recompute == "full":
            layer += self.layer_matmul_flops + attention
        return batch * self.sequence * (self.layers * layer + 3 * self.head_flops)


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
