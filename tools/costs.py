"""The tables of docs/costs.md and docs/costs_compared.md: estimates beside what was published.

`python tools/costs.py` writes them.
"""

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from costs_plans import table_of_70b, table_of_answers
from marked import filled

from distlab import costs
from distlab.costs.layers import passes
from distlab.costs.machines import MACHINES
from distlab.costs.memory import ROOM

ROOT = Path(__file__).resolve().parent.parent
RUNS = ROOT / "tests" / "published_runs.json"
PAGE = ROOT / "docs" / "costs.md"
COMPARED = ROOT / "docs" / "costs_compared.md"
MANY = ("llm_foundry",)
"""Sources with so many runs that the page shows only the worst ones of each machine."""
WORST = 3


@dataclass(frozen=True)
class Run:
    """One published run beside its estimate.

    Attributes:
        name: What it is called.
        source: The key of where it stands.
        fitted: Whether a rate was fitted to it.
        note: What is known about it that the estimate does not know.
        seconds: Published seconds per step, worked out where another figure was published; not a
            number where only memory is known.
        derived: Whether they were worked out from FLOP/s, by a count of FLOPs.
        gib: Published GiB per device, if any.
        estimate: Ours.
    """

    name: str
    source: str
    fitted: bool
    note: str
    seconds: float
    derived: bool
    gib: float | None
    estimate: costs.Estimate

    @property
    def error(self) -> float:
        """Ours over the published time, less 1."""
        return self.estimate.step_time / self.seconds - 1

    @property
    def inside(self) -> bool:
        """Whether the published time is in the range of the estimate."""
        time = self.estimate.step_time
        return time.low <= self.seconds <= time.high

    @property
    def filled(self) -> float:
        """The part of the memory that is counted."""
        return self.estimate.memory.total / self.estimate.memory.capacity


def sources() -> dict[str, str]:
    """Where the runs were published, by key."""
    return dict(json.loads(RUNS.read_text())["sources"])


def runs() -> list[Run]:
    """Every published run with its estimate."""
    data = json.loads(RUNS.read_text())
    return [_run(row, data["models"][row["model"]]) for row in data["runs"]]


def memory_runs() -> list[Run]:
    """Published runs of which only the memory is known to us: they computed in 8 bits.

    That takes the same memory (77.0 and 76.8 GiB in table 1 of the same source), but less time.
    """
    data = json.loads(RUNS.read_text())
    return [_run(row, data["models"][row["model"]]) for row in data["memory"]]


def _run(row: dict[str, Any], sizes: dict[str, Any]) -> Run:
    model = costs.Transformer(sequence=row["sequence"], **sizes)
    plan, machine = costs.Plan(**row["plan"]), MACHINES[row["machine"]]
    if "network" in row:  # bytes per second of a device to other nodes, where it is not the usual
        machine = replace(machine, outer_bandwidth=row["network"])
    return Run(
        name=row["run"],
        source=row["source"],
        fitted=row.get("fitted", False),
        note=row.get("note", ""),
        seconds=_seconds(row, model, plan, machine),
        derived=bool({"tflops", "model_tflops", "mfu"} & set(row)),
        gib=row.get("gib"),
        estimate=costs.estimate(model, plan, machine, room=0),  # they ran, however full
    )


def _seconds(
    row: dict[str, Any], model: costs.Transformer, plan: costs.Plan, machine: costs.Machine
) -> float:
    if "seconds" in row:
        return float(row["seconds"])
    if "gib" in row and "tokens" not in row:
        return float("nan")
    if "tokens" in row:  # per second and device
        return float(plan.batch * model.sequence / plan.devices / row["tokens"])
    if "tflops" in row:  # per device, with recompute, by the paper's own formula (its equation 3)
        h, s = model.hidden, model.sequence
        inside = 1 + s / (6 * h) + model.vocabulary / (16 * model.layers * h)
        flops = 96 * plan.batch * s * model.layers * h**2 * inside
        return float(flops / plan.devices / row["tflops"] / 1e12)
    rate = row["model_tflops"] * 1e12 if "model_tflops" in row else row["mfu"] / 100 * machine.flops
    return float(model.flops(plan.batch) / plan.devices / rate)


def summary(all_runs: list[Run]) -> str:
    """The table of errors by source."""
    lines = [
        "| runs | number | median error | worst | in the range |",
        "|---|---:|---:|---:|---:|",
    ]
    held = [run for run in all_runs if not run.fitted]
    groups = {
        "fitted": [run for run in all_runs if run.fitted],
        "held out": held,
        "held out, of LLM Foundry": [run for run in held if run.source in MANY],
        "held out, of all others": others(all_runs),
    }
    for name, found in groups.items():
        errors = [abs(run.error) for run in found]
        inside = sum(run.inside for run in found)
        lines.append(
            f"| {name} | {len(errors)} | {median(errors):.1%} | {max(errors):.1%} | "
            f"{inside} ({inside / len(found):.0%}) |"
        )
    return "\n".join(lines) + "\n"


def others(all_runs: list[Run]) -> list[Run]:
    """The runs held out that are not of a source with very many."""
    return [run for run in all_runs if not run.fitted and run.source not in MANY]


def rules(all_runs: list[Run], more: list[Run]) -> str:
    """The table of rooms: what each would have refused, and where it would not have sufficed."""
    lines = [
        "| room | a device may need | runs refused that ran | torchtitan's runs that needed more |",
        "|---|---|---:|---:|",
    ]
    known = [run for run in [*all_runs, *more] if run.gib]
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
    attention = 3 * model.layers * model.layer_attention_flops * batch * model.sequence
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
        ours = (1e3 * forward.total, 1e3 * (backward.total + again.total))
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
        "memory": memory_table([*found, *memory_runs()]),
        "rules": rules(found, memory_runs()),
        "causal": causal(found),
        "notes": notes([*found, *memory_runs()]),
        "plans": table_of_70b(),
        "layers": layer_table(),
    }
    return filled(page, parts)


def compared(page: str) -> str:
    """Return the text of the page about other calculators with its table made anew."""
    return filled(page, {"answers": table_of_answers()})


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    COMPARED.write_text(compared(COMPARED.read_text(encoding="utf-8")), encoding="utf-8")
