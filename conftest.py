"""For pytest-xdist: a notebook's cells share one kernel, so with `-n` a file stays together."""

from typing import Any

import pytest


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out whole files to the workers, whatever `--dist` says."""
    from xdist.scheduler import LoadFileScheduling

    return LoadFileScheduling(config, log)
