"""`distlab.costs` beside what others measured, and the page that shows it."""

from dataclasses import replace
from statistics import median

import pytest
from _tools import tool

from distlab import costs

COSTS = tool("costs")
RUNS = tool("costs_runs")


@pytest.fixture(scope="module")
def runs():
    return RUNS.runs()


FAR = {"AutoModel, Qwen3 30B-A3B on 8": 0.45, "AutoModel, GPT OSS 120B on 64": 0.34}
"""Runs that are missed by more than a quarter, and by how much at most: the page says so."""


def test_times_that_were_not_fitted_are_near_in_the_median_and_not_far_at_worst(runs):
    errors = {run.name: abs(run.error) for run in runs if not run.fitted}
    assert len(errors) > 250
    assert median(errors.values()) < 0.10
    far = {name: error for name, error in errors.items() if error >= 0.25}
    assert far.keys() == FAR.keys()
    assert all(far[name] < FAR[name] for name in far)
    page = COSTS.PAGE.read_text(encoding="utf-8")
    assert all(f"| {name} [" in page for name in FAR)


def test_most_runs_lie_in_the_range_that_the_estimate_gives(runs):
    held = [run for run in runs if not run.fitted]
    inside = [
        run.estimate.step_time.low <= run.seconds <= run.estimate.step_time.high for run in held
    ]
    assert sum(inside) > 0.9 * len(held)
    rest = RUNS.others(runs)
    assert len(rest) == 74
    assert sum(run.inside for run in rest) > 0.8 * len(rest)  # "at least four times of five"


def test_the_times_of_a_layer_are_near():
    for name, forward, backward, *ours in COSTS.layers():
        assert ours[0] == pytest.approx(forward, rel=0.03), name
        assert ours[1] == pytest.approx(backward, rel=0.13), name


def test_few_runs_were_fitted(runs):
    assert sum(run.fitted for run in runs) < 0.1 * len(runs)


def test_the_memory_of_torchtitans_runs_is_what_the_estimate_and_the_page_say_of_their_kind(runs):
    found = [run for run in [*runs, *RUNS.memory_runs()] if run.gib]
    assert len(found) == 18  # all rows of the source
    kinds = {"alone": (3, 10), "tensor": (18, 26), "pipeline": (13, 36)}
    page = COSTS.PAGE.read_text(encoding="utf-8")
    for kind, (least, most) in kinds.items():
        over = []
        for run in found:
            plan = run.estimate.plan
            own = "pipeline" if plan.pipeline > 1 else "tensor" if plan.tensor > 1 else "alone"
            if own == kind:
                over.append(round(100 * (run.gib * 2**30 / run.estimate.memory.total - 1)))
                said = any(f"{least} to {most} % more memory" in x for x in run.estimate.doubts)
                assert said is (kind != "alone")
        assert (min(over), max(over)) == (least, most), kind
        assert f"| {least} {'and' if kind == 'tensor' else 'to'} {most} % |" in page


def test_a_pipeline_adds_up_gradients_that_zero_2_shards_at_the_end():
    """Weights once more in 16 bits, gradients in fp32, and shards of what is kept."""
    run = RUNS.memory_runs()[6]
    assert run.name.endswith("1F1B")
    own = 126 / 8 * run.estimate.model.kinds[0][1].parameters / 8
    for stage in run.estimate.memory.stages[1:-1]:
        assert stage["gradients"] == pytest.approx(4 * own * 16 / 15.75, rel=0.001)
        assert stage["weights"] == pytest.approx((2 + 4 / 8) * own * 16 / 15.75, rel=0.001)
        assert stage["optimizer state"] == pytest.approx(8 / 8 * own * 16 / 15.75, rel=0.001)


def test_published_memory_is_between_what_is_counted_and_what_an_allocator_may_hold(runs):
    """But where the page says what is not counted."""
    found = [run for run in [*runs, *RUNS.memory_runs()] if run.gib]
    for run in found:
        assert run.estimate.memory.total < run.gib * 2**30, run.name
        assert run.note or run.gib * 2**30 < run.estimate.memory.high, run.name


def test_what_was_trained_fits(runs):
    """But where the page says what of the plan was not published."""
    gpus = [run for run in runs if not run.note]
    over = [
        run.name for run in gpus if run.estimate.memory.total > 1.1 * run.estimate.memory.capacity
    ]
    assert over == []
    assert sum(not run.estimate.fits for run in gpus) < 0.05 * len(gpus)


