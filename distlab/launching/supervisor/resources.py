"""What a rank gets of its node: cores and GPUs, and no proxy between it and its group."""

import contextlib
import math
import os
import re
from collections.abc import Iterable
from pathlib import Path

from distlab.launching.protocol.tasks import Part


def share(
    rank: int, part: Part, framework: str | None, environment: dict[str, str]
) -> dict[str, str]:
    """A rank's share of its node's cores and GPUs, unless the user has shared them out.

    Cores become thread counts. GPUs: with at least one per rank, JAX and TensorFlow, which take
    all they see, are shown one each, and torch, which picks by LOCAL_RANK, is shown all; with
    fewer they are hidden.

    Args:
        rank: Which rank.
        part: All ranks of the job on this node.
        framework: As in `Rendezvous`.
        environment: What the rank starts from; a variable set there is left alone.

    Returns:
        The variables to add.
    """
    threads = str(max(1, core_count() // len(part.ranks)))
    added = {name: threads for name in THREAD_VARIABLES if name not in environment}
    if framework == "jax" and "NPROC" not in environment:
        added["NPROC"] = threads  # XLA sizes its CPU thread pool by this
    visible = visible_gpus(environment)
    if framework is not None and visible:
        if len(visible) < len(part.ranks):
            added["CUDA_VISIBLE_DEVICES"] = "-1"
        elif framework != "torch":
            added["CUDA_VISIBLE_DEVICES"] = visible[part.ranks.index(rank)]
    return added


def unproxied(environment: dict[str, str], hosts: Iterable[str]) -> dict[str, str]:
    """The variable that keeps gRPC from asking a proxy for the ranks' hosts, if there is one.

    TensorFlow and JAX form their groups over gRPC, which otherwise sends even what is meant for
    this very machine through the proxy, and waits for ever.
    """
    if not {"grpc_proxy", "https_proxy", "http_proxy"} & set(environment):
        return {}
    others = environment.get("no_grpc_proxy") or environment.get("no_proxy")
    return {"no_grpc_proxy": ",".join(filter(None, (others, *sorted(hosts))))}


THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def core_count(groups: Path = Path("/sys/fs/cgroup")) -> int:
    """Cores this process may use, by its affinity and by the quota of its container.

    `joblib.cpu_count` says the same, but takes a tenth of a second to import.

    Args:
        groups: Where the system shows the control group of this process.
    """
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    found = [bound or 1]
    with contextlib.suppress(OSError, ValueError):  # "max", or no such file
        quota, period = (groups / "cpu.max").read_text().split()
        found.append(math.ceil(int(quota) / int(period)))
    with contextlib.suppress(OSError, ValueError):  # version 1 of control groups
        quota, period = (
            (groups / "cpu" / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period")
        )
        if int(quota) > 0:
            found.append(math.ceil(int(quota) / int(period)))
    return max(1, min(found))


def visible_gpus(environment: dict[str, str]) -> list[str]:
    """NVIDIA GPUs a process with this environment would see, as CUDA names them."""
    present = [p.name for p in Path("/dev").glob("nvidia*") if re.fullmatch(r"nvidia\d+", p.name)]
    everything = [str(index) for index in range(len(present))]
    named = environment.get("CUDA_VISIBLE_DEVICES")
    if named is None or not present:
        return everything
    return [name.strip() for name in named.split(",") if name.strip() not in ("", "-1")]
