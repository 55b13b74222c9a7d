"""Models that `distlab.costs` reads from configurations, beside those that transformers makes."""

import time

import pytest

from distlab import costs
from distlab.costs import configs

NAMES = sorted(set(configs._architectures()) - {configs._ROOT})
WITHOUT_DEFAULTS = {"dots1", "hunyuan_v1_dense", "hunyuan_v1_moe", "ministral", "nemotron"}
"""Whose default configuration transformers itself can't make a model of."""
LINEAR = {"minimax", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_next"}
"""Whose layers compute in blocks, which takes more than the state needs."""


def test_so_many_architectures_are_described():
    assert len(NAMES) > 70


@pytest.mark.parametrize("name", NAMES)
def test_a_model_has_as_many_parameters_as_transformers_makes(name):
    """With the defaults, from fields alone and from the config object; and with odd sizes."""
    from _transformers import REFUSED, built, odd

    cases = [] if name in WITHOUT_DEFAULTS else [{"model_type": name}]
    compared = 0
    for fields in [*cases, *(odd(name, number) for number in range(4))]:
        try:
            config, expected = built(fields)
        except REFUSED:
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
    from _transformers import REFUSED, odd, step

    for number in range(20):
        fields = {**odd(name, number), "vocab_size": 256}
        try:
            config, counted = step(fields)
            expected = costs.Transformer.from_config(config, sequence=8).flops(batch=2)
        except (*REFUSED, RuntimeError):
            continue  # odd sizes that this architecture can't be run with
        assert expected == counted, fields
        return
    pytest.fail("no configuration could be run")


def test_reading_takes_milliseconds():
    """At best of some, as something else may run at the same time."""
    from _transformers import config_of

    def seconds(config):
        begun = time.perf_counter()
        costs.Transformer.from_config(config)
        return time.perf_counter() - begun

    for name in NAMES:
        assert min(seconds(config_of(name)) for _ in range(5)) < 5e-3, name
