"""Environment variables that a rank must not inherit."""

import re

STALE = re.compile(
    r"(TF_CONFIG|MASTER_(ADDR|PORT)|(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|ROLE_NAME"
    r"|TORCHELASTIC_.*|JAX_COORDINATOR_.*|JAX_(NUM_PROCESSES|PROCESS_ID)|KERAS_DISTRIBUTION_.*)"
)
"""Variables of another group, which a new rank must not inherit."""
SCHEDULED = re.compile(
    r"SLURM_(PROCID|LOCALID|NODEID|GTIDS|NTASKS|NPROCS|STEP_(NUM_TASKS|TASKS_PER_NODE|NODELIST))"
    r"|OMPI_(COMM_WORLD|UNIVERSE|FIRST)_.*|PMIX?_.*|MPI_LOCAL.*|SUBMITIT_LOCAL_.*"
)
"""What srun, mpirun or submitit tells a task of its place: a kernel that is one, not its ranks."""
