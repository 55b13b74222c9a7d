"""What `distlab.costs` says of memory and time: identities, errors, and answers in a shell."""

import doctest
import json
import math
import subprocess
import sys
from dataclasses import replace

import pytest

from distlab import costs
from distlab.costs import models

GB = 1e9
GPT = costs.GPT3_175B


def test_zeros_stages_keep_what_their_paper_says():
    """Rajbhandari and others, 2020, figure 1: 7.5B weights on 64 devices, in decimal GB."""
    model = costs.Transformer(layers=1, hidden=1, heads=1, sequence=1, vocabulary=7_500_000_000)
    for stage, published in enumerate((120, 31.4, 16.6, 1.88)):
        plan = costs.Plan(data=64, batch=64, zero=stage)
        parts = costs.estimate(model, plan, replace(costs.A100_80GB, memory=1e15)).memory.parts
        kept = parts["weights"] + parts["gradients"] + parts["optimizer state"]
        assert kept / GB == pytest.approx(published, rel=0.005)


@pytest.mark.parametrize("tensor", [1, 2, 8])
@pytest.mark.parametrize("micro_batch", [1, 4])
def test_activations_of_a_layer_are_those_of_the_published_formulas(tensor, micro_batch):
    """Korthikanti and others, 2022, table 2."""
    s, b, h, a, t = GPT.sequence, micro_batch, GPT.hidden, GPT.heads, tensor
    formulas = {
        (None, False): s * b * h * (10 + 24 / t + 5 * a * s / (h * t)),
        (None, True): s * b * h / t * (34 + 5 * a * s / h),
        ("selective", False): s * b * h * (10 + 24 / t),
        ("selective", True): 34 * s * b * h / t,
        ("full", False): 2 * s * b * h,
    }
    for (recompute, sequence), expected in formulas.items():
        plan = costs.Plan(
            tensor=tensor,
            micro_batch=micro_batch,
            batch=micro_batch,
            recompute=recompute,
            sequence_parallel=sequence,
        )
        assert costs.layer_activations(GPT, plan) == pytest.approx(expected)


def test_the_first_stage_keeps_what_the_pipelines_formula_says():
    """The same, section 4.2.3: interleaved 1F1B keeps 1 + (p - 1) / (p v) times all layers."""
    plan = costs.Plan(tensor=8, pipeline=8, batch=64, recompute="selective", sequence_parallel=True)
    layer = costs.layer_activations(GPT, plan)
    dropout = (
        GPT.sequence * GPT.hidden / 8
    )  # a mask of the embedding for each micro-batch under way
    for v, extra in ((1, 1.0), (3, 1 + 7 / 24)):
        stages = costs.estimate(GPT, replace(plan, interleave=v), costs.A100_80GB).memory.stages
        masks = dropout * 8 * extra
        assert stages[0]["activations"] == pytest.approx(96 * layer * extra + masks)
        kept = [stage["activations"] for stage in stages]
        assert kept == sorted(kept, reverse=True)


def test_parameters_and_flops_are_those_of_the_published_formulas():
    """Narayanan and others, 2021, equation 2; Korthikanti and others, 2022, appendix A."""
    n, h, s, v = GPT.layers, GPT.hidden, GPT.sequence, GPT.vocabulary
    published = 12 * n * h**2 * (1 + 13 / (12 * h) + (v + s) / (12 * n * h))
    assert GPT.parameters - 2 * h == pytest.approx(published, rel=1e-12)
    flops = 72 * 4 * n * s * h**2 * (1 + s / (6 * h) + v / (12 * h * n))
    assert GPT.flops(4) == pytest.approx(flops)
    layers = 72 * 4 * n * s * h**2 * (1 + s / (6 * h))
    assert GPT.flops(4, "full") == pytest.approx(flops + layers / 3)


def test_the_examples_of_the_modules_hold():
    for module in (costs, models):
        tried = doctest.testmod(module)
        assert tried.attempted > 0
        assert tried.failed == 0


def test_models_have_as_many_weights_as_their_makers_say():
    found = [m.parameters for m in (costs.LLAMA3_8B, costs.LLAMA3_70B, costs.LLAMA3_405B)]
    assert found == [8_030_261_248, 70_553_706_496, 405_853_388_800]


