"""Notebooks under pytest: each in one kernel, and skipped where what it needs is missing."""

from importlib.util import find_spec
from typing import Any

import pytest


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out whole files to the workers of `-n`, whatever `--dist` says: cells share a kernel."""
    from xdist.scheduler import LoadFileScheduling

    return LoadFileScheduling(config, log)


NEEDS = {"13_beyond_one_machine.ipynb": ("ray", "Ray is not installed: pip install 'distlab[ray]'")}
"""What a notebook imports that the other extras do not bring, and why it is skipped without."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the cells of notebooks whose extra is not installed."""
    for item in items:
        module, reason = NEEDS.get(item.path.name, (None, ""))
        if module is not None and find_spec(module) is None:
            item.add_marker(pytest.mark.skip(reason=reason))
