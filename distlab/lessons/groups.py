"""Ranks that form a process group of PyTorch, for lessons that write the communication by hand."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from distlab.launching.launch import run

__all__ = ["on_ranks"]

RANKS = 4


def on_ranks(
    function: Callable[..., Any],
    *args: Any,
    nprocs: int = RANKS,
    limit: float = 60.0,
    meet: bool = True,
    **kwargs: Any,
) -> list[Any]:
    """Calls a function on ranks that form a group of gloo, and returns the list of their results.

    In a script that torchrun starts, each rank would do the same: `init_process_group`, the
    function, `destroy_process_group`. Here each rank computes with one thread.

    Args:
        function: What each rank calls.
        *args: Its arguments.
        nprocs: The number of ranks.
        limit: Seconds after which a send, a receive or a collective of the group fails.
        meet: Whether the ranks wait for each other at the end, so that none leaves while others
            still communicate. After an error that the function catches they cannot.
        **kwargs: Further arguments of the function.

    Raises:
        RankError: If a rank fails.
        JobTimeoutError: If the job takes longer than two minutes.

    Example:
        >>> on_ranks(lambda: torch.distributed.get_rank(), nprocs=2)
        [0, 1]
    """

    def work() -> Any:
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
        dist.init_process_group("gloo", timeout=timedelta(seconds=limit))
        dist.barrier()  # all are connected before one of them can fail
        result = function(*args, **kwargs)
        if meet:
            dist.barrier()
            dist.destroy_process_group()
        return result

    return run(work, nprocs, "torch", quiet=True, timeout=120)
