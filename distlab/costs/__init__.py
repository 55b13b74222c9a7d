"""What a training step takes: memory, time, and which plans fit.

    Transformer   the sizes of a model: parameters, FLOPs; from_config reads a published one
    Plan          how it is divided among devices, and what is kept
    Precision     in how many bytes; by name in PRECISIONS
    Machine       devices and links: H100_SXM; by name MACHINES["b200"] and more; or your own
    estimate      memory per device and seconds per step, with the parts of both and a range
    search        the plans that fit, best first

The formulas stand in the docstrings with their sources; docs/costs.md holds them to published runs.

Example:
    >>> from distlab import costs
    >>> plan = costs.Plan(data=64, batch=128, zero=3, attention="flash", recompute="full")
    >>> e = costs.estimate(costs.LLAMA3_8B, plan, costs.H100_SXM)
    >>> e.fits, e.bound
    (True, 'compute')
"""

from distlab.costs.estimates import Estimate, estimate
from distlab.costs.machines import A100_40GB, A100_80GB, H100_96GB, H100_SXM, MACHINES, Machine
from distlab.costs.memory import Memory, layer_activations
from distlab.costs.models import GPT3_175B, LLAMA3_8B, LLAMA3_70B, LLAMA3_405B, Transformer
from distlab.costs.plans import PRECISIONS, Plan, Precision
from distlab.costs.searching import search
from distlab.costs.times import StepTime

__all__ = [
    "A100_40GB",
    "A100_80GB",
    "GPT3_175B",
    "H100_96GB",
    "H100_SXM",
    "LLAMA3_8B",
    "LLAMA3_70B",
    "LLAMA3_405B",
    "MACHINES",
    "PRECISIONS",
    "Estimate",
    "Machine",
    "Memory",
    "Plan",
    "Precision",
    "StepTime",
    "Transformer",
    "estimate",
    "layer_activations",
    "search",
]


def __dir__() -> list[str]:
    """What completion offers."""
    return list(__all__)
