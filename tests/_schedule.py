"""How a whole run is shared out, and told: workers, long files first, a line about what is left."""

import json
import time
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
PAUSE = 15.0
"""Seconds between two lines, where a line cannot replace the one before."""


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
    """A worker for each core, as far as memory goes."""
    return max(1, min(joblib.cpu_count(), int(free_memory() // WORKER_MEMORY)))


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


class Schedule:
    """In a worker: the files that take long come first, so that no worker is left with one."""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Sort the files; the tests of one keep their order."""
        seconds = known_seconds()

        def place(item: pytest.Item) -> tuple[float, str]:
            file = file_of(item.nodeid)
            return -seconds.get(file, UNKNOWN), file

        items.sort(key=place)


class Progress:
    """Where workers run the tests: says how much is done, and about how long the rest takes.

    Args:
        config: The run's.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._plugins = config.pluginmanager
        self._workers: int = config.getoption("numprocesses") or 1
        self._store: bool = config.getoption("store_seconds")
        self._known = known_seconds()
        self._all: Counter[str] = Counter()
        self._done: Counter[str] = Counter()
        self._took: Counter[str] = Counter()
        self._began = self._told = time.monotonic()

    def pytest_report_header(self) -> str:
        """Say how many workers there are, and why."""
        return (
            f"{self._workers} side by side, for {joblib.cpu_count()} cores and "
            f"{free_memory() / 1e9:.0f} GB of free memory ({WORKER_MEMORY / 1e9:g} GB each)"
        )

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Learn what there is to do: each worker has found the same."""
        self._all = Counter(map(file_of, ids))
        self._began = time.monotonic()

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """No dot for each test that passes."""
        if report.passed and report.when == "call":
            return "subtests passed" if hasattr(report, "context") else "passed", "", ""
        return None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up what each file takes."""
        if not hasattr(report, "context"):  # a part of a test
            self._took[file_of(report.nodeid)] += report.duration

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Count a test, and say so from time to time."""
        self._done[file_of(nodeid)] += 1
        terminal: Any = self._plugins.getplugin("terminalreporter")
        now = time.monotonic()
        if terminal.isatty:
            terminal.rewrite(self._line(now), erase=True)
        elif now - self._told > PAUSE:
            self._told = now
            terminal.write_line(self._line(now))

    def _line(self, now: float) -> str:
        lessons = [file for file in self._all if file.endswith(".ipynb")]
        over = [file for file in lessons if self._done[file] == self._all[file]]
        cells = sum(self._all[file] for file in lessons)
        tests = sum(self._all.values()) - cells
        tested = sum(self._done.values()) - sum(self._done[file] for file in lessons)
        parts = [f"{len(over)} of {len(lessons)} notebooks"] * bool(lessons)
        parts += [f"{tested} of {tests} tests"] * bool(tests)
        minutes = self._left(now) / 60
        rest = "less than a minute" if minutes < 1 else f"about {minutes:.0f} min"
        return f"  {', '.join(parts)} done, {rest} left"

    def _left(self, now: float) -> float:
        """Seconds to go, at the pace so far."""
        expected = {file: self._known.get(file, UNKNOWN) for file in self._all}
        shares = {file: self._done[file] / self._all[file] for file in self._all}
        done = sum(expected[file] * share for file, share in shares.items())
        rest = sum(expected.values()) - done
        # Before there is a pace: as it was where the seconds were taken.
        return rest * (now - self._began + 30) / (done + 30 * self._workers)

    def pytest_sessionfinish(self) -> None:
        """Store what each file took, if that was asked for."""
        if self._store:
            known = self._known | {file: round(took, 1) for file, took in self._took.items()}
            known = {file: known[file] for file in sorted(known) if (ROOT / file).exists()}
            SECONDS.write_text(json.dumps(known, indent=1) + "\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--store-seconds`."""
    parser.addoption(
        "--store-seconds", action="store_true", help="write tests/seconds.json after the run"
    )


@pytest.hookimpl(trylast=True)  # when the terminal's own plugin is there
def pytest_configure(config: pytest.Config) -> None:
    """Act in workers, and where there are some."""
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(Schedule(), "distlab-schedule")
    elif config.getoption("numprocesses", None) and config.option.verbose <= 0:
        config.pluginmanager.register(Progress(config), "distlab-progress")
