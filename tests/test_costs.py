"""What `distlab.costs` says of memory and time: identities, errors, and answers in a shell."""

import copy
import json
import math
import os
import pickle
import re
import subprocess
import sys
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from distlab import costs
from distlab.costs import kernels, models, plans

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


def test_utilization_is_that_of_the_published_times():
    """The same, table 5. Its equation 8 counts what selective recompute adds three times.

    By its own words that is one more forward pass of the attention, s / (18 h); the equation has
    s / (3 h) in place of s / (6 h), which is s / (6 h) more.
    """
    table = (
        (48, 6144, 64, 4, 8, 1.10, 41.5, 43.7),
        (96, 12288, 96, 64, 64, 13.75, 51.4, 52.8),
        (105, 20480, 128, 280, 280, 37.83, 56.0, 57.0),
        (128, 25600, 160, 512, 512, 71.49, 56.3, 57.0),
    )
    for layers, hidden, heads, batch, devices, seconds, mfu, hfu in table:
        model = costs.Transformer(
            layers=layers, hidden=hidden, heads=heads, sequence=2048, vocabulary=51200
        )
        peak = seconds * devices * costs.A100_80GB.flops / 100
        flops, more = model.flops(batch), model.flops(batch, "selective") - model.flops(batch)
        assert more == pytest.approx(72 * batch * layers * 2048 * hidden**2 * 2048 / (18 * hidden))
        assert flops / peak == pytest.approx(mfu, abs=0.2)
        assert (flops + 3 * more) / peak == pytest.approx(hfu, abs=0.2)


def test_models_have_as_many_weights_as_their_makers_say():
    found = [m.parameters for m in (costs.LLAMA3_8B, costs.LLAMA3_70B, costs.LLAMA3_405B)]
    assert found == [8_030_261_248, 70_553_706_496, 405_853_388_800]


def test_a_mixture_of_experts_has_all_weights_and_uses_some():
    """Mixtral 8x7B: 46.7B weights, of which a token meets 12.9B."""
    model = replace(costs.LLAMA3_8B, sequence=4096, vocabulary=32000, experts=8, top_k=2)
    assert model.parameters == pytest.approx(46.7e9, rel=0.001)
    assert model.active_parameters == pytest.approx(12.9e9, rel=0.002)
    plan = costs.Plan(data=8, batch=64, zero=1, attention="flash", recompute="full")
    alone = costs.estimate(model, plan, costs.H100_SXM)
    shared = costs.estimate(model, replace(plan, expert=8), costs.H100_SXM)
    assert alone.memory["weights"] > 3 * shared.memory["weights"]
    assert alone.step_time.parts["expert"] == 0 < shared.step_time.parts["expert"]
    assert any("experts" in doubt for doubt in shared.doubts)


def test_an_all_to_all_between_nodes_goes_through_each_devices_own_adapter():
    """Within a node it takes what a ring takes; beyond, nobody else's adapter helps."""
    machine, number = costs.H100_SXM, 1e9
    inside = kernels.all_to_all_time(number, 8, 1, machine)
    assert inside == kernels.ring_time(number, 8, 1, machine)
    for size, stride, near in ((16, 1, 8), (64, 1, 8), (8, 4, 2), (4, 8, 1), (128, 2, 4)):
        found = kernels.all_to_all_time(number, size, stride, machine)
        wire = (size - near) / size * number / machine.outer_bandwidth
        assert wire / kernels.BUS < found < wire / kernels.BUS + 300e-6
        assert found > kernels.ring_time(number, size, stride, machine) or near == 1
    assert kernels.all_to_all_time(number, 1, 1, machine) == 0
    slow = replace(machine, inner_bandwidth=1e9)  # a slow node: its links are what limits
    assert kernels.all_to_all_time(number, 9, 1, slow) == pytest.approx(
        7 / 9 * number / (1e9 * kernels.BUS), rel=0.01
    )


