"""Ranks on a Ray cluster: what can be said of it, as the `engine` of a launch."""

import importlib.util
import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from distlab.errors import check_flag, did_you_mean, of_type, shown
from distlab.launching.kernel.arguments import check_text, check_timeout
from distlab.launching.kernel.client import Client

_SETTING = re.compile(r"(KERAS|TF|XLA|JAX|PYTORCH|TORCH|NCCL|GLOO|DTENSOR|GRPC|TFDS|DISTLAB)_.*")
"""Variables that travel with a job to other nodes: what frameworks are told by."""
_STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")


@dataclass(frozen=True, kw_only=True)
class Ray:
    """A Ray cluster that runs already, for `launch(..., engine=Ray())`.

    Args:
        address: Of a running cluster, `"host:port"` or `"auto"`. By default the one this process
            is connected to, or else one that runs on this machine.
        resources: What Ray reserves for each rank, such as `{"CPU": 4, "GPU": 1}`, and nothing
            else; one CPU by default. `OMP_NUM_THREADS` is set to the number of CPUs. With GPUs
            each rank sees its own only.
        strategy: Ray's placement strategy: `"PACK"` fills one node after the other, `"SPREAD"`
            uses many, `"STRICT_PACK"` and `"STRICT_SPREAD"` insist.
        upload_cwd: Send the working directory (what .gitignore names is left out) and distlab to
            the nodes, which must have all else. Where the cluster is that of a connection you have
            made yourself, the `runtime_env` of your `ray.init` says what is sent.
        placement_timeout: How many seconds to wait until the cluster has room; None, for ever.

    Raises:
        TypeError: If there is no such option, or it is of another type.
        ValueError: If an option is out of range.

    Example:
        >>> import distlab
        >>> distlab.Ray(resources={"CPU": 2}, strategy="SPREAD")
        Ray(address=None, resources={'CPU': 2}, strategy='SPREAD', upload_cwd=True, ...)
    """

    address: str | None = None
    resources: Mapping[str, float] | None = None
    strategy: str = "PACK"
    upload_cwd: bool = True
    placement_timeout: float | None = 60.0

    def __post_init__(self) -> None:
        check_text(self.address, "address", "host:6379")
        check_flag(self.upload_cwd, "upload_cwd")
        check_timeout(self.placement_timeout, "placement_timeout")
        if self.strategy not in _STRATEGIES:
            expected = ", ".join(map(repr, _STRATEGIES))
            raise ValueError(
                f"strategy is {shown(self.strategy)}; expected one of {expected}."
                + did_you_mean(self.strategy, _STRATEGIES)
            )
        if not isinstance(self.resources, Mapping | None):
            raise TypeError(
                f'resources is a dict such as {{"CPU": 2}}, not {shown(self.resources)}.'
            )
        for name, amount in self.needs.items():
            if isinstance(amount, bool) or not isinstance(amount, int | float) or not amount > 0:
                raise ValueError(f"resources has {name!r}: {amount!r}; expected a number above 0.")
            if name not in ("CPU", "GPU") and name.upper() in ("CPU", "GPU"):
                raise ValueError(f"resources has {name!r}; Ray calls that {name.upper()!r}.")

    @property
    def needs(self) -> dict[str, float]:
        """What Ray reserves for each rank."""
        return dict(self.resources or {"CPU": 1})


def check_engine(engine: object, start: object) -> Ray:
    """The engine of a launch: a `Ray`, or its name, which then has no options.

    Raises:
        TypeError: If that is no engine.
        ValueError: If there is no engine of that name, or if some ranks are to start later.
        ModuleNotFoundError: If the package it is built on is not installed.
    """
    expected = "expected None, for this machine, 'ray', or a distlab.Ray() with options"
    if isinstance(engine, str) and engine != "ray":
        slurm = " On Slurm, submit the function with submitit: see docs/engines.md."
        hint = slurm if engine.lower() == "slurm" else did_you_mean(engine, ["ray"])
        raise ValueError(f"engine is {shown(engine)}; {expected}.{hint}")
    if not isinstance(engine, Ray | str):
        what = "the class Ray itself" if engine is Ray else of_type(engine)
        raise TypeError(f"engine is {what}; {expected}.")
    if start is not None:
        raise ValueError("On Ray all ranks start together: leave start= out.")
    if importlib.util.find_spec("ray") is None:
        raise ModuleNotFoundError(
            "The engine Ray needs the package ray, which is not installed. Install it with: "
            "pip install 'distlab[ray]'",
            name="ray",
        )
    return Ray() if isinstance(engine, str) else engine


class RayClient(Client):
    """The driver of one job on a Ray cluster; see `ray_driver`.

    Args:
        engine: Where to place the ranks.
        fork: Whether ranks may be forked from their supervisor.
        directory: What to send to the nodes.
    """

    local = False

    def __init__(self, engine: Ray, fork: bool, directory: str) -> None:
        options = asdict(engine) | {"resources": engine.needs}
        settings = {k: v for k, v in os.environ.items() if _SETTING.fullmatch(k)}
        settings["OMP_NUM_THREADS"] = str(max(1, int(engine.needs.get("CPU", 1))))
        environment: dict[str, Any] = {}
        ray = sys.modules.get("ray")
        if engine.address is None and ray is not None and ray.is_initialized():
            context = ray.get_runtime_context()
            options["address"] = context.gcs_address
            environment = context.runtime_env.to_dict()
        elif engine.upload_cwd:
            distlab = str(Path(__file__).parents[2])
            environment = {"working_dir": directory, "py_modules": [distlab]}
        environment["env_vars"] = settings | environment.get("env_vars", {})
        words = (json.dumps(options), json.dumps(environment), "fork" * fork, str(os.getpid()))
        super().__init__("engines.ray_driver", words, os.environ, "Ray is being connected to")
