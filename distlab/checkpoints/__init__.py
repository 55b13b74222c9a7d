"""Who writes a checkpoint where: the chief to the real path, every other rank to a temporary one.

Saving a distributed model is a joint act: a variable may have to be reduced over all replicas
before it can be read, so every rank has to call `save`, and each needs a path of its own, or they
write over one another. What the chief wrote is kept, with the shards of the others where each rank
writes files of its own. Who is chief is `tf.distribute`'s rule:
https://www.tensorflow.org/tutorials/distribute/multi_worker_with_keras#model_saving_and_loading
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from distlab.checkpoints import orbax
from distlab.checkpoints.saving import Save
from distlab.errors import check_path
from distlab.ranks import rank_info

__all__ = ["is_chief", "replacing"]


def __dir__() -> list[str]:
    return list(__all__)


def is_chief() -> bool:
    """Say whether this process is the one whose checkpoint counts.

    It is rank 0 by `distlab.rank_info`, whoever has started the ranks. With `TF_CONFIG` that is the
    task of type chief (or its old name, master), or worker 0 where the cluster has none.

    Raises:
        ValueError: If the variables that tell the rank cannot be understood.

    Example:
        >>> from distlab import checkpoints
        >>> checkpoints.is_chief()  # no cluster: one process, which is its own chief
        True
    """
    return rank_info().rank == 0


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Save to a temporary path; what was written takes `path`'s place when all of it is there.

    Whoever reads `path` finds the old file or directory or the new one, whole: not half of either,
    even if this process is killed meanwhile. What counts is what the chief wrote, and with it what
    the other ranks have written and the chief has not: the shards of a checkpoint, as of
    `torch.distributed.checkpoint`. The chief waits for all that have begun to save, and they wait
    until it is done. If its block raises, or a rank with shards fails, all is as before.

    The chief may save alone. It cannot know that others are to come: the first time that it saves a
    directory it gives them five seconds to begin, and later only if they did. Ranks that write
    shards without a word to one another should therefore meet within the block (a barrier).

    On other systems than Linux a directory is replaced in two steps, between which a reader finds
    none.

    Not for Orbax (`orbax-checkpoint`) on several ranks: its processes wait for one another at one
    path, so let all save to `path` itself; it puts a checkpoint into its place whole without help.

    Args:
        path: A file or a directory, there already or not. Its parents are made. Shards take a file
            system that all ranks see, and that has locks (`flock`).

    Yields:
        The path to save to: in a directory of this rank's own, with the name of `path`.

    Raises:
        TypeError: If `path` is no path.
        ValueError: If `path` names no file, or the variables that tell the rank are not understood.
        FileNotFoundError: If the block ends and nobody saved anything there.
        RuntimeError: If files were written that cannot take `path`'s place, or the chief does not
            save, or not all shards are there; the message says where they are kept, and what to do.
            If Orbax saves, on several ranks; nothing is written then.
        OSError: If writing beside `path` is not possible.

    Example:
        >>> with checkpoints.replacing("run/model.keras") as own:  # doctest: +SKIP
        ...     model.save(own)
    """
    target = check_path(path, "The path to save to")
    if not target.name:
        raise ValueError(f"{str(path)!r} names no file or directory to save to.")
    save = Save(target, rank_info())
    save.enter()
    try:
        with orbax.refused(target):
            yield save.own
        save.conclude() if save.rank == 0 else save.hand_over()
    finally:
        save.leave()
