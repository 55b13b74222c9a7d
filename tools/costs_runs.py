"""Published runs beside their estimates: tests/published_runs.json, read and worked out."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from distlab import costs
from distlab.costs.machines import MACHINES

RUNS = Path(__file__).resolve().parent.parent / "tests" / "published_runs.json"
MANY = ("llm_foundry",)
"""Sources with so many runs that the page shows only the worst ones of each machine."""


@dataclass(frozen=True)
class Run:
    """One published run beside its estimate.

    Attributes:
        name: What it is called.
        source: The key of where it stands.
        fitted: Whether a rate was fitted to it.
        note: What is known about it that the estimate does not know.
        seconds: Published seconds per step, worked out where another figure was published.
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


def _run(row: dict[str, Any], sizes: dict[str, Any]) -> Run:
    if "model_type" in sizes:
        model = costs.Transformer.from_config(sizes, row["sequence"])
    else:
        model = costs.Transformer(sequence=row["sequence"], **sizes)
    plan, machine = costs.Plan(**row["plan"]), MACHINES[row["machine"]]
    if "network" in row:  # bytes per second of a device to other nodes, where it is not the usual
        machine = replace(machine, outer_bandwidth=row["network"])
    if "flash" in row:  # the rate of kernels of 2023
        machine = replace(machine, flash=row["flash"])
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
    if "tokens" in row:  # per second and device
        return float(plan.batch * model.sequence / plan.devices / row["tokens"])
    if "tflops" in row:  # per device, with recompute, by the paper's own formula (its equation 3)
        h, s = model.hidden, model.sequence
        inside = 1 + s / (6 * h) + model.vocabulary / (16 * model.layers * h)
        flops = 96 * plan.batch * s * model.layers * h**2 * inside
        return float(flops / plan.devices / row["tflops"] / 1e12)
    rate = row["model_tflops"] * 1e12 if "model_tflops" in row else row["mfu"] / 100 * machine.flops
    return float(model.flops(plan.batch) / plan.devices / rate)


def others(all_runs: list[Run]) -> list[Run]:
    """The runs held out that are not of a source with very many."""
    return [run for run in all_runs if not run.fitted and run.source not in MANY]
