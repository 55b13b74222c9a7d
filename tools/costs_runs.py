"""Published runs beside their estimates: tests/published_runs.json, read and worked out.

`python tools/costs_runs.py` fits the rates in `distlab.costs` again, to the runs marked as fitted,
and prints them, to be rounded and written into distlab/costs by hand.
"""

import json
from dataclasses import dataclass, replace
from math import log
from pathlib import Path
from typing import Any

from scipy.optimize import least_squares  # type: ignore[import-untyped]

from distlab import costs
from distlab.costs import kernels
from distlab.costs.machines import MACHINES
from distlab.costs.times import step_time

DATA: dict[str, Any] = json.loads(
    (Path(__file__).resolve().parent.parent / "tests" / "published_runs.json").read_text()
)
SHARED = ("STREAM", "BUS", "BESIDE")
"""Fitted rates of all machines, in distlab.costs.kernels."""
OWN = ("a100", "h100", "h100-96gb")
"""Machines with fitted rates of their own: `matmul` and `flash`."""
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


def runs() -> list[Run]:
    """Every published run with its estimate."""
    return [_run(row, DATA["models"][row["model"]]) for row in DATA["runs"]]


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


def _error(rates: list[float], run: Run) -> float:
    """The logarithm of our time over the published one, with these rates."""
    for name, rate in zip(SHARED, rates, strict=False):
        setattr(kernels, name, rate)
    e = run.estimate
    own = next(i for i, name in enumerate(OWN) if MACHINES[name].name == e.machine.name)
    matmul, flash = rates[len(SHARED) + 2 * own :][:2]
    machine = replace(e.machine, matmul=matmul, flash=flash)
    return log(step_time(e.model, e.plan, machine) / run.seconds)


def fitted() -> dict[str, float]:
    """The rates that fit the runs marked as fitted best."""
    known = [run for run in runs() if run.fitted]
    first = {name: getattr(kernels, name) for name in SHARED}
    for name in OWN:
        first |= {f"{name} {rate}": getattr(MACHINES[name], rate) for rate in ("matmul", "flash")}
    # One run alone can't tell two rates apart: attention on both H100 is held near the same rate.
    found = least_squares(
        lambda rates: [*(_error(rates, run) for run in known), rates[8] - 0.95 * rates[6]],
        list(first.values()),
        loss="soft_l1",
        f_scale=0.05,
    ).x
    return dict(zip(first, found, strict=True))


if __name__ == "__main__":
    for name, rate in fitted().items():
        print(f"{name:20} {rate:.3f}")
