"""What the benchmarks print: a Markdown table of medians, each beside a peer's, with a bound."""

import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil

SHOWN = {"s": "{:.2f} s", "ms": "{:.2f} ms", "MB": "{:,.0f} MB", "of it": "{:.2f}"}
SCALE = {"s": 1, "ms": 1e3, "MB": 1e-6, "of it": 1}


@dataclass
class Row:
    """One line of the table: medians in seconds, or in bytes where the unit is MB."""

    what: str
    ours: float
    peer: float | None
    peer_name: str
    bound: str
    good: bool | None
    unit: str = "s"

    def __str__(self) -> str:
        def show(value: float | None) -> str:
            return "" if value is None else SHOWN[self.unit].format(value * SCALE[self.unit])

        ratio = "" if self.peer is None else f"{self.ours / self.peer:.3g}"
        verdict = {True: "yes", False: "**no**", None: ""}[self.good]
        cells = [self.what, show(self.ours), self.peer_name, show(self.peer), ratio, self.bound]
        return f"| {' | '.join([*cells, verdict])} |"


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def median(action: Callable[[], object], repeat: int) -> float:
    return statistics.median(seconds(action) for _ in range(repeat))


def show(measure: Callable[[], list[Row]]) -> None:
    """Print the machine and what is measured; exit with 1 if a bound does not hold."""
    cores, memory = psutil.cpu_count(), psutil.virtual_memory().total
    machine = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    print(f"{cores} cores, {memory / 2**30:.0f} GiB, {machine}\n")
    print("| what | here | peer | | ratio | must be | holds |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    rows = measure()
    print(*rows, sep="\n")
    sys.exit(any(row.good is False for row in rows))