def test_experts_that_span_nodes_take_no_less_than_the_adapters_need_and_are_a_doubt():
    """GPT OSS 120B: 128 experts, of which each token goes to 4."""
    model = costs.Transformer(
        layers=36,
        hidden=2880,
        heads=64,
        sequence=4096,
        vocabulary=201088,
        ffn=2880,
        kv_heads=8,
        head_size=64,
        gated=True,
        tied=False,
        experts=128,
        top_k=4,
    )
    times = []
    for expert in (4, 8, 16, 64):
        plan = costs.Plan(data=64, expert=expert, batch=64, zero=1, attention="flash")
        e = costs.estimate(model, plan, costs.H100_SXM)
        times.append(e.step_time.parts["expert"])
        number = 4096 * 4 * 2880 * 2  # bytes of the tokens of one device
        wire = 4 * 36 * number * max(0, expert - 8) / expert / costs.H100_SXM.outer_bandwidth
        assert e.step_time.parts["expert"] > wire
        assert any("several nodes" in doubt for doubt in e.doubts) is (expert > 8)
    assert times == sorted(times)
    assert times[2] > 3 * times[1]


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


def test_a_plan_fits_if_what_is_counted_and_the_room_are_in_the_memory():
    """By default one sixth: what an allocator holds that has a fifth more than is counted."""
    plan = costs.Plan(tensor=8, pipeline=8, batch=64, recompute="full")
    total = costs.estimate(GPT, plan, costs.A100_80GB).memory.total
    for room, least in ((None, 1.2 * total), (0, total), (5e9, total + 5e9)):
        for memory, fits in ((least * 1.0001, True), (least * 0.9999, False)):
            machine = replace(costs.A100_80GB, memory=memory)
            e = costs.estimate(GPT, plan, machine, room=room)
            assert e.fits is e.memory.fits is fits
            assert (e.bound == "memory") is not fits
            assert (": fits" in str(e)) is fits
    assert e.memory.high == pytest.approx(1.2 * total)


def test_search_shortens_the_ends_of_a_pipeline_that_126_layers_do_not_divide():
    found = costs.search(costs.LLAMA3_405B, 1024, costs.H100_SXM, batch=512, top=100)
    stages = {each.plan.pipeline: each.plan.short_ends for each in found}
    assert stages[16] is True
    assert stages[1] is False


def test_search_leaves_as_much_room_as_it_is_told():
    for room in (0, 20e9, 40e9):
        found = costs.search(costs.LLAMA3_8B, 8, costs.H100_SXM, batch=16, room=room, top=100)
        most = max(each.memory.total for each in found)
        capacity = costs.H100_SXM.memory
        assert 0.9 * (capacity - room) < most <= capacity - room


def test_what_is_computed_again_counts_in_hfu_and_nothing_else_does():
    """Every second product of a layer, as torchtitan counts them: of keys, of the output, up."""
    plan = costs.Plan(data=8, batch=16, zero=3, attention="flash", recompute="matmuls")
    model = costs.LLAMA3_8B
    e = costs.estimate(model, plan, costs.H100_SXM)
    h, kv, f = 4096, 1024, 14336
    again = 2 * 32 * (h * kv + h * h + h * f) * 16 * model.sequence
    assert (e.hfu / e.mfu - 1) * e.model_flops == pytest.approx(again)
    for recompute in (None, "selective"):  # flash attention keeps no scores to compute again
        other = costs.estimate(model, replace(plan, recompute=recompute), costs.H100_SXM)
        assert other.hfu == other.mfu


def test_the_first_and_the_last_stage_may_have_one_layer_less():
    """Llama 3 405B: 126 layers in 16 stages, of which the inner ones have 8."""
    model = costs.LLAMA3_405B
    plan = costs.Plan(tensor=8, pipeline=16, batch=16, short_ends=True, zero=1)
    assert [plan.layers_of(model, stage) for stage in range(16)] == [7, *[8] * 14, 7]
    e = costs.estimate(model, plan, costs.H100_SXM)
    held = sum(stage["weights"] for stage in e.memory.stages) * 8 / 2
    vectors = 7 * 127 * 2 * model.hidden  # which all ranks of the tensor axis have
    assert held == pytest.approx(model.parameters + vectors, rel=1e-6)
    same = replace(model, layers=128)  # with all stages of 8, the one with the output is slower
    full = costs.estimate(same, replace(plan, short_ends=False), costs.H100_SXM)
    assert e.step_time < full.step_time
    # The last stage has the output instead of a layer, which is less than a layer.
    assert e.step_time.parts["tensor"] == pytest.approx(full.step_time.parts["tensor"])


