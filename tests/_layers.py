"""Layers in PyTorch, and what autograd keeps of them. Apart from the tests: torch takes seconds."""

import math

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import gelu, scaled_dot_product_attention, silu


class RootMeanSquare(torch.autograd.Function):
    """The normalization as on GPUs, which keeps its input and a number for each token."""

    @staticmethod
    def forward(ctx, x, weight):
        scale = (x.float().square().mean(-1, keepdim=True) + 1e-6).rsqrt()
        ctx.save_for_backward(x, scale, weight)
        return (x * scale).to(x.dtype) * weight


class Llama(nn.Module):
    """Grouped queries, rotary positions, and a gated feed-forward part."""

    def __init__(self, heads, kv_heads, head, hidden, inner, tokens):
        super().__init__()
        self.head = head
        self.query = nn.Linear(hidden, heads * head, bias=False)
        self.key, self.value = (nn.Linear(hidden, kv_heads * head, bias=False) for _ in "kv")
        self.out = nn.Linear(heads * head, hidden, bias=False)
        self.gate, self.up = (nn.Linear(hidden, inner, bias=False) for _ in "gu")
        self.down = nn.Linear(inner, hidden, bias=False)
        self.norms = nn.ParameterList(torch.ones(hidden) for _ in range(2))
        angles = torch.arange(tokens)[:, None] * torch.ones(head)
        self.turn = nn.ParameterList(
            nn.Parameter(each, requires_grad=False) for each in (angles.cos(), angles.sin())
        )

    def turned(self, x):
        one, other = x.chunk(2, -1)
        return x * self.turn[0] + torch.cat((-other, one), -1) * self.turn[1]

    def forward(self, x):
        read = RootMeanSquare.apply(x, self.norms[0])
        q, k, v = (
            matrix(read).unflatten(-1, (-1, self.head)).transpose(1, 2)
            for matrix in (self.query, self.key, self.value)
        )
        mixed = scaled_dot_product_attention(
            self.turned(q), self.turned(k), v, is_causal=True, enable_gqa=True
        )
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        read = RootMeanSquare.apply(x, self.norms[1])
        return x + self.down(silu(self.gate(read)) * self.up(read))


class GPT(nn.Module):
    """Standard attention with dropout, biases, and two matrices in the feed-forward part."""

    def __init__(self, heads, hidden):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(2))
        self.joined, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        def dropout(x):
            return torch.native_dropout(x, 0.1, True)[0]

        heads = self.joined(self.norms[0](x)).unflatten(-1, (3, self.heads, -1))
        q, k, v = heads.permute(2, 1, 3, 0, 4)
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        future = torch.full(scores.shape[-2:], -math.inf, dtype=x.dtype).triu(1)
        mixed = dropout((scores + future).softmax(-1)) @ v
        x = x + dropout(self.out(mixed.permute(2, 0, 1, 3).flatten(2)))
        return x + dropout(self.down(gelu(self.up(self.norms[1](x)))))


def kept(layer, x):
    """Bytes that autograd keeps, without the layer's own weights."""
    own = {weight.untyped_storage().data_ptr() for weight in layer.parameters()}
    found = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            found[storage.data_ptr()] = storage
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        layer(x)
    return sum(storage.nbytes() for storage in found.values())
