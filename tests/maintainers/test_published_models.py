"""Models that `distlab.costs` reads from configurations, beside those that transformers makes."""

import random
import time
import warnings
from functools import cache

import pytest

from distlab import costs
from distlab.costs import configs

torch = pytest.importorskip("torch")
pytest.importorskip("torch.utils.flop_counter")
transformers = pytest.importorskip("transformers", reason="transformers is in distlab[dev]")
errors = pytest.importorskip("huggingface_hub.errors")
FlopCounterMode = torch.utils.flop_counter.FlopCounterMode

NAMES = sorted(set(configs._architectures()) - {configs._ROOT})
WITHOUT_DEFAULTS = {"dots1", "hunyuan_v1_dense", "hunyuan_v1_moe", "ministral", "nemotron"}
"""Whose default configuration transformers itself can't make a model of."""
LINEAR = {"minimax", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_next"}
"""Whose layers compute in blocks, which takes more than the state needs."""
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


def test_so_many_architectures_are_described():
    assert len(NAMES) > 70


@pytest.mark.parametrize("name", NAMES)
def test_a_model_has_as_many_parameters_as_transformers_makes(name):
    """With the defaults, from fields alone and from the config object; and with odd sizes."""
    cases = [] if name in WITHOUT_DEFAULTS else [{"model_type": name}]
    compared = 0
    for fields in [*cases, *(odd(name, number) for number in range(4))]:
        try:
            config, expected = built(fields)
        except (errors.StrictDataclassError, TypeError, ValueError):  # what it does not allow
            assert fields not in cases
            continue
        try:
            found = costs.Transformer.from_config(fields).parameters
        except ValueError as refused:  # layers that could not be run
            assert "does not divide" in str(refused)
            continue
        assert found == costs.Transformer.from_config(config).parameters == expected, fields
        compared += 1
    assert compared >= 2


@pytest.mark.parametrize("name", sorted(set(NAMES) - LINEAR))
def test_a_step_has_as_many_flops_as_pytorch_counts(name):
    """Forward and backward, all of the attention: also what the causal mask hides."""
    for number in range(20):
        fields = {**odd(name, number), "vocab_size": 256}
        try:
            config = transformers.AutoConfig.for_model(**fields)
            config._attn_implementation = config._experts_implementation = "eager"
            model = transformers.AutoModelForCausalLM.from_config(config)
            expected = costs.Transformer.from_config(config, sequence=8).flops(batch=2)
            with FlopCounterMode(display=False) as counter:
                model(torch.randint(256, (2, 8)), use_cache=False).logits.sum().backward()
        except (errors.StrictDataclassError, RuntimeError, TypeError, ValueError):
            continue  # odd sizes that this architecture can't be run with
        counts = counter.get_flop_counts()  # angles are products, too
        angles = (sum(counts[key].values()) for key in counts if key.endswith("rotary_emb"))
        assert counter.get_total_flops() - sum(angles) == expected, fields
        return
    pytest.fail("no configuration could be run")


def test_reading_takes_milliseconds():
    """At best of some, as something else may run at the same time."""

    def seconds(config):
        begun = time.perf_counter()
        costs.Transformer.from_config(config)
        return time.perf_counter() - begun

    for name in NAMES:
        assert min(seconds(config_of(name)) for _ in range(5)) < 5e-3, name