def test_layers_side_by_side_have_half_the_sums_and_palms_number_of_weights():
    """Chowdhery and others, 2022, table 1: 540.35 billion."""
    palm = costs.Transformer(
        layers=118,
        hidden=18432,
        heads=48,
        sequence=2048,
        vocabulary=256000,
        kv_heads=1,
        head_size=256,
        gated=True,
        side_by_side=True,
    )
    assert palm.parameters == pytest.approx(540.35e9, rel=1e-4)
    plan = costs.Plan(data=512, tensor=12, batch=2048, micro_batch=4, recompute="full", zero=3)
    one, two = (
        costs.estimate(replace(palm, side_by_side=each), plan, costs.MACHINES["tpu-v4"])
        for each in (True, False)
    )
    assert one.step_time.parts["tensor"] == pytest.approx(two.step_time.parts["tensor"] / 2)
    all_kept = costs.Plan(batch=1)
    saved = [
        costs.layer_activations(replace(palm, side_by_side=x), all_kept) for x in (True, False)
    ]
    assert saved[1] - saved[0] == 2 * 2 * 2048 * 18432  # a normalization's input and its output


def test_fused_code_keeps_three_tensors_of_a_gated_layer_and_pytorch_by_itself_four():
    """Both products, what the last matrix reads, and in PyTorch the activated gate, too."""
    plan = costs.Plan(attention="flash")
    kept = [
        costs.layer_activations(costs.LLAMA3_8B, replace(plan, fused=fused))
        for fused in (False, True)
    ]
    assert kept[0] - kept[1] == 8192 * (2 * 14336 + 2 * 4)  # and two root mean squares


def test_memory_is_what_a_program_can_use():
    """80 GB of HBM are 80 GiB, less what the driver keeps."""
    sizes = (80, 40, 80, 96, 141, 180, 186, 279, 192, 288, 32, 95, 32, 192)
    for machine, gib in zip(costs.MACHINES.values(), sizes, strict=True):
        assert 0.95 * gib < machine.memory / 2**30 <= gib
        assert "https://" in machine.source


def test_each_device_has_a_whole_head_of_keys():
    """Llama 3 8B has 8: on 16 devices, each two have the same."""
    h, size = 4096, 2
    for tensor, keys in ((4, 256), (8, 128), (16, 128), (32, 128)):
        plan = costs.Plan(tensor=tensor, recompute="full", attention="flash")
        e = costs.estimate(costs.LLAMA3_8B, plan, costs.H100_SXM)
        matrices = h * (2 * h / tensor + 2 * keys + 3 * 14336 / tensor)
        numbers = 32 * (matrices + 2 * h) + 2 * h * 128256 / tensor + h
        assert e.memory["weights"] == pytest.approx(size * numbers)


def test_a_logit_takes_three_numbers_in_fp32_unless_the_loss_is_fused():
    """Log-softmax, its gradient and the logits' gradient; or the logits, and a copy in fp32."""
    plan = costs.Plan(tensor=2, pipeline=2, batch=4, micro_batch=2)
    logits = 2 * GPT.sequence * GPT.vocabulary / 2
    for fused, each in ((False, 12), (True, 2 + 4)):
        stages = costs.estimate(GPT, replace(plan, fused_loss=fused), costs.A100_80GB).memory.stages
        assert [stage["logits"] for stage in stages] == [0, each * logits]


def test_zero_3_gathers_what_fully_shard_does():
    """Three layers' worth in the compute precision, and one being reduced, in its own."""
    model = costs.Transformer(layers=8, hidden=1024, heads=16, sequence=512, vocabulary=1000)
    layer = model.kinds[0][1].parameters
    for precision, compute, reduced in (
        ("bf16_compute", 2, 4),
        ("bf16_only", 2, 2),
        ("fp32", 4, 4),
    ):
        plan = costs.Plan(data=8, batch=8, zero=3, precision=precision)
        buffers = costs.estimate(model, plan, costs.H100_SXM).memory["buffers"]
        assert buffers == pytest.approx((3 * compute + reduced) * layer)
    large = replace(model, vocabulary=100_000)  # the output: weights, gradients, both reduced
    end = large.hidden * large.vocabulary
    plan = costs.Plan(data=8, batch=8, zero=3, precision="bf16_compute")
    buffers = costs.estimate(large, plan, costs.H100_SXM).memory["buffers"]
    assert buffers == pytest.approx(2 * (layer + end) + 4 * end)
    assert costs.estimate(model, costs.Plan(zero=3), costs.H100_SXM).memory["buffers"] == 0


