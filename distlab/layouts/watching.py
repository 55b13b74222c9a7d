"""Watch what PyTorch communicates, with its own `CommDebugMode`, and how many bytes.

`CommDebugMode` counts the calls. The bytes, and the devices that take part, are in the arguments
of the very operations that it counts.
"""

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from distlab.layouts.communication import SHARES, Collective, Communication, axes_of_groups
from distlab.layouts.readers import mesh_of
from distlab.layouts.view import Mesh


@dataclass
class Watch:
    """What has been seen so far; complete when its `with` block has ended.

    Attributes:
        collectives: Each collective, in the order in which this rank joined it.
        mesh: The mesh whose axes are named, or None.
    """

    mesh: Mesh | None = None
    collectives: list[Collective] = field(default_factory=list)

    @property
    def communication(self) -> Communication:
        """What was communicated, per rank."""
        return Communication(tuple(self.collectives), self.mesh)


@contextlib.contextmanager
def watch(mesh: Any = None) -> Iterator[Watch]:
    """Watch what this rank's PyTorch code communicates while the block runs.

    Sees DistributedDataParallel, FSDP, tensor parallelism and collectives called by hand. Sends
    and receives between two ranks are not collectives and are not seen.

    Args:
        mesh: The device mesh whose axes to name.

    Yields:
        A `Watch`; its `communication` is the table.

    Example:
        In a rank, with a model wrapped in DistributedDataParallel::

            with collectives.watch() as seen:
                model(x).sum().backward()
            seen.communication.select("all-reduce").payload
    """
    from torch.distributed.tensor.debug import CommDebugMode

    seen = Watch(None if mesh is None else mesh_of(mesh))

    class Recorder(CommDebugMode):  # type: ignore[misc]
        def __enter__(self) -> Any:
            super().__enter__()
            # It hooks modules too, to count for each by its name. Where two have one name, as
            # Keras' layers do, a hook stays behind and breaks the next forward pass.
            self.advanced_module_tracker.__exit__(None, None, None)
            return self

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            before = self.get_total_counts()
            out = super().__torch_dispatch__(func, types, args, kwargs)
            if self.get_total_counts() > before:
                seen.collectives.append(_collective(func, args, out, seen.mesh))
            return out

    with Recorder():
        yield seen


def _collective(operation: Any, args: Any, out: Any, mesh: Mesh | None) -> Collective:
    import torch

    library, name = str(operation).split(".")[:2]
    # Variants of an operation begin with its name: allreduce_coalesced_, _reduce_scatter_base_.
    plain = re.sub(r"[^a-z]", "", name).removesuffix("coalesced")
    kind = next(kind for kind in SHARES if plain.startswith(kind.replace("-", "")))
    # c10d's operations write into their first argument, the functional ones return the result.
    held = args[0] if library == "c10d" else out
    tensors = tuple(
        (str(t.dtype).removeprefix("torch."), tuple(t.shape))
        for t in torch.utils._pytree.tree_leaves(held)
        if isinstance(t, torch.Tensor)
    )
    ranks = _ranks(args)
    labels = [f"rank {rank}" for rank in ranks]
    axes: tuple[str, ...] = ()
    if mesh is not None and set(labels) <= set(mesh.devices):
        axes = axes_of_groups([list(map(mesh.devices.index, labels))], mesh)
    return Collective(kind, axes, len(ranks), tensors)


def _ranks(args: Any) -> list[int]:
    """The ranks of the process group among an operation's arguments."""
    import torch
    import torch.distributed as dist

    for arg in args:
        if isinstance(arg, torch.ScriptObject) and "ProcessGroup" in str(arg._type()):
            return list(dist.get_process_group_ranks(dist.ProcessGroup.unbox(arg)))
    names = [arg for arg in args if isinstance(arg, str)]
    group = torch.distributed.distributed_c10d._resolve_process_group(names[-1])
    return list(dist.get_process_group_ranks(group))
