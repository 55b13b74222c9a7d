"""The tables of docs/costs.md and docs/costs_compared.md: estimates beside what was published.

`python tools/costs.py` writes them.
"""

import re
from dataclasses import replace
from pathlib import Path
from statistics import median

from costs_runs import DATA, MANY, Run, others, runs
from marked import filled, table

from distlab import costs
from distlab.costs import kernels
from distlab.costs.layers import passes
from distlab.costs.memory import ROOM

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "costs.md"
COMPARED = ROOT / "docs" / "costs_compared.md"
WORST = 3


def summary(all_runs: list[Run]) -> str:
    """The table of errors by source."""
    held = [run for run in all_runs if not run.fitted]
    rest = others(all_runs)
    experts = [run for run in rest if run.estimate.model.routed]
    without = [(run.estimate, run) for run in rest if not run.estimate.model.routed]
    groups = {
        "fitted": [run for run in all_runs if run.fitted],
        "held out": held,
        "held out, of LLM Foundry": [run for run in held if run.source in MANY],
        "held out, of all others": rest,
        "of these, with experts": experts,
        "of these, with 32 experts or more, a range only": [
            run for run in experts if run.estimate.model.routed >= 32
        ],
        "without, in 8 bits": [run for e, run in without if e.plan.formats.multiplied < 2],
        "without, on B200 and GB200": [run for e, run in without if "B200" in e.machine.name],
        "without, on TPU v6e and v7": [
            run for e, run in without if e.machine.name.endswith(("v6e", " v7"))
        ],
    }
    rows = []
    for name, found in groups.items():
        errors, inside = [abs(run.error) for run in found], sum(run.inside for run in found)
        numbers = (len(found), f"{median(errors):.1%}", f"{max(errors):.1%}")
        rows.append((name, *numbers, f"{inside} ({inside / len(found):.0%})"))
    head = ("runs", "number", "median error", "worst", "in the range")
    return table(head, rows, "|---|---:|---:|---:|---:|")


def rules(all_runs: list[Run]) -> str:
    """The table of rooms: what each would have refused, and where it would not have sufficed."""
    known = [run for run in all_runs if run.gib]
    rows = []
    for name, room in (("none", 0.0), ("one eleventh", 1 / 11), ("one sixth", ROOM)):
        refused = sum(run.filled > 1 - room for run in all_runs)
        beyond = sum(
            (run.gib or 0) * 2**30 * (1 - room) > run.estimate.memory.total for run in known
        )
        more = f"{1 / (1 - room) - 1:.0%} more"
        rows.append((name, more, f"{refused} of {len(all_runs)}", f"{beyond} of {len(known)}"))
    head = ["room", "a device may need", "runs refused that ran"]
    head += ["torchtitan's runs that needed more"]
    above: dict[str, list[float]] = {}
    for run in all_runs:
        if run.filled > 1:
            model = ", ".join(run.name.split(" on ")[0].split(", ")[:2])
            above.setdefault(model, []).append(run.filled)
    names = "; ".join(
        f"{model} ({len(found)}, up to {max(found):.0%})" for model, found in above.items()
    )
    return table(head, rows, "|---|---|---:|---:|") + f"\nCounted above the memory: {names}.\n"


def table_of_runs(all_runs: list[Run]) -> str:
    """The table of runs: all, but of a source with very many only the worst held-out ones."""
    shown = [run for run in all_runs if run.source not in MANY]
    for machine in dict.fromkeys(run.estimate.machine.name for run in all_runs):
        many = [
            run
            for run in all_runs
            if run.source in MANY and not run.fitted and run.estimate.machine.name == machine
        ]
        shown += sorted(many, key=lambda run: -abs(run.error))[:WORST]
    numbers = {key: i for i, key in enumerate(DATA["sources"], 1)}
    rows = [
        (
            f"{run.name} [{numbers[run.source]}]",
            f"{run.seconds:.4g} s{'*' * run.derived}",
            f"{run.estimate.step_time:.4g} s",
            f"{run.error:+.1%}",
            "fitted" if run.fitted else "",
        )
        for run in shown
    ]
    head = ("run", "published", "estimate", "error", "")
    return table(head, rows, "|---|---:|---:|---:|---|")


