"""What transformers makes of configurations. Apart from the tests: it takes seconds to import."""

import random
import warnings
from functools import cache

import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from torch.utils.flop_counter import FlopCounterMode

REFUSED = (StrictDataclassError, TypeError, ValueError)
"""How an architecture says that it does not allow something."""
FIXED = {
    "add_cross_attention",
    "is_decoder",
    "layer_norm_elementwise_affine",
    "do_layer_norm_before",
    "_remove_final_layer_norm",
    "use_bidirectional_attention",
    "is_encoder_decoder",
    "use_sliding_window",
    "return_dict",
}
"""Flags that make something else of a model than what is trained."""


@cache
def config_of(name):
    return transformers.AutoConfig.for_model(name)


def built(fields):
    """The configuration, and the numbers in its model, those that are shared once."""
    with warnings.catch_warnings(), torch.device("meta"):
        warnings.simplefilter("ignore")
        config = transformers.AutoConfig.for_model(**fields)
        model = transformers.AutoModelForCausalLM.from_config(config)
    return config, sum(weight.numel() for weight in model.parameters())


def odd(name, number):
    """A small configuration: few heads, one or as many for the keys, flags the other way round."""
    rng = random.Random(f"{name} {number}")
    known, pick = config_of(name).to_dict(), rng.choice
    kv_heads, experts, layers = pick([1, 2, 3]), pick([2, 4, 6]), pick([2, 4])
    heads = kv_heads * pick([1, 2, 3])
    sizes = {
        "vocab_size": pick([101, 256]),
        "hidden_size": heads * pick([8, 10, 16]) + pick([0, 0, 2]),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "num_kv_heads": kv_heads,
        "head_dim": pick([8, 12, 16]),
        "intermediate_size": pick([24, 50, 64]),
        "ffn_dim": 40,
        "ffn_hidden_size": 72,
        "n_inner": 44,
        "max_position_embeddings": 64,
        "max_seq_len": 48,
        "pad_token_id": 0,
        "rotary_dim": 4,
        "attention_types": [[["global", "local"], layers // 2]],
        "num_experts": experts,
        "num_local_experts": experts,
        "n_routed_experts": experts,
        "moe_num_experts": experts,
        "num_experts_per_tok": 2,
        "moe_k": 2,
        "moe_topk": 2,
        "moe_intermediate_size": pick([8, 14]),
        "intermediate_size_mlp": 40,
        "shared_expert_intermediate_size": pick([8, 20]),
        "shared_intermediate_size": pick([0, 12]),
        "n_shared_experts": pick([1, 2]),
        "num_shared_experts": pick([0, 1, 2]),
        "moe_num_shared_experts": pick([0, 2]),
        "first_k_dense_replace": pick([0, 1, 2]),
        "num_dense_layers": pick([0, 1]),
        "decoder_sparse_step": pick([1, 2]),
        "mlp_only_layers": pick([[], [0], [1]]),
        "moe_layer_start_index": pick([0, 1]),
        "moe_layer_end_index": pick([1, -1]),
        "moe_layer_interval": pick([1, 2]),
        "interleave_moe_layer_step": pick([1, 2]),
        "q_lora_rank": pick([None, 12]),
        "kv_lora_rank": pick([8, 10]),
        "qk_rope_head_dim": pick([4, 8]),
        "qk_nope_head_dim": pick([6, 8]),
        "v_head_dim": pick([6, 10]),
        "linear_num_key_heads": 2,
        "linear_num_value_heads": pick([2, 4]),
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 12,
        "linear_conv_kernel_dim": 3,
        "n_group": 1,
        "topk_group": 1,
    }
    other = type(config_of(name)).attribute_map  # the names that it has for common ones
    fields = {
        key: value
        for key, value in sizes.items()
        if key in known or (key in other and other[key] not in sizes)
    }
    for key, value in known.items():
        if (
            isinstance(value, bool)
            and key not in FIXED
            and not key.startswith(("output_", "use_c"))
        ):
            fields[key] = pick([True, False])
    if known.get("qk_nope_head_dim") or rng.random() < 0.3:  # latent attention has its own widths
        fields.pop("head_dim", None)
    return {"model_type": name, **fields}


def step(fields):
    """The configuration, and the operations that PyTorch counts, forward and backward.

    All of the attention is: also what the causal mask hides.
    """
    config = transformers.AutoConfig.for_model(**fields)
    config._attn_implementation = config._experts_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config)
    with FlopCounterMode(display=False) as counter:
        model(torch.randint(256, (2, 8)), use_cache=False).logits.sum().backward()
    counts = counter.get_flop_counts()  # angles are products, too
    angles = (sum(counts[key].values()) for key in counts if key.endswith("rotary_emb"))
    return config, counter.get_total_flops() - sum(angles)
