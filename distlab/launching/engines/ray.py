"""Ranks on a Ray cluster: what can be said of it, as the `engine` of a launch."""

from collections.abc import Mapping
from dataclasses import dataclass

from distlab.errors import check_flag, did_you_mean, shown
from distlab.launching.kernel.arguments import check_text, check_timeout

_STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")


@dataclass(frozen=True, kw_only=True)
class Ray:
    """A Ray cluster, for `launch(..., engine=Ray())`: one that runs, or one of its own.

    Args:
        address: Of a running cluster, `"host:port"` or `"auto"`. By default the one this process
            is connected to; if there is none, one is started on this machine, for the job alone.
        resources: What Ray reserves for each rank, such as `{"CPU": 4, "GPU": 1}`, and nothing
            else; one CPU by default. `OMP_NUM_THREADS` is set to the number of CPUs. With GPUs
            each rank sees its own only.
        strategy: Ray's placement strategy: `"PACK"` fills one node after the other, `"SPREAD"`
            uses many, `"STRICT_PACK"` and `"STRICT_SPREAD"` insist.
        upload_cwd: Send the working directory (what .gitignore names is left out) and distlab to
            the nodes of the cluster at `address`, which must have all else. On a connection that
            you have made yourself, the `runtime_env` of your `ray.init` says what is sent.
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