def test_zero_3_gathers_attention_over_all_ranks_and_experts_over_their_copies():
    """A rank of 8 that holds all its experts alone gathers none, but all of the attention."""
    model = replace(costs.LLAMA3_8B, experts=8, top_k=2, ffn=4096)
    slow = replace(costs.H100_SXM, inner_bandwidth=1e9)
    plan = costs.Plan(data=8, batch=8, zero=3, expert=8, attention="flash", overlap=False)
    sent = costs.estimate(model, plan, slow).step_time.parts["data"]
    size = plan.formats
    layer = model.kinds[0][1].parameters - 8 * 3 * model.hidden * 4096  # without experts
    ends = 2 * model.hidden * model.vocabulary + model.hidden
    number = 32 * layer * (2 * size.compute + size.gradients)
    number += ends * (size.compute + size.gradients)
    assert sent == pytest.approx(7 / 8 * number / (1e9 * kernels.BUS), rel=0.01)


def test_zero_1_sends_gradients_out_and_weights_back():
    """Half of an all-reduce of gradients, then a gather of weights, in the precision of each."""
    plan = costs.Plan(data=64, batch=64, overlap=False, precision="bf16_fp32_gradients")
    numbers = costs.LLAMA3_8B.parameters
    once = 63 / 64 * numbers / (8 * 50e9 * kernels.BUS)  # a node's eight links share the ring
    for zero, size in ((0, 4 + 4), (1, 4 + 2), (2, 4 + 2)):
        e = costs.estimate(costs.LLAMA3_8B, replace(plan, zero=zero), costs.H100_SXM)
        assert e.step_time.parts["data"] == pytest.approx(size * once, rel=0.01)
        beside = costs.estimate(
            costs.LLAMA3_8B, replace(plan, zero=zero, overlap=True), costs.H100_SXM
        )
        assert beside.step_time.parts["data"] < e.step_time.parts["data"]


def test_zero_2_reduces_gradients_after_each_micro_batch():
    """It keeps only its part of them; a pipeline adds them up, and reduces them once."""
    plan = costs.Plan(data=64, batch=64, overlap=False, precision="bf16_fp32_gradients")

    def data(plan):
        estimate = costs.estimate(costs.LLAMA3_8B, plan, costs.H100_SXM)
        return estimate.step_time.parts["data"]

    for zero, times in ((0, 4 + 4), (1, 4 + 2), (2, 8 * 4 + 2)):
        once, eight = (data(replace(plan, zero=zero, batch=batch)) for batch in (64, 512))
        assert eight / once == pytest.approx(times / (4 + (2 if zero else 4)), rel=0.01)
    staged = replace(plan, data=16, pipeline=4, zero=2)
    assert data(replace(staged, batch=512)) == data(staged)


