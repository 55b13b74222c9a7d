"""The tables of docs/costs.md and docs/costs_compared.md: estimates beside what was published.

`python tools/costs.py` writes them.
"""

import json
import re
from pathlib import Path
from statistics import median

from costs_plans import table_of_70b, table_of_answers
from costs_runs import MANY, RUNS, Run, others, runs, sources
from marked import filled

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
    lines = [
        "| runs | number | median error | worst | in the range |",
        "|---|---:|---:|---:|---:|",
    ]
    held = [run for run in all_runs if not run.fitted]
    rest = others(all_runs)
    experts = [run for run in rest if run.estimate.model.routed]
    names = [(run.estimate.machine.name, run) for run in rest if not run.estimate.model.routed]
    groups = {
        "fitted": [run for run in all_runs if run.fitted],
        "held out": held,
        "held out, of LLM Foundry": [run for run in held if run.source in MANY],
        "held out, of all others": rest,
        "of these, with experts": experts,
        "of these, with 32 experts or more, a range only": [
            r for r in experts if r.estimate.model.routed >= 32
        ],
        "without, in 8 bits": [r for _, r in names if r.estimate.plan.formats.multiplied < 2],
        "without, on B200 and GB200": [run for name, run in names if "B200" in name],
        "without, on TPU v6e and v7": [run for name, run in names if name[-3:] in ("v6e", " v7")],
    }
    for name, found in groups.items():
        errors, inside = [abs(run.error) for run in found], sum(run.inside for run in found)
        lines.append(
            f"| {name} | {len(errors)} | {median(errors):.1%} | {max(errors):.1%} | "
            f"{inside} ({inside / len(found):.0%}) |"
        )
    return "\n".join(lines) + "\n"


def rules(all_runs: list[Run]) -> str:
    """The table of rooms: what each would have refused, and where it would not have sufficed."""
    lines = [
        "| room | a device may need | runs refused that ran | torchtitan's runs that needed more |",
        "|---|---|---:|---:|",
    ]
    known = [run for run in all_runs if run.gib]
    for name, room in (("none", 0.0), ("one eleventh", 1 / 11), ("one sixth", ROOM)):
        refused = sum(run.filled > 1 - room for run in all_runs)
        beyond = sum(
            (run.gib or 0) * 2**30 * (1 - room) > run.estimate.memory.total for run in known
        )
        lines.append(
            f"| {name} | {1 / (1 - room) - 1:.0%} more | {refused} of {len(all_runs)} | "
            f"{beyond} of {len(known)} |"
        )
    above: dict[str, list[float]] = {}
    for run in all_runs:
        if run.filled > 1:
            model = ", ".join(run.name.split(" on ")[0].split(", ")[:2])
            above.setdefault(model, []).append(run.filled)
    names = "; ".join(
        f"{model} ({len(found)}, up to {max(found):.0%})" for model, found in above.items()
    )
    return "\n".join(lines) + f"\n\nCounted above the memory: {names}.\n"


def table(all_runs: list[Run]) -> str:
    """The table of runs: all, but of a source with very many only the worst held-out ones."""
    shown = [run for run in all_runs if run.source not in MANY]
    for machine in dict.fromkeys(run.estimate.machine.name for run in all_runs):
        many = [
            run
            for run in all_runs
            if run.source in MANY and not run.fitted and run.estimate.machine.name == machine
        ]
        shown += sorted(many, key=lambda run: -abs(run.error))[:WORST]
    lines = [
        "| run | published | estimate | error | |",
        "|---|---:|---:|---:|---|",
    ]
    numbers = {key: i for i, key in enumerate(sources(), 1)}
    for run in shown:
        mark = "fitted" if run.fitted else ""
        star = "*" * run.derived
        times = f"{run.seconds:.4g} s{star} | {run.estimate.step_time:.4g} s"
        lines.append(
            f"| {run.name} [{numbers[run.source]}] | {times} | {run.error:+.1%} | {mark} |"
        )
    return "\n".join(lines) + "\n"


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
    lines = [
        "| run | reported | counted | with a fifth more | reported over counted |",
        "|---|---:|---:|---:|---:|",
    ]
    for run in all_runs:
        if run.gib:
            kept = run.estimate.memory
            ours, high = kept.total / 2**30, kept.high / 2**30
            lines.append(
                f"| {run.name} | {run.gib} GiB | {ours:.1f} GiB | {high:.1f} GiB | "
                f"{run.gib / ours - 1:+.1%} |"
            )
    return "\n".join(lines) + "\n"


def layers() -> list[tuple[str, float, float, float, float]]:
    """One layer of 22B: recompute, published milliseconds forward and backward, and ours."""
    data = json.loads(RUNS.read_text())
    model = costs.Transformer(sequence=2048, **data["models"]["48 x 6144"])
    found = []
    for row in data["layers"]:
        forward, backward, again = passes(model, costs.Plan(**row["plan"]), costs.A100_80GB)
        ours = (1e3 * sum(forward.values()), 1e3 * sum([*backward.values(), *again.values()]))
        found.append((row["recompute"], row["forward"], row["backward"], *ours))
    return found


def layer_table() -> str:
    """The table of that layer."""
    lines = [
        "| recompute | forward | estimate | error | backward | estimate | error |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, forward, backward, *ours in layers():
        pairs = zip((forward, backward), ours, strict=True)
        cells = (f"{theirs} ms | {own:.1f} ms | {own / theirs - 1:+.1%}" for theirs, own in pairs)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def rates() -> str:
    """The table of the rates that were fitted."""
    lines = ["| fitted rate | A100 | H100 | H100 96 GB |", "|---|---:|---:|---:|"]
    machines = (costs.A100_80GB, costs.H100_SXM, costs.H100_96GB)
    for name, field in (("large products", "matmul"), ("attention", "flash")):
        found = " | ".join(f"{getattr(machine, field):.2f}" for machine in machines)
        lines.append(f"| {name}, of the peak | {found} |")
    for name, rate in (
        ("bytes through memory, of its bandwidth", kernels.STREAM),
        ("bytes through links, of their bandwidth", kernels.BUS),
        ("what communication takes from computation beside it", kernels.BESIDE),
    ):
        lines.append(f"| {name} | {f'{rate:.2f} | ' * 3}".rstrip())
    return "\n".join(lines) + "\n"


def notes(all_runs: list[Run]) -> str:
    """The sources, and what is known of runs that the estimate does not know."""
    lines = [f"{i}. {_link(text)}" for i, text in enumerate(sources().values(), 1)]
    known = dict.fromkeys((run.name.split(" on ")[0], run.note) for run in all_runs if run.note)
    return (
        "\n".join(lines)
        + "\n\n"
        + "\n".join(f"- {name}: {_link(note)}." for name, note in known)
        + "\n"
    )


def _link(text: str) -> str:
    return re.sub(r"https://[^\s,;)]+", lambda found: f"<{found[0]}>", text)


def written(page: str) -> str:
    """Return the page's text with its tables made anew."""
    found = runs()
    parts = {
        "summary": summary(found),
        "runs": table(found),
        "memory": memory_table(found),
        "rules": rules(found),
        "causal": causal(found),
        "rates": rates(),
        "notes": notes(found),
        "plans": table_of_70b(),
        "layers": layer_table(),
    }
    return filled(page, parts)


def compared(page: str) -> str:
    """Return the text of the page about other calculators with its table made anew."""
    return filled(page, {"answers": table_of_answers(), "summary": summary(runs())})


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    COMPARED.write_text(compared(COMPARED.read_text(encoding="utf-8")), encoding="utf-8")