def test_what_the_page_says_of_plans_for_70b_is_so():
    plans = tool("costs_plans").plans_for_70b()
    page = " ".join(COSTS.PAGE.read_text(encoding="utf-8").split())
    assert all(e.fits for e in plans.values())
    best, plain, nvidia, titan, kept, pipeline, alone = plans.values()
    for axis in ("data", "tensor", "pipeline", "context"):
        assert getattr(best.plan, axis) == getattr(nvidia.plan, axis)
    assert (plain.plan.zero, plain.plan.tensor, plain.plan.data) == (3, 4, 16)
    assert plain.plan.recompute is pipeline.plan.recompute is None
    assert f"It counts {plain.memory.total / 1e9:.1f} GB" in page
    again = 1 - titan.model_flops / titan.model.flops(titan.plan.batch, "full")
    assert 0.24 < again < 0.25  # "a quarter of the arithmetic is work done a second time"
    assert (kept.plan.micro_batches, plain.plan.micro_batches) == (64, 32)
    assert kept.step_time.parts["data"] > kept.step_time.parts["tensor"]
    for e in (titan, pipeline):
        sent = sum(e.step_time.parts[part] for part in ("tensor", "context", "data", "pipeline"))
        assert e.step_time.parts["tensor"] > 0.9 * sent
    assert alone.step_time.parts["tensor"] == 0
    beside = replace(nvidia.plan, overlap_tensor=True)
    newer = replace(nvidia.machine, flash=0.45)
    others = [costs.estimate(nvidia.model, beside, each) for each in (nvidia.machine, newer)]
    said = [f"{e.step_time:.1f} s" for e in (nvidia, *others)]
    assert f"{said[0]}, {said[1]} with `overlap_tensor`, and {said[2]} with the rate" in page
    assert all(e.step_time > 58.9 for e in (*plans.values(), *others))


def test_what_the_page_says_of_gradients_in_16_bits_is_so():
    found = costs.search(costs.LLAMA3_70B, 64, costs.H100_SXM, 512, precision="bf16", top=50)
    best = next(each for each in found if each.plan.context == 1)
    plan = best.plan
    assert (plan.tensor, plan.pipeline, plan.data, plan.context) == (4, 8, 2, 1)
    wide = replace(plan, precision="bf16_fp32_gradients")
    other = costs.estimate(best.model, wide, best.machine)
    assert not other.fits
    said = [f"{best.step_time:.1f}", *(f"{e.memory.total / 1e9:.0f}" for e in (best, other))]
    assert said == ["72.5", "69", "74"]


def test_what_the_page_says_of_newer_kernels_of_attention_is_so(runs):
    found = {}
    for run in runs:
        if run.name.startswith("NeMo, Llama 3.1"):
            e = run.estimate
            newer = costs.estimate(e.model, e.plan, replace(e.machine, flash=0.45)).step_time
            found[run.name.split()[3]] = [
                *found.get(run.name.split()[3], []),
                (round(100 * run.error), round(100 * (newer / run.seconds - 1))),
            ]
    assert found["8B"] == [(22, 3), (21, 1)]
    before, after = zip(*found["70B"], *found["405B"], strict=True)
    assert (min(before), max(before), min(after), max(after)) == (15, 18, 5, 11)


def test_what_the_page_says_of_runs_from_nemo_to_automodel_is_so(runs):
    late = [run for run in runs if run.source in list(RUNS.sources())[14:]]
    assert len(late) == 36
    assert f"{median(abs(run.error) for run in late):.1%}" == "8.9%"
    dense = [run.error for run in late if run.source == "nemo" and "Grok" not in run.name]
    assert (round(100 * min(dense)), round(100 * max(dense))) == (9, 22)
    left_out = [run for run in RUNS.others(runs) if not run.inside]
    assert [run.error > 0 for run in left_out] == [False] * 6 + [True] * 2
    experts = [run for run in runs if run.estimate.model.experts > 1]
    assert len(experts) == 9
    assert all(abs(run.error) < 0.08 for run in experts if run.estimate.model.experts == 8)
    qwen = next(run for run in late if "Qwen3" in run.name)
    plan = replace(qwen.estimate.plan, recompute=None)
    e = costs.estimate(qwen.estimate.model, plan, qwen.estimate.machine)
    assert round(100 * (e.step_time / qwen.seconds - 1)) == 9
    assert round(e.memory.total / 1e9) == 206


def test_the_pages_are_those_of_the_estimates():
    page = COSTS.PAGE.read_text(encoding="utf-8")
    assert page == COSTS.written(page), "python tools/costs.py writes it"
    page = COSTS.COMPARED.read_text(encoding="utf-8")
    assert page == COSTS.compared(page), "python tools/costs.py writes it"


def test_what_the_page_says_of_full_memory_is_so(runs):
    full = [run for run in runs if run.source in RUNS.MANY and 0.875 < run.filled < 0.97]
    assert (len(full), sum(abs(run.error) < 0.05 for run in full)) == (36, 25)
