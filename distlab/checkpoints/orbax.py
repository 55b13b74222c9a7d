"""Orbax saves with all processes to one path, and cannot where each has a path of its own."""

import contextlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

_MET = "/jax/checkpoint/sync_global_devices_duration_sec"
"""What Orbax tells JAX's listeners each time that all its processes have met."""


@contextlib.contextmanager
def refused(target: Path) -> Iterator[None]:
    """Within it a save by Orbax fails on every rank when all have begun to, in place of a hang."""
    if (jax := sys.modules.get("jax")) is None:
        yield
        return
    thread = threading.get_ident()

    def hear(event: str, _seconds: float, **_: object) -> None:
        # What it still writes in threads of its own was begun before, to another path.
        if event == _MET and threading.get_ident() == thread:
            raise RuntimeError(
                "Orbax cannot save within replacing(): its processes wait for one another at one "
                f"path, and each has its own here. Nothing was saved. Let all ranks save to "
                f"{str(target)!r} itself, outside the block; or give them a CheckpointManager, "
                "which keeps an older checkpoint until the new one is complete."
            )

    jax.monitoring.register_event_duration_secs_listener(hear)
    try:
        yield
    finally:
        jax.monitoring.unregister_event_duration_listener(hear)
