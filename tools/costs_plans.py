"""Tables of plans: Llama 3 70B on 64 H100 for docs/costs.md, other calculators.

`python tools/costs.py` writes them. What other calculators answer was found by running their own
code, outside this project; docs/costs_compared.md says which version, with which arguments.
"""

from dataclasses import dataclass, replace

from distlab import costs

BATCH = 512
DEVICES = 64


@dataclass(frozen=True)
class Case:
    """One training step that every calculator was asked about.

    Attributes:
        name: What it is called.
        published: What was measured: memory and time.
        estimate: Ours.
        others: What the others answered, by their name: memory and time.
    """

    name: str
    published: tuple[str, str]
    estimate: costs.Estimate
    others: dict[str, tuple[str, str]]


def plans_for_70b() -> dict[str, costs.Estimate]:
    """Plans for Llama 3 70B on 64 H100 with 512 sequences, by who recommends them."""
    found = costs.search(costs.LLAMA3_70B, DEVICES, costs.H100_SXM, BATCH, top=100)
    plain = next(each for each in found if each.plan.context == 1)
    given = {
        "NVIDIA's run with NeMo": costs.Plan(
            data=2,
            tensor=4,
            pipeline=4,
            context=2,
            interleave=5,
            batch=BATCH,
            sequence_parallel=True,
            zero=1,
            precision="bf16",
            attention="flash",
            fused_loss=True,
        ),
        "torchtitan": costs.Plan(
            data=8,
            tensor=8,
            batch=BATCH,
            micro_batch=8,
            recompute="full",
            sequence_parallel=True,
            zero=3,
            precision="bf16_compute",
            attention="flash",
        ),
        "torchtitan's axes, no recompute": costs.Plan(
            data=8,
            tensor=8,
            batch=BATCH,
            sequence_parallel=True,
            zero=3,
            precision="bf16_compute",
            attention="flash",
        ),
        "Playbook, tensor and pipeline": costs.Plan(
            data=2,
            tensor=8,
            pipeline=4,
            batch=BATCH,
            sequence_parallel=True,
            zero=1,
            precision="bf16_fp32_gradients",
            attention="flash",
        ),
        "Playbook, ZeRO 3 alone": costs.Plan(
            data=64,
            batch=BATCH,
            recompute="full",
            zero=3,
            precision="bf16_fp32_gradients",
            attention="flash",
        ),
    }
    return {
        "`costs.search`": found[0],
        "`costs.search`, no context axis": plain,
        **{
            name: costs.estimate(costs.LLAMA3_70B, plan, costs.H100_SXM)
            for name, plan in given.items()
        },
    }


def asynchronous(e: costs.Estimate) -> str:
    """Seconds of the same plan if communication over the tensor axis runs beside products."""
    if e.plan.tensor == 1:
        return "-"
    changed = costs.estimate(e.model, replace(e.plan, overlap_tensor=True), e.machine)
    return f"{changed.step_time:.1f} s"


def table_of_70b() -> str:
    """The table of these plans."""
    lines = [
        "| plan of | axes | micro-batch, recompute | counted | step | range | compute | exposed "
        "communication | MFU | step, asynchronous |",
        "|---|---|---|---:|---:|---|---:|---:|---:|---:|",
    ]
    for name, e in plans_for_70b().items():
        plan, time = e.plan, e.step_time
        sizes = (("data", plan.data), ("tensor", plan.tensor), ("pipeline", plan.pipeline))
        axes = [f"{axis} {size}" for axis, size in sizes if size > 1]
        axes += [f"context {plan.context}"] * (plan.context > 1) + [f"ZeRO {plan.zero}"]
        chunks = f", interleave {plan.interleave}" * (plan.interleave > 1)
        again = f"{plan.micro_batch}, {plan.recompute or 'none'}{chunks}"
        sent = sum(time.parts[part] for part in ("tensor", "context", "data", "pipeline"))
        lines.append(
            f"| {name} | {' x '.join(axes)} | {again} | {e.memory.total / 1e9:.0f} GB | "
            f"{time:.1f} s | {time.low:.0f} to {time.high:.0f} s | {time.parts['compute']:.1f} s | "
            f"{sent:.1f} s | {e.mfu:.1%} | {asynchronous(e)} |"
        )
    return "\n".join(lines) + "\n"


def cases() -> list[Case]:
    """The cases, with everybody's answers."""
    megatron = costs.Plan(
        tensor=8,
        pipeline=8,
        batch=64,
        recompute="selective",
        sequence_parallel=True,
        interleave=3,
        precision="bf16_fp32_gradients",
        fused_loss=True,
    )
    sharded = costs.Plan(
        data=8,
        batch=16,
        micro_batch=2,
        recompute="matmuls",
        zero=3,
        precision="bf16_compute",
        attention="flash",
        fused=False,
    )
    bloom = costs.Transformer(layers=70, hidden=14336, heads=112, sequence=2048, vocabulary=250880)
    zero_1 = costs.Plan(
        data=8,
        tensor=4,
        pipeline=12,
        batch=2048,
        micro_batch=2,
        recompute="full",
        zero=1,
        short_ends=True,
        precision="bf16_fp32_gradients",
        overlap=False,
        fused_loss=True,
    )
    return [
        Case(
            "GPT-3 175B on 64 A100",
            ("-", "13.75 s"),
            costs.estimate(costs.GPT3_175B, megatron, costs.A100_80GB),
            {
                "EleutherAI cookbook": ("1,016 GB", "-"),
                "DeepSpeed": ("-", "-"),
                "Megatron-LM": ("64 GB", "-"),
                "Calculon": ("58 GB", "13.6 s"),
                "llm-analysis": ("51 GB", "15.8 s"),
            },
        ),
        Case(
            "Llama 3 8B on 8 H100, FSDP",
            ("88 GB", "2.84 s"),
            costs.estimate(costs.LLAMA3_8B, sharded, costs.H100_96GB),
            {
                "EleutherAI cookbook": ("94 or 781 GB", "-"),
                "DeepSpeed": ("20 GB of states", "-"),
                "Megatron-LM": ("-", "-"),
                "Calculon": ("-", "-"),
                "llm-analysis": ("26 or 106 GB", "2.6 or 1.9 s"),
            },
        ),
        Case(
            "BLOOM 176B on 384 A100, ZeRO 1",
            ("60 GB", "105 s"),
            costs.estimate(bloom, zero_1, replace(costs.A100_80GB, outer_bandwidth=6.25e9)),
            {
                "EleutherAI cookbook": ("873 GB", "-"),
                "DeepSpeed": ("-", "-"),
                "Megatron-LM": ("103 GB", "-"),
                "Calculon": ("30 GB", "78.3 s"),
                "llm-analysis": ("32 GB", "82.5 s"),
            },
        ),
    ]


def table_of_answers() -> str:
    """Everybody's answers: memory of a device, seconds of a step."""
    found = cases()
    names = " | ".join(case.name for case in found)
    lines = [f"| | {names} |", "|---|" + "---|" * len(found)]

    def line(name: str, answers: list[tuple[str, str]]) -> str:
        return f"| {name} | " + " | ".join(", ".join(answer) for answer in answers) + " |"

    lines.append(line("published", [case.published for case in found]))
    ours = [
        (
            f"{case.estimate.memory.total / 1e9:.0f} to {case.estimate.memory.high / 1e9:.0f} GB",
            f"{case.estimate.step_time:.3g} s",
        )
        for case in found
    ]
    lines.append(line("`distlab.costs`", ours))
    lines += [line(name, [case.others[name] for case in found]) for name in found[0].others]
    return "\n".join(lines) + "\n"