def causal(all_runs: list[Run]) -> str:
    """What the time of the longest sequences would be if their FLOPs left out what is masked."""
    run = next(run for run in all_runs if run.name.endswith("131,072 tokens"))
    model, batch = run.estimate.model, run.estimate.plan.batch
    attention = 3 * model.layers * model.attention_flops * batch * model.sequence
    part = attention / model.flops(batch)
    seconds = run.seconds * (1 - part / 2)
    error = run.estimate.step_time / seconds - 1
    return (
        f"- {run.name}: attention is {part:.0%} of the FLOPs, counted in full. The paper does not "
        f"say whether its rate counts the half that the causal mask hides. If it does not, the run "
        f"took {seconds:.3g} s and not {run.seconds:.4g} s, and the error is {error:+.0%} and not "
        f"{run.error:+.0%}.\n"
    )


def memory_table(all_runs: list[Run]) -> str:
    """The table of published memory."""
    rows = []
    for run in all_runs:
        if run.gib:
            kept = run.estimate.memory
            ours, high = kept.total / 2**30, kept.high / 2**30
            over = f"{run.gib / ours - 1:+.1%}"
            rows.append((run.name, f"{run.gib} GiB", f"{ours:.1f} GiB", f"{high:.1f} GiB", over))
    head = ("run", "reported", "counted", "with a fifth more", "reported over counted")
    return table(head, rows, "|---|---:|---:|---:|---:|")


def layers() -> list[tuple[str, float, float, float, float]]:
    """One layer of 22B: recompute, published milliseconds forward and backward, and ours."""
    model = costs.Transformer(sequence=2048, **DATA["models"]["48 x 6144"])
    found = []
    for row in DATA["layers"]:
        forward, backward, again = passes(model, costs.Plan(**row["plan"]), costs.A100_80GB)
        ours = (1e3 * sum(forward.values()), 1e3 * sum([*backward.values(), *again.values()]))
        found.append((row["recompute"], row["forward"], row["backward"], *ours))
    return found


def layer_table() -> str:
    """The table of that layer."""
    rows = []
    for name, forward, backward, *ours in layers():
        pairs = zip((forward, backward), ours, strict=True)
        cells = [(f"{one} ms", f"{own:.1f} ms", f"{own / one - 1:+.1%}") for one, own in pairs]
        rows.append((name, *cells[0], *cells[1]))
    head = ("recompute", "forward", "estimate", "error", "backward", "estimate", "error")
    return table(head, rows, f"|---|{'---:|' * 6}")


def rates() -> str:
    """The table of the rates that were fitted."""
    machines = (costs.A100_80GB, costs.H100_SXM, costs.H100_96GB)
    rows = [
        (f"{name}, of the peak", *(f"{getattr(machine, field):.2f}" for machine in machines))
        for name, field in (("large products", "matmul"), ("attention", "flash"))
    ]
    for name, rate in (
        ("bytes through memory, of its bandwidth", kernels.STREAM),
        ("bytes through links, of their bandwidth", kernels.BUS),
        ("what communication takes from computation beside it", kernels.BESIDE),
    ):
        rows.append((name, *[f"{rate:.2f}"] * 3))
    return table(("fitted rate", "A100", "H100", "H100 96 GB"), rows, "|---|---:|---:|---:|")


def notes(all_runs: list[Run]) -> str:
    """The sources, and what is known of runs that the estimate does not know."""
    lines = [f"{i}. {text}" for i, text in enumerate(DATA["sources"].values(), 1)]
    known = dict.fromkeys((run.name.split(" on ")[0], run.note) for run in all_runs if run.note)
    lines += ["", *(f"- {name}: {note}." for name, note in known), ""]
    return re.sub(r"https://[^\s,;)]+", r"<\g<0>>", "\n".join(lines))