def test_what_runs_beside_slows_by_the_bytes_that_pass():
    assert kernels.beside(3.0, 2.0, 0.5) == 1.0 + kernels.BESIDE * 0.5 * 2.0
    assert kernels.beside(1.0, 2.0) == kernels.BESIDE
    plan = costs.Plan(tensor=8, batch=8, recompute="full", sequence_parallel=True)
    apart = costs.estimate(GPT, plan, costs.A100_80GB).step_time.parts["tensor"]
    hidden = costs.estimate(GPT, replace(plan, overlap_tensor=True), costs.A100_80GB)
    assert hidden.step_time.parts["tensor"] == pytest.approx(apart * kernels.BESIDE)


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
        (lambda: replace(GPT, heads=7), r"hidden=12288 is not divisible by heads=7"),
        (lambda: replace(GPT, layers=0), r"layers=0: give at least 1"),
        (lambda: replace(GPT, top_k=2), r"top_k=2: give at most experts=1"),
        (lambda: costs.Plan(zero=4), r"zero=4: give one of 0, 1, 2, 3"),
        (lambda: costs.Plan(recompute="some"), r"recompute='some': give one of None, 'selective'"),
        (lambda: costs.Plan(data=3, batch=4), r"batch=4 is not divisible by data x micro_batch=3"),
        (lambda: costs.Plan(interleave=2), r"give pipeline= of at least 2"),
        (
            lambda: costs.Plan(data=2, batch=2, expert=4),
            r"data x context=2 is not divisible by expert=4",
        ),
        (lambda: costs.Plan(precision="int8"), r"precision='int8': give one of 'fp32', 'bf16'"),
        (
            lambda: costs.estimate(GPT, costs.Plan(pipeline=7, batch=7), costs.A100_80GB),
            r"layers=96 is not divisible by pipeline x interleave=7",
        ),
        (lambda: costs.search(GPT, 0, costs.H100_SXM, 8), r"devices=0: give at least 1"),
        (
            lambda: costs.estimate(GPT, costs.Plan(), costs.A100_80GB, room=86e9),
            r"room=86,000,000,000: give bytes that stay free, from 0 to less than the 85,094",
        ),
        (
            lambda: costs.search(GPT, 8, costs.H100_SXM, 8, room=-1),
            r"room=-1: give at least 0",
        ),
        (
            lambda: costs.Plan(tensor=6).check(
                replace(costs.LLAMA3_8B, heads=12, head_size=1, kv_heads=4, ffn=6)
            ),
            r"kv_heads=4 and tensor=6: choose sizes of which one divides the other",
        ),
        (
            lambda: replace(costs.H100_SXM, memory=80),
            r"memory=80: give bytes, such as 80e9 for 80 GB",
        ),
        (lambda: replace(costs.H100_SXM, flops=989), r"flops=989: give FLOPs .*, such as 312e12"),
        (
            lambda: replace(costs.H100_SXM, inner_bandwidth=450),
            r"=450: give bytes per second, such",
        ),
        (lambda: replace(costs.H100_SXM, flops_32=495), r"flops_32=495: give FLOPs per second"),
        (
            lambda: costs.estimate(GPT, costs.Plan(), costs.H100_SXM, room=10),
            r"room=10: give bytes that stay free, from 0",
        ),
        (
            lambda: costs.estimate(GPT, costs.Plan(data=8, expert=8, batch=8), costs.H100_SXM),
            r"experts=1 is not divisible by expert=8",
        ),
        (
            lambda: costs.search(GPT, 7, costs.H100_SXM, 3, precision="int8"),
            r"precision='int8': give",
        ),
        (lambda: replace(costs.H100_SXM, memory=0), r"memory=0: give more than 0"),
        (lambda: replace(costs.H100_SXM, matmul=70), r"matmul=70: give a fraction, at most 1"),
        (lambda: costs.Precision(2, 2, -4, 8, 2), r"master=-4: give at least 0"),
        (lambda: GPT.flops(1, "some"), r"recompute='some': give one of None"),
        (lambda: costs.layer_activations(GPT, costs.Plan(tensor=5)), r"heads=96 is not divisible"),
        (lambda: costs.Plan(short_ends=True), r"short_ends=: give pipeline= of at least 2"),
        (
            lambda: costs.Plan(pipeline=16, batch=16).check(costs.LLAMA3_405B),
            r"layers=126 is not divisible by .*=16: .*, or give short_ends=True",
        ),
    ],
)
def test_bad_sizes_get_one_clear_message(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_numbers_of_numpy_are_numbers():
    given = {name: np.int32(getattr(GPT, name)) for name in ("layers", "hidden", "sequence")}
    model = replace(GPT, **given)
    plan = costs.Plan(data=np.int64(2), batch=np.int32(64))
    assert model == GPT
    assert type(model.hidden) is type(plan.batch) is int
    machine = replace(costs.A100_80GB, flops=np.float32(312e12), memory=np.float64(80e9))
    assert type(machine.flops) is type(machine.memory) is float
    assert model.flops(np.int32(64)) == GPT.flops(64)
    found = costs.search(costs.LLAMA3_8B, np.int64(8), machine, np.int64(16), top=np.int64(1))
    assert len(found) == 1


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: costs.estimate(GPT, costs.Plan(), "H100"),
            r"machine='H100': give a costs.Machine",
        ),
        (
            lambda: costs.search("llama3-8b", 8, costs.H100_SXM, 8),
            r"model='llama3-8b': give a costs.Transformer",
        ),
        (lambda: costs.layer_activations(costs.Plan(), GPT), r"model=.*: give a costs.Transformer"),
        (lambda: costs.Plan(tensor=2.0), r"tensor=2.0: give a whole number"),
        (lambda: costs.Plan(zero=True), r"zero=True: give a whole number"),
        (lambda: costs.Plan(sequence_parallel="no"), r"sequence_parallel='no': give True or False"),
        (lambda: replace(costs.H100_SXM, flops="fast"), r"flops='fast': give a number"),
        (
            lambda: costs.estimate(GPT, costs.Plan(), costs.H100_SXM, room="1 GB"),
            r"room='1 GB': give a number",
        ),
    ],
)
def test_what_is_nothing_of_the_kind_is_named(make, words):
    with pytest.raises(TypeError, match=words):
        make()


