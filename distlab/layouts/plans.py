"""Check the plan of PyTorch's `parallelize_module` against the module it is for."""

from fnmatch import fnmatch
from typing import Any

from distlab.layouts.drawing import bytes_text
from distlab.layouts.findings import ERROR, WARNING, Finding, nearest, size_of
from distlab.layouts.readers import layout_of, mesh_of

# The dimension of the weight that each style splits.
# https://docs.pytorch.org/docs/stable/distributed.tensor.parallel.html
_SPLITS = {
    ("ColwiseParallel", "Linear"): 0,
    ("RowwiseParallel", "Linear"): 1,
    ("ColwiseParallel", "Embedding"): 1,
    ("RowwiseParallel", "Embedding"): 0,
}


def check_plan(module: Any, plan: Any, mesh: Any, large: int) -> tuple[list[Finding], str]:
    """Find entries of a plan that match nothing or do not fit, and big parameters left whole.

    Args:
        module: A `torch.nn.Module`, parallelized already or not.
        plan: Names of submodules, with `*` for any part of a name, and their styles.
        mesh: The one-dimensional device mesh, or None.
        large: From how many bytes on a parameter should not stay whole.

    Returns:
        The findings, and what they are about in words.

    Raises:
        TypeError: If the plan is not a dict.
        ValueError: If the mesh has several axes.
    """
    if not isinstance(plan, dict):
        raise TypeError(
            "For a PyTorch module give the plan of parallelize_module, a dict of styles by the "
            f"submodules' names, not {type(plan).__name__}."
        )
    view = None if mesh is None else mesh_of(mesh)
    if view is not None and len(view.axes) != 1:
        raise ValueError(f"parallelize_module takes a mesh with one axis, not {view}.")
    modules = {name: m for name, m in module.named_modules() if name}
    findings, governed = [], set()
    for key, style in plan.items():
        matched = [name for name in modules if _matches(key, name)] if key else [""]
        if not matched:
            message = f"{key!r} matches no submodule, so it does nothing."
            findings.append(Finding(ERROR, "unmatched", message + nearest(key, list(modules)), key))
        for name in matched:
            governed.add(name)
            part = modules.get(name, module)
            findings += _check_part(key, style, name, part, len(view.devices) if view else 1)
    for name, parameter in module.named_parameters():
        whole = not hasattr(parameter, "placements") or layout_of(parameter).is_whole
        size = size_of(parameter)
        if whole and size >= large and not _below(name, governed):
            message = (
                f"{name!r} ({bytes_text(size)}) is whole on every rank: nothing in the plan "
                "splits it."
            )
            findings.append(Finding(WARNING, "replicated", message, paths=(name,)))
    about = f"{len(modules)} submodules, {len(plan)} entries in the plan"
    return findings, f"{about}, mesh {view}" if view else about


def _matches(key: str, name: str) -> bool:
    keys, names = key.split("."), name.split(".")
    return len(keys) == len(names) and all(map(fnmatch, names, keys))


def _below(parameter: str, modules: set[str]) -> bool:
    return any(not name or parameter.startswith(f"{name}.") for name in modules)


def _check_part(key: str, style: Any, name: str, part: Any, ranks: int) -> list[Finding]:
    kind = type(style).__name__
    if kind not in ("ColwiseParallel", "RowwiseParallel"):
        return []
    bases = [base.__name__ for base in type(part).__mro__]
    dimension = next((_SPLITS[kind, base] for base in bases if (kind, base) in _SPLITS), None)
    if dimension is None:
        message = (
            f"{kind} is for Linear and Embedding, but {name!r}, which {key!r} matches, is a "
            f"{bases[0]}."
        )
        return [Finding(ERROR, "unsupported", message, key, (name,))]
    size = part.weight.shape[dimension]
    if size % ranks:
        message = (
            f"{key!r} splits dimension {dimension} of {name + '.weight'!r}, of size {size}, over "
            f"{ranks} ranks, which then hold unequal parts."
        )
        return [Finding(WARNING, "indivisible", message, key, (name,))]
    return []
