"""How a whole run is shared out: as many workers as memory allows, whole files, long ones first."""

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import joblib
import psutil
import pytest

ROOT = Path(__file__).resolve().parent.parent
SECONDS = ROOT / "tests" / "seconds.json"
"""How long each file takes; `--store-seconds` writes it anew after a run."""
WORKER_MEMORY = 3.5 * 10**9
"""Bytes that a worker may need; two have taken 6.4 GB together."""
UNKNOWN = 10.0
"""Seconds for a file that is not listed yet."""


def free_memory() -> int:
    """Bytes that may still be used, on this machine or in this container."""
    free = psutil.virtual_memory().available
    group = Path("/sys/fs/cgroup")
    try:
        most = (group / "memory.max").read_text().strip()
        used = int((group / "memory.current").read_text())
    except (OSError, ValueError):
        return free
    return free if most == "max" else min(free, int(most) - used)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more worker than cores, since many tests wait, as far as memory goes."""
    return max(1, min(joblib.cpu_count() + 1, int(free_memory() // WORKER_MEMORY)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out whole files, whatever `--dist` says: a notebook's cells share a kernel."""
    from xdist.scheduler import LoadFileScheduling

    config.option.loadscopereorder = False  # the order is that of `Schedule`
    return LoadFileScheduling(config, log)


def file_of(nodeid: str) -> str:
    """The file that a test is in."""
    return nodeid.partition("::")[0]


def known_seconds() -> dict[str, float]:
    """How long each file took, where it was last looked at."""
    found: dict[str, float] = json.loads(SECONDS.read_text()) if SECONDS.exists() else {}
    return found


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a worker: the files that take long come first, so that no worker is left with one.

    The tests of one file keep their order.
    """
    if hasattr(config, "workerinput"):
        seconds = known_seconds()
        files = [file_of(item.nodeid) for item in items]
        places = {file: (-seconds.get(file, UNKNOWN), file) for file in files}
        items.sort(key=lambda item: places[file_of(item.nodeid)])


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--store-seconds`."""
    parser.addoption(
        "--store-seconds", action="store_true", help="write tests/seconds.json after the run"
    )


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Store what each file took, if that was asked for."""
    if config.getoption("store_seconds"):
        took: Counter[str] = Counter()
        for report in itertools.chain.from_iterable(terminalreporter.stats.values()):
            if hasattr(report, "duration") and not hasattr(report, "context"):  # a part of a test
                took[file_of(report.nodeid)] += report.duration
        known = known_seconds() | {file: round(seconds, 1) for file, seconds in took.items()}
        known = {file: known[file] for file in sorted(known) if (ROOT / file).exists()}
        SECONDS.write_text(json.dumps(known, indent=1) + "\n")