def test_search_returns_plans_that_fit_best_first():
    found = costs.search(costs.LLAMA3_70B, devices=64, machine=costs.H100_SXM, batch=512)
    assert found
    assert all(each.fits and each.plan.devices == 64 for each in found)
    assert all(each.memory.total <= costs.H100_SXM.memory * 5 / 6 for each in found)
    times = [each.step_time for each in found]
    assert times == sorted(times)
    assert costs.search(costs.LLAMA3_405B, devices=8, machine=costs.H100_SXM, batch=8) == []


def test_search_names_no_plan_twice():
    small = costs.Transformer(layers=2, hidden=64, heads=4, sequence=64, vocabulary=100)
    one = costs.search(small, 1, costs.H100_SXM, batch=1, top=100)
    assert [each.plan.zero for each in one] == [1]


def test_the_bytes_of_small_models_are_not_zero():
    small = costs.Transformer(layers=2, hidden=64, heads=4, sequence=64, vocabulary=100)
    e = costs.estimate(small, costs.Plan(), costs.H100_SXM)
    assert "2.3 MB, with an allocator up to 2.8" in str(e)
    assert repr(e).endswith("2.3 MB per device>")
    assert e._repr_html_() == f"<pre>{e}</pre>"  # what a notebook shows


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
        assert not other.fits or other.step_time >= best.step_time


@pytest.mark.parametrize("made", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy, deepcopy])
def test_an_estimate_can_be_pickled_and_copied(made):
    plan = costs.Plan(tensor=8, pipeline=8, batch=64, recompute="full")
    e = costs.estimate(GPT, plan, costs.A100_80GB)
    assert made(e) == e
    time = made(e.step_time)
    assert (time, time.parts) == (e.step_time, e.step_time.parts)
    assert (time.low, time.high) == (time / 1.15, time * 1.15)


def test_each_format_is_multiplied_at_its_own_peak():
    """And only the matrices of the layers: attention, output and what is kept stay in bf16."""
    model = replace(GPT, layers=4)
    plan = costs.Plan(tensor=8, batch=8, micro_batch=4, attention="flash")
    machine = replace(costs.A100_80GB, flops_8=624e12, flops_4=1248e12)
    estimates = {
        name: costs.estimate(model, replace(plan, precision=name), machine)
        for name in ("fp32", "bf16", "fp8", "mxfp4")
    }
    seconds = {name: e.step_time.parts["compute"] for name, e in estimates.items()}
    assert 1.9 < seconds["fp32"] / seconds["bf16"] < 2.1  # TF32
    assert seconds["bf16"] > seconds["fp8"] > seconds["mxfp4"] > seconds["bf16"] / 4
    assert estimates["fp8"].memory == estimates["mxfp4"].memory == estimates["bf16"].memory
    without = replace(machine, flops_32=19.5e12)  # without TF32
    e = costs.estimate(model, replace(plan, precision="fp32"), without)
    assert 6 < e.step_time.parts["compute"] / seconds["fp32"] < 8
    for name, words in (("fp32", "TF32"), ("bf16", ""), ("fp8", ""), ("mxfp4", "")):
        assert [words in doubt for doubt in estimates[name].doubts] == [True] * bool(words)


def test_muon_keeps_one_moment_of_the_layers_matrices_and_two_of_the_rest():
    model = costs.LLAMA3_8B
    adam, muon = (
        costs.estimate(model, costs.Plan(precision=name), costs.MACHINES["h200"]).memory[
            "optimizer state"
        ]
        for name in ("bf16_fp32_gradients", "bf16_muon")
    )
    others = 2 * model.hidden * model.vocabulary + (2 * model.layers + 1) * model.hidden
    assert adam - muon == 4 * (model.parameters - others)


def test_a_tensor_axis_beyond_a_node_is_a_doubt():
    for tensor, doubts in ((8, 0), (16, 1)):
        e = costs.estimate(GPT, costs.Plan(tensor=tensor, recompute="full"), costs.A100_40GB)
        assert sum("larger than a node" in doubt for doubt in e.doubts) == doubts


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
    assert none.stdout.startswith("No plan fits 8 x H100 SXM with batches of 8: give more")


