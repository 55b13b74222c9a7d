"""Two things that go wrong in silence, and that `lint` says: each a kind and a message."""

import sys
from collections.abc import Iterator
from typing import Any

from distlab.layouts.rules import MATCH, Rules


def batch_not_first(rules: Rules, batch: str) -> Iterator[tuple[str, str]]:
    """A mesh over processes, each of which would take its part of a batch for all of it."""
    first = next((name for name, size in rules.mesh.axes if size > 1), batch)
    jax = sys.modules.get("jax") if rules.how != MATCH else None  # Keras distributes on JAX alone
    if first != batch and jax and jax.process_count() > 1:
        yield (
            "mesh",
            f"The mesh is over {jax.process_count()} processes and begins with {first!r}: Keras "
            f"takes each process's part of a batch for the whole. Let it begin with {batch!r}.",
        )


def untied(model: Any) -> Iterator[tuple[str, str]]:
    """Weights with the very numbers of an embedding's, one of them a DTensor at least.

    `parallelize_module` makes two of a weight that an embedding and a head have in common. Their
    numbers stay the same until the first step, so this finds them before it, and communicates
    nothing.
    """
    named = [
        (f"{name}.{own}".lstrip("."), weight, hasattr(module, "num_embeddings"))
        for name, module in model.named_modules()
        for own, weight in module.named_parameters(recurse=False)
    ]
    embeddings = [(name, weight) for name, weight, embeds in named if embeds]
    others = [(name, weight) for name, weight, embeds in named if not embeds]
    for embedding, own in embeddings:
        for name, weight in others:
            if weight is not own and weight.shape == own.shape and _same_numbers(own, weight):
                message = (
                    f"{embedding!r} and {name!r} have the same numbers, but are two weights: if "
                    "they were tied, tie them again after parallelize_module."
                )
                yield "untied", message


def _same_numbers(one: Any, other: Any) -> bool:
    sharded = next((each for each in (one, other) if hasattr(each, "to_local")), None)
    if sharded is None or one.is_meta or other.is_meta:
        return False
    from torch.distributed.tensor import distribute_tensor

    parts = []
    for weight in (one.detach(), other.detach()):
        if not hasattr(weight, "to_local"):
            mesh, placements = sharded.device_mesh, sharded.placements
            weight = distribute_tensor(weight, mesh, placements, src_data_rank=None)
        elif weight.placements != sharded.placements:
            return False
        parts.append(weight.to_local())
    first, second = parts
    varied = first.numel() > 1 and bool(first.min() < first.max())  # as zeros and ones are not
    return varied and bool((first == second).all())
