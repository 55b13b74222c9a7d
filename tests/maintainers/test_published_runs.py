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


def test_times_that_were_not_fitted_are_near_in_the_median_and_not_far_at_worst(runs):
    errors = [abs(run.error) for run in runs if not run.fitted]
    assert len(errors) > 150
    assert median(errors) < 0.10
    assert max(errors) < 0.25


def test_most_runs_lie_in_the_range_that_the_estimate_gives(runs):
    held = [run for run in runs if not run.fitted]
    inside = [
        run.estimate.step_time.low <= run.seconds <= run.estimate.step_time.high for run in held
    ]
    assert sum(inside) > 0.9 * len(held)
    rest = RUNS.others(runs)
    assert len(rest) == 38
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
    own = 126 / 8 * run.estimate.model.layer_parameters / 8
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
    assert all(e.fits for e in plans.values())
    best, plain, titan, kept, pipeline, alone = plans.values()
    assert best.plan.context == 2
    assert plain.plan.recompute is pipeline.plan.recompute is None
    for axis in ("data", "tensor", "pipeline", "zero"):
        assert getattr(plain.plan, axis) == getattr(pipeline.plan, axis)
    assert abs(plain.step_time / pipeline.step_time - 1) < 0.1 * plain.step_time.spread
    again = 1 - titan.model_flops / titan.model.flops(titan.plan.batch, "full")
    assert 0.24 < again < 0.25  # "a quarter of the arithmetic is work done a second time"
    assert kept.plan.micro_batches == 64
    assert kept.step_time.parts["data"] > kept.step_time.parts["tensor"]
    aside = [replace(e.plan, overlap_tensor=True) for e in (plain, best)]
    other = [costs.estimate(best.model, plan, best.machine).step_time for plan in aside]
    assert (
        f"{plain.step_time - best.step_time:.1f} to {other[0] - other[1]:.1f} s" == "6.7 to 4.0 s"
    )
    for e in (plain, titan, pipeline):
        sent = sum(e.step_time.parts[part] for part in ("tensor", "context", "data", "pipeline"))
        assert e.step_time.parts["tensor"] > 0.9 * sent
    assert alone.step_time.parts["tensor"] == 0


def test_the_pages_are_those_of_the_estimates():
    page = COSTS.PAGE.read_text(encoding="utf-8")
    assert page == COSTS.written(page), "python tools/costs.py writes it"
    page = COSTS.COMPARED.read_text(encoding="utf-8")
    assert page == COSTS.compared(page), "python tools/costs.py writes it"


def test_what_the_page_says_of_full_memory_is_so(runs):
    full = [run for run in runs if run.source in RUNS.MANY and 0.93 < run.filled < 1.03]
    assert (len(full), sum(abs(run.error) < 0.05 for run in full)) == (34, 23)
