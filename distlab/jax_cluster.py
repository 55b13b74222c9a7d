"""What JAX ranks need beside variables: `jax.distributed.initialize()` without arguments."""

import functools
import os

from distlab.ports import HOST

_announced = False


def announce(listen: str | None = HOST) -> None:
    """Make JAX detect distlab's ranks as it detects those of Slurm or Open MPI.

    JAX asks each known subclass of its `ClusterEnv` whether it recognises the environment. The
    class is not exported; without it, the arguments are in `JAX_COORDINATOR_ADDRESS`,
    `JAX_NUM_PROCESSES` and `JAX_PROCESS_ID`, which this reads too.

    Args:
        listen: The address on which JAX's CPU collectives listen; None for where the machine's
            host name leads, JAX's own choice.
    """
    global _announced
    if _announced:
        return
    from jax._src import clusters

    class DistlabCluster(clusters.ClusterEnv):  # type: ignore[misc]
        name = "distlab"

        @classmethod
        def is_env_present(cls) -> bool:
            return "JAX_PROCESS_ID" in os.environ

        @classmethod
        def get_coordinator_address(cls, **_: object) -> str:
            return os.environ["JAX_COORDINATOR_ADDRESS"]

        @classmethod
        def get_process_count(cls) -> int:
            return int(os.environ["JAX_NUM_PROCESSES"])

        @classmethod
        def get_process_id(cls) -> int:
            return int(os.environ["JAX_PROCESS_ID"])

    # First in line: a job inside a Slurm allocation is still distlab's own group.
    known = clusters.ClusterEnv._cluster_types
    known.insert(0, known.pop())
    if listen is not None:
        _listen_on(listen)
    _announced = True


def _listen_on(address: str) -> None:
    """Have JAX's CPU collectives listen on an address of this machine.

    They listen where the machine's host name leads, which may be another network, this machine
    alone, or nowhere; JAX has no setting for it.
    """
    from jaxlib import _jax

    make = _jax.make_gloo_tcp_collectives
    _jax.make_gloo_tcp_collectives = functools.partial(make, hostname=address)
