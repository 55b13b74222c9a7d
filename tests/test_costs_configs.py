"""`costs.Transformer.from_config`: published models, and what is wrong with a configuration."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from distlab import costs

QWEN3_30B = {
    "model_type": "qwen3_moe",
    "head_dim": 128,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "max_position_embeddings": 40960,
    "moe_intermediate_size": 768,
    "num_attention_heads": 32,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
    "tie_word_embeddings": False,
    "vocab_size": 151936,
}
"""As its makers published it, who say 30.5 billion parameters, of which 3.3 are active."""


@pytest.mark.parametrize(
    ("config", "billions", "active"),
    [
        (QWEN3_30B, 30.532, 3.35),
        ({"model_type": "deepseek_v3"}, 671.026, 37.55),
        ({"model_type": "gpt_oss"}, 116.829, 5.71),
        ({"model_type": "gpt2"}, 0.124439808, 0.124439808),
        ({"model_type": "llama4", "text_config": {"num_local_experts": 16}}, 107.770, 17.17),
    ],
)
def test_published_models_have_the_parameters_that_their_makers_say(config, billions, active):
    model = costs.Transformer.from_config(config)
    assert model.parameters / 1e9 == pytest.approx(billions, rel=1e-4)
    assert model.active_parameters / 1e9 == pytest.approx(active, rel=1e-2)


def test_a_config_of_llama_is_the_model_of_that_name(tmp_path):
    sizes = {"hidden_size": 4096, "intermediate_size": 14336, "num_key_value_heads": 8}
    config = {"model_type": "llama", **sizes, "vocab_size": 128256, "max_position_embeddings": 9000}
    (tmp_path / "config.json").write_text(json.dumps(config))
    plan = costs.Plan(data=8, tensor=2, batch=64, zero=1, attention="flash")
    expected = costs.estimate(costs.LLAMA3_8B, plan, costs.MACHINES["h200"])
    for given in (config, tmp_path, str(tmp_path / "config.json")):
        model = costs.Transformer.from_config(given, sequence=8192)
        assert model.parameters == costs.LLAMA3_8B.parameters
        assert model.flops(64) == costs.LLAMA3_8B.flops(64)
        e = costs.estimate(model, plan, costs.MACHINES["h200"])
        assert (e.memory, e.step_time) == (expected.memory, expected.step_time)
    assert costs.Transformer.from_config(config).sequence == 4096


def test_a_window_takes_less_time():
    plan = costs.Plan(data=8, batch=8, attention="flash")
    seconds = {}
    for window in (None, 1024, 4096, 32768):
        config = {"model_type": "mistral", "sliding_window": window}
        model = costs.Transformer.from_config(config, sequence=32768)
        seconds[window] = costs.estimate(model, plan, costs.MACHINES["b200"]).step_time
    assert seconds[1024] < seconds[4096] < seconds[32768] == seconds[None]


def test_first_layers_without_experts_and_shared_experts_are_counted():
    """DeepSeek-V3: three layers without experts; one expert of 257 is shared by all tokens."""
    model = costs.Transformer.from_config({"model_type": "deepseek_v3"})
    (dense, first), (routed, layer) = model.kinds
    assert (dense, routed, model.routed) == (3, 58, 256)
    one = 3 * 7168 * 2048
    assert layer.parameters - first.parameters == 257 * one + 7168 * 256 - 3 * 7168 * 18432
    plan = costs.Plan(data=256, expert=64, batch=512, zero=1, attention="flash", recompute="full")
    e = costs.estimate(model, plan, costs.MACHINES["h200"])
    alone = costs.estimate(model, replace(plan, expert=1), costs.MACHINES["h200"])
    held = 2 * 58 * 256 * one
    assert alone.memory["weights"] - e.memory["weights"] == pytest.approx(held * 63 / 64)
    with pytest.raises(ValueError, match="experts=256 is not divisible by expert=3"):
        costs.Plan(data=3, batch=3, expert=3).check(model)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_type": "mamba"}, "model_type='mamba': not described, as state spaces"),
        ({"model_type": "qwen3_mo"}, "give one of qwen3_moe"),
        ({"model_type": "gemma3", "text_config": {}}, "model_type='gemma3': only text models"),
        ({"hidden_size": -2048}, "hidden_size=-2048: give at least 1"),
        ({"hidden_size": None}, "hidden_size=None: give a whole number"),
        ({"vocab_size": "151936"}, "vocab_size='151936': give a whole number"),
        ({"num_key_value_heads": 5}, "num_attention_heads=32 is not divisible by num_key_value_h"),
        ({"num_experts_per_tok": 129}, "num_experts_per_tok=129: give at most num_experts=128"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings='no': give True or False"),
        ({"moe_intermediate_size": 0}, "moe_intermediate_size=0: give at least 1"),
        ({"model_type": "llama", "num_attention_heads": 7}, "hidden_size=2048 is not divisible by"),
        ({"mlp_only_layers": "0"}, "mlp_only_layers='0': give a list of int"),
        ({"model_type": "falcon", "multi_query": "no"}, "multi_query='no': give True or False"),
        ({"model_type": "phi", "resid_pdrop": "0"}, "resid_pdrop='0': give a number"),
        ({"mlp_layer_types": ["routed"] * 48}, "mlp_layer_types='routed': give one of"),
        ({"model_type": "gemma2", "layer_types": ["full_attention"]}, "layer_types has 1 entries"),
        ({"model_type": "gemma2", "layer_types": ["mamba"] * 48}, "layer_types has 'mamba'"),
        ({"model_type": "deepseek_v3", "kv_lora_rank": -1}, "kv_lora_rank=-1: give at least 1"),
    ],
)
def test_a_malformed_config_gets_one_line_that_names_the_field(change, words):
    with pytest.raises((TypeError, ValueError), match=words) as caught:
        costs.Transformer.from_config({**QWEN3_30B, **change})
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_config_is_named(tmp_path):
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"config.json is no JSON: .*line 1"):
        costs.Transformer.from_config(tmp_path)
    with pytest.raises(FileNotFoundError):
        costs.Transformer.from_config(tmp_path / "missing.json")
    with pytest.raises(TypeError, match="give a path, a dictionary or a config object"):
        costs.Transformer.from_config(3)


def test_a_shell_reads_a_config(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(QWEN3_30B))

    def ask(*words):
        command = [sys.executable, "-m", "distlab", "costs", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    found = ask(str(path), "--machine", "h200", "--devices", "64")
    assert found.returncode == 0
    assert found.stdout.splitlines()[0].split()[:3] == ["data", "tensor", "pipeline"]
    best = costs.search(
        costs.Transformer.from_config(path), 64, costs.MACHINES["h200"], batch=8 * 64
    )[0]
    assert f"{best}\ncosts.{best.plan}\n" in found.stdout
    path.write_text(json.dumps({**QWEN3_30B, "hidden_size": "wide"}))
    wrong = ask(str(path), "--devices", "64")
    assert wrong.stderr.endswith("hidden_size='wide': give a whole number\n")
    assert wrong.returncode == 2
    assert "MODEL nothing.json: give a config.json, or one of" in ask("nothing.json").stderr