def plans_for_70b() -> dict[str, costs.Estimate]:
    """Plans for Llama 3 70B on 64 H100 with 512 sequences, by who recommends them."""
    found = costs.search(costs.LLAMA3_70B, 64, costs.H100_SXM, 512, top=100)
    plain = next(each for each in found if each.plan.context == 1)
    given = {
        name: costs.estimate(costs.LLAMA3_70B, costs.Plan(**plan), costs.H100_SXM)
        for name, plan in DATA["plans"].items()
    }
    return {"`costs.search`": found[0], "`costs.search`, no context axis": plain, **given}


def asynchronous(e: costs.Estimate) -> str:
    """Seconds of the same plan if communication over the tensor axis runs beside products."""
    if e.plan.tensor == 1:
        return "-"
    changed = costs.estimate(e.model, replace(e.plan, overlap_tensor=True), e.machine)
    return f"{changed.step_time:.1f} s"


def table_of_70b() -> str:
    """The table of these plans."""
    rows = []
    for name, e in plans_for_70b().items():
        plan, time = e.plan, e.step_time
        sizes = (("data", plan.data), ("tensor", plan.tensor), ("pipeline", plan.pipeline))
        axes = [f"{axis} {size}" for axis, size in sizes if size > 1]
        axes += [f"context {plan.context}"] * (plan.context > 1) + [f"ZeRO {plan.zero}"]
        chunks = f", interleave {plan.interleave}" * (plan.interleave > 1)
        sent = sum(time.parts[part] for part in ("tensor", "context", "data", "pipeline"))
        rows.append(
            (
                name,
                " x ".join(axes),
                f"{plan.micro_batch}, {plan.recompute or 'none'}{chunks}",
                f"{e.memory.total / 1e9:.0f} GB",
                f"{time:.1f} s",
                f"{time.low:.0f} to {time.high:.0f} s",
                f"{time.parts['compute']:.1f} s",
                f"{sent:.1f} s",
                f"{e.mfu:.1%}",
                asynchronous(e),
            )
        )
    head = ["plan of", "axes", "micro-batch, recompute", "counted", "step", "range", "compute"]
    head += ["exposed communication", "MFU", "step, asynchronous"]
    return table(head, rows, "|---|---|---|---:|---:|---|---:|---:|---:|---:|")


def table_of_answers(all_runs: list[Run]) -> str:
    """What other calculators answer about three runs: memory of a device, seconds of a step.

    Their answers were found by running their own code, outside this project;
    docs/costs_compared.md says which version, with which arguments.
    """
    known = {run.name: run.estimate for run in all_runs}
    answers = dict(DATA["answers"])
    ours = [known[name] for name in answers.pop("runs")]
    head, published = answers.pop(""), answers.pop("published")
    own = [
        f"{e.memory.total / 1e9:.0f} to {e.memory.high / 1e9:.0f} GB, {e.step_time:.3g} s"
        for e in ours
    ]
    rows = {"published": published, "`distlab.costs`": own, **answers}
    cells = [(name, *row) for name, row in rows.items()]
    return table(("", *head), cells, "|---|" + "---|" * len(head))


def written() -> dict[Path, str]:
    """Return the text of both pages with their tables made anew."""
    found = runs()
    parts = {
        "summary": summary(found),
        "runs": table_of_runs(found),
        "memory": memory_table(found),
        "rules": rules(found),
        "causal": causal(found),
        "rates": rates(),
        "notes": notes(found),
        "plans": table_of_70b(),
        "layers": layer_table(),
    }
    compared = {"answers": table_of_answers(found), "summary": parts["summary"]}
    made = {PAGE: parts, COMPARED: compared}
    return {page: filled(page.read_text(encoding="utf-8"), made[page]) for page in made}


if __name__ == "__main__":
    for page, text in written().items():
        page.write_text(text, encoding="utf-8")
