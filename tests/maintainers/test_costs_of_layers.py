"""What `distlab.costs` counts for a layer is what PyTorch keeps for the backward pass."""

import pytest

from distlab import costs

each_precision = pytest.mark.parametrize(
    ("dtype", "precision"), [("float32", "fp32"), ("bfloat16", "bf16_only")]
)


@each_precision
@pytest.mark.parametrize(("heads", "kv_heads", "head"), [(4, 2, 16), (6, 1, 8), (3, 3, 32)])
def test_a_layer_of_llama_keeps_the_bytes_that_are_counted(dtype, precision, heads, kv_heads, head):
    import torch
    from _layers import Llama, kept

    hidden, inner = 64, 88
    dtype = getattr(torch, dtype)
    for batch, tokens in ((1, 16), (3, 48)):
        layer = Llama(heads, kv_heads, head, hidden, inner, tokens).to(dtype)
        x = torch.randn(batch, tokens, hidden, dtype=dtype, requires_grad=True)
        model = costs.Transformer(
            layers=1,
            hidden=hidden,
            heads=heads,
            sequence=tokens,
            vocabulary=7,
            ffn=inner,
            kv_heads=kv_heads,
            head_size=head,
            gated=True,
        )
        plan = costs.Plan(
            batch=batch,
            micro_batch=batch,
            precision=precision,
            attention="flash",
            fused=False,
        )
        assert kept(layer, x) == costs.layer_activations(model, plan)


@each_precision
def test_a_layer_of_gpt_keeps_the_bytes_that_are_counted(dtype, precision):
    import torch
    from _layers import GPT, kept

    dtype = getattr(torch, dtype)
    for batch, tokens, heads in ((1, 16, 2), (3, 48, 4)):
        layer = GPT(heads, 64).to(dtype)
        x = torch.randn(tokens, batch, 64, dtype=dtype, requires_grad=True)
        model = costs.Transformer(layers=1, hidden=64, heads=heads, sequence=tokens, vocabulary=7)
        plan = costs.Plan(batch=batch, micro_batch=batch, precision=precision, fused=False)
        assert kept(layer, x) == costs.layer_activations(model, plan)
