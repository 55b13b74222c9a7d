"""What a layer is made of: attention, a feed-forward part, normalizations."""

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Matrix:
    """A matrix that tokens are multiplied with.

    Attributes:
        rows: Width of what goes in.
        columns: Width of what comes out.
        uses: How many of the copies each token meets.
        copies: How many there are: one for each expert.
        pieces: Into how many a tensor axis can divide it; None for as many as it has devices.
        down: A tensor axis divides its rows, and adds up what comes out; else its columns.
        beside: Computed as one product with the matrix before it.
        router: Whether it only chooses experts.
    """

    rows: int
    columns: int
    uses: int = 1
    copies: int = 1
    pieces: int | None = None
    down: bool = False
    beside: bool = False
    router: bool = False

    @property
    def numbers(self) -> int:
        """Numbers in all copies."""
        return self.rows * self.columns * self.copies

    @property
    def flops(self) -> float:
        """FLOPs for one token, forward."""
        return 2.0 * self.rows * self.columns * self.uses

    def on(self, tensor: int) -> float:
        """The part of it that each of so many devices of the tensor axis has."""
        return 1 / tensor if self.pieces is None else 1 / min(tensor, self.pieces)


@dataclass(frozen=True)
class Attention:
    """What tokens learn of each other: scores of queries and keys, or a state that each updates.

    Attributes:
        hidden: Width of the residual stream.
        heads: Heads of queries.
        kv_heads: Heads of keys and values.
        query: Width of all queries.
        key: Width of all keys.
        value: Width of all values.
        mixed: Width of all heads' outputs.
        gate: Width of what the outputs are multiplied with; 0 for none.
        query_rank: Latent attention: width that queries are compressed to; 0 for not.
        key_rank: Latent attention: width that keys and values are compressed to; 0 for not.
        shared_key: Latent attention: width of the part of a key that all heads share.
        joined: One matrix for queries, keys and values.
        rotary: Whether positions turn queries and keys.
        window: Tokens that each attends to; None for all before it.
        state: Linear attention: FLOPs of a token with the heads' states; 0 where there are scores.
        vectors: Numbers in biases, normalizations and sinks.
        normed: Whether queries and keys are normalized.
    """

    hidden: int
    heads: int
    kv_heads: int
    query: int
    key: int
    value: int
    mixed: int
    gate: int = 0
    query_rank: int = 0
    key_rank: int = 0
    shared_key: int = 0
    joined: bool = False
    rotary: bool = True
    window: int | None = None
    state: int = 0
    vectors: int = 0
    normed: bool = False

    @cached_property
    def matrices(self) -> tuple[Matrix, ...]:
        """In the order of the products."""
        h, heads = self.hidden, self.kv_heads
        out = Matrix(self.mixed, h, down=True)
        gate = (Matrix(h, self.gate, beside=True),) if self.gate else ()
        if self.key_rank:
            down, rank = Matrix(h, self.query_rank, pieces=1), self.query_rank
            inner = self.key - self.heads * self.shared_key + self.value
            return (
                *((down, Matrix(rank, self.query)) if rank else (Matrix(h, self.query),)),
                Matrix(h, self.key_rank + self.shared_key, pieces=1),
                Matrix(self.key_rank, inner),
                *gate,
                out,
            )
        if self.joined and self.kv_heads == self.heads:
            return (Matrix(h, self.query + self.key + self.value), *gate, out)
        keys, values = (Matrix(h, w, pieces=heads, beside=True) for w in (self.key, self.value))
        return (Matrix(h, self.query), keys, values, *gate, out)

    def reach(self, sequence: int) -> float:
        """Tokens that one attends to on average, under the causal mask."""
        window = min(self.window or sequence, sequence)
        return window - window * window / (2 * sequence)

    def flops(self, sequence: int) -> float:
        """FLOPs of scores and values for one token, forward.

        What a causal mask hides is counted, what a window leaves out is not.
        """
        if self.state:
            return float(self.state)
        return 2.0 * min(self.window or sequence, sequence) * (self.query + self.mixed)

    def keys_on(self, tensor: int) -> tuple[float, float]:
        """Widths of keys and of values on each of so many devices: of a whole head at least."""
        share = 1 / tensor if self.key_rank else 1 / min(tensor, self.kv_heads)
        return self.key * share, self.value * share


@dataclass(frozen=True)
class Feed:
    """The feed-forward part, or experts, to some of which each token is sent.

    Attributes:
        hidden: Width of the residual stream.
        inner: Width inside, or inside an expert.
        gated: Three matrices instead of two.
        experts: How many; 0 for a part without a router.
        top_k: How many of them each token is sent to.
        shared: Width inside of experts that all tokens share.
        shared_gate: Whether what these answer is weighted.
        vectors: Numbers in biases.
    """

    hidden: int
    inner: int
    gated: bool = True
    experts: int = 0
    top_k: int = 1
    shared: int = 0
    shared_gate: bool = False
    vectors: int = 0

    @cached_property
    def matrices(self) -> tuple[Matrix, ...]:
        """In the order of the products."""
        h, f, shared = self.hidden, self.inner, self.shared
        uses, copies = (self.top_k, self.experts) if self.experts else (1, 1)
        up, also = Matrix(h, f, uses, copies), Matrix(h, shared)
        count = 2 if self.gated else 1
        return (
            *(Matrix(h, self.experts, pieces=1, router=True),) * bool(self.experts),
            *(up,) * count,
            Matrix(f, h, uses, copies, down=True),
            *((also,) * count + (Matrix(shared, h, down=True),)) * bool(shared),
            *(Matrix(h, 1, pieces=1, router=True),) * self.shared_gate,
        )

    @property
    def width(self) -> int:
        """Width inside, of all that a token meets."""
        return self.inner * (self.top_k if self.experts else 1) + self.shared


@dataclass(frozen=True)
class Layer:
    """Attention and a feed-forward part, with normalizations.

    Attributes:
        attention: The attention.
        feed: The feed-forward part.
        norms: Normalizations of the width of the residual stream.
        vectors: Numbers in these.
        rms: Whether they divide by the root mean square, and keep no mean.
        side_by_side: Both parts read the same input, and their outputs are added together.
    """

    attention: Attention
    feed: Feed
    norms: int = 2
    vectors: int = 0
    rms: bool = True
    side_by_side: bool = False

    @cached_property
    def matrices(self) -> tuple[Matrix, ...]:
        """Those of both parts, in the order of the products."""
        return (*self.attention.matrices, *self.feed.matrices)

    @cached_property
    def all_vectors(self) -> int:
        """Numbers that are in no matrix."""
        return self.attention.vectors + self.feed.vectors + self.vectors

    @cached_property
    def parameters(self) -> int:
        """Numbers in all."""
        return sum(each.numbers for each in self.matrices) + self.all_vectors

    @cached_property
    def idle(self) -> int:
        """Numbers of experts that a token is not sent to."""
        return sum(
            each.rows * each.columns * max(0, each.copies - each.uses) for each in self.matrices
        )

    @cached_property
    def matmul_flops(self) -> float:
        """FLOPs of the matrices for one token, forward."""
        return sum(each.flops for each in self.matrices)

    @cached_property
    def again_flops(self) -> float:
        """FLOPs of every second one of the matrices, forward: what "matmuls" computes again."""
        return sum([each.flops for each in self.matrices if not each.router][1::2])
