"""The rates in `distlab.costs` anew, from the published runs that are marked as fitted.

`python tools/fit_costs.py` prints them, to be rounded and written into distlab/costs by hand.
"""

from dataclasses import replace
from math import log

from costs_runs import Run, runs
from scipy.optimize import least_squares  # type: ignore[import-untyped]

from distlab.costs import kernels
from distlab.costs.machines import MACHINES
from distlab.costs.times import step_time

SHARED = ("STREAM", "BUS", "BESIDE")
"""Rates of all machines, in distlab.costs.kernels."""
OWN = ("a100", "h100", "h100-96gb")
"""Machines with rates of their own: `matmul` and `flash`."""


def error(rates: list[float], run: Run) -> float:
    """The logarithm of our time over the published one, with these rates."""
    for name, rate in zip(SHARED, rates, strict=False):
        setattr(kernels, name, rate)
    e = run.estimate
    own = next(i for i, name in enumerate(OWN) if MACHINES[name].name == e.machine.name)
    matmul, flash = rates[len(SHARED) + 2 * own :][:2]
    return log(
        step_time(e.model, e.plan, replace(e.machine, matmul=matmul, flash=flash)) / run.seconds
    )


def main() -> None:
    """Fit and print."""
    fitted = [run for run in runs() if run.fitted]
    first = [getattr(kernels, name) for name in SHARED]
    for name in OWN:
        first += [MACHINES[name].matmul, MACHINES[name].flash]
    # One run alone can't tell two rates apart: attention on both H100 is held near the same rate.
    found = least_squares(
        lambda rates: [*(error(rates, run) for run in fitted), rates[8] - 0.95 * rates[6]],
        first,
        loss="soft_l1",
        f_scale=0.05,
    ).x
    names = [*SHARED, *(f"{name} {rate}" for name in OWN for rate in ("matmul", "flash"))]
    for name, rate in zip(names, found, strict=True):
        print(f"{name:20} {rate:.3f}")


if __name__ == "__main__":
    main()