def test_the_page_has_the_bytes_of_every_precision():
    page = (Path(__file__).parents[1] / "docs" / "costs.md").read_text()
    row = r'^\| `"(\w+)"` \| ([\d, ]+) \| (fp32|bf16)(?:, products in (\w+))? \|'
    rows = re.findall(row, page, re.MULTILINE)
    assert [name for name, *_ in rows] == list(plans.PRECISIONS)
    for name, told, computes, products in rows:
        p = plans.PRECISIONS[name]
        assert told == f"{p.weights}, {p.gradients}, {p.master}, {p.moments}"
        assert computes == {4: "fp32", 2: "bf16"}[p.compute]
        assert products == {None: "", 1: "FP8", 17 / 32: "MXFP4"}[p.products]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--batch", "8"), "Missing argument 'MODEL'"),
        (
            ("llama3-8b", "--batch", "8", "--devices", "8", "--tensor", "2"),
            "--tensor is for one plan",
        ),
        (("llama3-8b", "--batch", "8", "--tensr", "2"), "No such option '--tensr'"),
        (
            ("llama3-8b", "--batch", "8", "--room", "86"),
            "room=86,000,000,000: give bytes that stay free",
        ),
        (
            ("llama3-8b", "--batch", "8", "--tensor", "3"),
            "heads=32 is not divisible by tensor=3",
        ),
    ],
)
def test_a_shell_is_told_of_a_mistake(words, message):
    done = ask(*words)
    assert done.returncode == 2
    assert message in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("name", "devices", "batch", "options", "given"),
    [
        ("llama3-70b", 64, 512, "", {}),
        ("llama3-405b", 1024, 512, "--precision bf16", {"precision": "bf16"}),
        ("llama3-8b", 8, 8, "--room 9.5 --machine a100", {"room": 9.5 * GB}),
        (
            *("llama3-8b", 8, 64, "--no-fused --fused-loss --no-overlap"),
            {"fused": False, "fused_loss": True, "overlap": False},
        ),
    ],
)
def test_a_shell_finds_what_python_finds(name, devices, batch, options, given):
    words = f"{name} --devices {devices} --batch {batch} {options}"
    machine = costs.A100_80GB if "a100" in options else costs.H100_SXM
    best = costs.search(models.MODELS[name], devices, machine, batch, **given)[0]
    assert {key: getattr(best.plan, key) for key in given if key != "room"} == (
        {key: value for key, value in given.items() if key != "room"}
    )
    *_, python = (told := ask(*words.split()).stdout).splitlines()
    assert eval(python, {"costs": costs}) == best.plan
    assert told.endswith(f"The first plan:\n{best}\n{python}\n")


def test_nothing_is_said_when_nobody_reads():
    """As `| head` does, which ends before all is written."""
    for words in (("costs", "llama3-8b", "--batch", "8"), ("costs", "--help")):
        read, write = os.pipe()
        os.close(read)
        with os.fdopen(write, "w") as closed:
            done = subprocess.run(
                [sys.executable, "-m", "distlab", *words],
                stdout=closed,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        assert (done.returncode, done.stderr) == (1, "")


def test_no_framework_and_no_numpy_is_needed():
    code = (
        "import sys; from distlab import costs; "
        "costs.search(costs.LLAMA3_8B, 8, costs.H100_SXM, 16); "
        "names = ('numpy', 'torch', 'jax', 'tensorflow', 'matplotlib'); "
        "print([name for name in names if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.replace("'", '"')) == []


def test_routed_tokens_are_gathered_over_the_tensor_axis_once_for_each_of_their_experts():
    def exposed(top_k: int, **plan: object) -> float:
        sizes = {"layers": 8, "hidden": 1024, "heads": 16, "sequence": 2048, "vocabulary": 32000}
        model = costs.Transformer(**sizes, ffn=512 * 8 // top_k, experts=16, top_k=top_k)
        way = costs.Plan(data=2, tensor=4, batch=16, **plan)
        return costs.estimate(model, way, costs.H100_SXM).step_time.parts["tensor"]

    shared = {"sequence_parallel": True, "expert": 2}
    assert exposed(8, **shared) > 2 * exposed(1, **shared)
    for plan in ({"sequence_parallel": True}, {"expert": 2}):  # all tokens are there already
        assert exposed(8, **plan) == exposed(1, **plan)