def test_a_mixture_of_experts_has_all_weights_and_uses_some():
    """Mixtral 8x7B: 46.7B weights, of which a token meets 12.9B."""
    model = costs.Transformer(
        layers=32,
        hidden=4096,
        heads=32,
        sequence=4096,
        vocabulary=32000,
        ffn=14336,
        kv_heads=8,
        gated=True,
        tied=False,
        experts=8,
        top_k=2,
    )
    assert model.parameters == pytest.approx(46.7e9, rel=0.001)
    assert model.active_parameters == pytest.approx(12.9e9, rel=0.002)
    plan = costs.Plan(data=8, batch=64, zero=1, attention="flash", recompute="full")
    alone = costs.estimate(model, plan, costs.H100_SXM)
    shared = costs.estimate(model, replace(plan, expert=8), costs.H100_SXM)
    assert alone.memory["weights"] > 3 * shared.memory["weights"]
    assert alone.step_time.parts["expert"] == 0 < shared.step_time.parts["expert"]
    assert any("experts" in doubt for doubt in shared.doubts)


def test_the_parts_add_up_and_the_range_is_around_them():
    plan = costs.Plan(data=2, tensor=8, pipeline=8, batch=64, recompute="full", zero=1)
    e = costs.estimate(GPT, plan, costs.A100_80GB)
    assert math.fsum(e.step_time.parts.values()) == pytest.approx(e.step_time)
    assert e.step_time.low < e.step_time < e.step_time.high
    assert math.fsum(e.memory.parts.values()) == pytest.approx(e.memory.total)
    assert len(e.memory.stages) == 8
    tokens = 64 * 2048 / e.step_time / 128
    assert e.tokens_per_second_per_device == pytest.approx(tokens)
    assert e.hfu / e.mfu == pytest.approx(GPT.flops(1, "full") / GPT.flops(1))


def test_the_issue_of_one_calculator_is_not_ours():
    """One in use says 946 GiB per device for this plan, as it does not divide activations."""
    plan = costs.Plan(tensor=8, pipeline=8, batch=64, zero=1, recompute="selective")
    assert costs.estimate(GPT, plan, costs.A100_80GB).memory.total < 80 * GB


@pytest.mark.parametrize(
    ("slower", "change"),
    [
        ("tensor", {"inner_bandwidth": 30e9}),
        ("data", {"outer_bandwidth": 1e9}),
        ("compute", {"flops": 31e12}),
        ("compute", {"memory_bandwidth": 0.2e12}),
    ],
)
def test_a_slower_part_of_a_machine_slows_the_part_of_the_step_that_uses_it(slower, change):
    plan = costs.Plan(data=16, tensor=8, batch=64, recompute="full", zero=1)
    fast = costs.estimate(GPT, plan, costs.A100_80GB).step_time
    slow = costs.estimate(GPT, plan, replace(costs.A100_80GB, **change)).step_time
    assert slow.parts[slower] > 1.5 * fast.parts[slower]
    assert slow > fast


