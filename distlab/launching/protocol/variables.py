"""Environment variables: which can be set at all, and which a rank must not inherit."""

import re
from collections.abc import Mapping

from distlab.errors import shown

STALE = re.compile(
    r"(TF_CONFIG|MASTER_(ADDR|PORT)|(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|ROLE_NAME"
    r"|TORCHELASTIC_.*|JAX_COORDINATOR_.*|JAX_(NUM_PROCESSES|PROCESS_ID)|KERAS_DISTRIBUTION_.*)"
)
"""Variables of another group, which a new rank must not inherit."""
SCHEDULED = re.compile(
    r"SLURM_(PROCID|LOCALID|NODEID|GTIDS|NTASKS|NPROCS|STEP_(NUM_TASKS|TASKS_PER_NODE|NODELIST))"
    r"|OMPI_(COMM_WORLD|UNIVERSE|FIRST)_.*|PMIX?_.*|MPI_LOCAL.*"
)
"""Variables by which srun or mpirun tells a task its place: a kernel that is one, not its ranks."""


def check_environment(env: Mapping[str, str] | None, called: str = "env") -> dict[str, str]:
    """Return `env` as a dict if the system can set such variables; None has none.

    Args:
        env: The variables.
        called: The argument's name.
    """
    if env is None:
        return {}
    if not isinstance(env, Mapping):
        raise TypeError(f'{called} must be a dict such as {{"NAME": "value"}}, not {shown(env)}.')
    for name, value in env.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(
                f"{called} maps names to strings, but {name!r} is set to {shown(value)}: "
                f"write {{{str(name)!r}: {shown(str(value))}}}."
            )
        if not name or "=" in name or "\0" in name + value:
            raise ValueError(
                f"{called} cannot hold {name!r}: no '=' or NUL in a name, no NUL in a value."
            )
    return dict(env)
