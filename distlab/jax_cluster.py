"""Let `jax.distributed.initialize()` find the group of a rank without arguments."""

import os

_announced = False


def announce() -> None:
    """Make JAX detect distlab's ranks as it detects those of Slurm or Open MPI.

    JAX asks each known subclass of its `ClusterEnv` whether it recognises the environment. The
    class is not exported; without it, the arguments are in `JAX_COORDINATOR_ADDRESS`,
    `JAX_NUM_PROCESSES` and `JAX_PROCESS_ID`, which this reads too.
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
    _announced = True