def test_bound_names_what_to_change():
    big = costs.estimate(GPT, costs.Plan(batch=1), costs.A100_80GB)
    assert not big.fits
    assert big.bound == "memory"
    few = costs.Plan(tensor=8, pipeline=8, batch=8, recompute="full")
    assert costs.estimate(GPT, few, costs.A100_80GB).bound == "bubble"
    slow = replace(costs.A100_80GB, inner_bandwidth=20e9)
    assert costs.estimate(GPT, replace(few, batch=64), slow).bound == "tensor"
    assert costs.estimate(GPT, replace(few, batch=64), costs.A100_80GB).bound == "compute"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: replace(GPT, heads=7), r"hidden=12288 does not divide by heads=7"),
        (lambda: replace(GPT, layers=0), r"layers=0: give at least 1"),
        (lambda: replace(GPT, top_k=2), r"top_k=2: .* experts="),
        (lambda: costs.Plan(zero=4), r"zero=4: give one of 0, 1, 2, 3"),
        (lambda: costs.Plan(recompute="some"), r"recompute='some': give one of None, 'selective'"),
        (lambda: costs.Plan(data=3, batch=4), r"batch=4 does not divide by data x micro_batch=3"),
        (lambda: costs.Plan(interleave=2), r"give pipeline= of at least 2"),
        (lambda: costs.Plan(data=2, batch=2, expert=4), r"expert=4 must divide data x context = 2"),
        (lambda: costs.Plan(precision="fp8"), r"precision='fp8': give one of 'fp32', 'bf16'"),
        (
            lambda: costs.estimate(GPT, costs.Plan(pipeline=7, batch=7), costs.A100_80GB),
            r"layers=96 does not divide by pipeline x interleave=7",
        ),
        (lambda: costs.search(GPT, 0, costs.H100_SXM, 8), r"devices=0: give at least 1"),
    ],
)
def test_bad_sizes_get_one_clear_message(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_what_is_nothing_of_the_kind_is_named():
    with pytest.raises(TypeError, match=r"machine='H100': give a costs.Machine"):
        costs.estimate(GPT, costs.Plan(), "H100")
    with pytest.raises(TypeError, match=r"model='llama3-8b': give a costs.Transformer"):
        costs.search("llama3-8b", 8, costs.H100_SXM, 8)
    with pytest.raises(TypeError, match=r"tensor=2.0: give a whole number"):
        costs.Plan(tensor=2.0)


def test_search_returns_plans_that_fit_best_first():
    found = costs.search(costs.LLAMA3_70B, devices=64, machine=costs.H100_SXM, batch=512)
    assert found
    assert all(each.fits and each.plan.devices == 64 for each in found)
    times = [each.step_time for each in found]
    assert times == sorted(times)
    assert costs.search(costs.LLAMA3_405B, devices=8, machine=costs.H100_SXM, batch=8) == []


def test_search_finds_what_it_would_be_told():
    """No plan of those it tries is better than the best one it returns."""
    best = costs.search(costs.LLAMA3_8B, 8, costs.H100_SXM, batch=16)[0]
    for tensor, zero, recompute in ((1, 3, "full"), (2, 1, None), (8, 1, "full"), (1, 3, None)):
        plan = costs.Plan(
            data=8 // tensor,
            tensor=tensor,
            batch=16,
            zero=zero,
            recompute=recompute,
            sequence_parallel=tensor > 1,
            attention="flash",
            precision="bf16_fp32_gradients",
        )
        other = costs.estimate(costs.LLAMA3_8B, plan, costs.H100_SXM)
        assert other.memory.total > 0.92 * 80 * GB or other.step_time >= best.step_time


def test_a_notebook_shows_a_picture_that_is_always_the_same():
    plan = costs.Plan(tensor=8, pipeline=8, batch=64, recompute="full")
    first = costs.estimate(GPT, plan, costs.A100_80GB)._repr_png_()
    assert first.startswith(b"\x89PNG")
    assert first == costs.estimate(GPT, plan, costs.A100_80GB)._repr_png_()


def ask(*words):
    command = [sys.executable, "-m", "distlab", "costs", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_shell_is_answered():
    plan = ask(
        "gpt3-175b", "--machine", "a100", "--batch", "64", "--tensor", "8", "--pipeline", "8"
    )
    assert plan.returncode == 0
    assert "64 (A100 80 GB): data 1 x tensor 8 x pipeline 8" in plan.stdout
    found = ask("llama3-8b", "--devices", "8", "--batch", "16")
    lines = found.stdout.splitlines()
    assert lines[0].split()[:3] == ["data", "tensor", "pipeline"]
    best = costs.search(costs.LLAMA3_8B, 8, costs.H100_SXM, batch=16)[0]
    assert lines[1].split()[0] == str(best.plan.data)
    none = ask("llama3-405b", "--devices", "8", "--batch", "8")
    assert none.stdout.startswith("No plan fits 8 x H100 SXM")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--batch", "8"), "give the name of a model (gpt3-175b"),
        (
            ("llama3-8b", "--batch", "8", "--devices", "8", "--tensor", "2"),
            "--tensor is for one plan",
        ),
        (("llama3-8b", "--batch", "8", "--tensor", "3"), "heads=32 does not divide by tensor=3"),
    ],
)
def test_a_shell_gets_one_line_about_a_mistake(words, message):
    done = ask(*words)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_no_framework_and_no_numpy_is_needed():
    code = (
        "import sys; from distlab import costs; "
        "costs.search(costs.LLAMA3_8B, 8, costs.H100_SXM, 16); "
        "names = ('numpy', 'torch', 'jax', 'tensorflow', 'matplotlib'); "
        "print([name for name in names if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.replace("'", '"')) == []
