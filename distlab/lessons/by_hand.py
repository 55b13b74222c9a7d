"""Data parallelism, ZeRO-1, tensor parallelism and a pipeline, with only `torch.distributed`.

Each function is given a model of linear layers with ReLUs between them, the same on every rank, and
a mesh with one axis, of all ranks. It returns what a training loop needs: the model, or this rank's
part of it; the mesh over which batches are divided, or None for full batches; and, where the loop
can't call `loss.backward()` itself, a function that does one forward and backward pass and returns
the loss; and an optimizer, where the loop can't make it. Lessons 17 to 19 explain each.
"""

import math
from typing import Any

__all__ = ["all_reduce", "pipeline", "tensor", "zero_1"]


def all_reduce(model: Any, mesh: Any) -> tuple[Any, ...]:
    """Average each gradient as soon as the backward pass has computed it."""
    import torch.distributed as dist

    def average(weight: Any) -> None:
        dist.all_reduce(weight.grad)
        weight.grad /= mesh.size()

    for weight in model.parameters():
        weight.register_post_accumulate_grad_hook(average)
    return model, mesh


def zero_1(model: Any, mesh: Any, **options: float) -> tuple[Any, ...]:
    """Keep the momentum of a part of the weights; the options are SGD's."""
    import torch
    import torch.distributed as dist
    from torch.nn.functional import cross_entropy, pad
    from torch.nn.utils import parameters_to_vector, vector_to_parameters

    weights, ranks = list(model.parameters()), mesh.size()

    def flat(tensors: Any) -> Any:
        vector = parameters_to_vector(tensors).detach()
        return pad(vector, (0, -len(vector) % ranks))

    full = flat(weights)
    vector_to_parameters(full, weights)  # views: they change when full does
    mine = torch.nn.Parameter(full.chunk(ranks)[mesh.get_rank()])
    optimizer = torch.optim.SGD([mine], **options)
    optimizer.register_step_post_hook(lambda *_: dist.all_gather_into_tensor(full, mine.detach()))

    def backward(images: Any, labels: Any) -> float:
        loss = cross_entropy(model(images), labels)
        gradients = flat(torch.autograd.grad(loss, weights))
        mine.grad = torch.empty_like(mine)
        dist.reduce_scatter_tensor(mine.grad, gradients / ranks)
        return float(loss.item())

    return model, mesh, backward, optimizer


def tensor(model: Any, mesh: Any) -> tuple[Any, ...]:
    """Shard layers by columns and by rows in turn."""
    import torch
    import torch.distributed as dist

    def all_reduced(tensor: Any) -> Any:
        total = tensor.clone()
        dist.all_reduce(total)
        return total

    class Enter(torch.autograd.Function):  # type: ignore[misc]
        forward = staticmethod(lambda _, x: x.view_as(x))
        backward = staticmethod(lambda _, gradient: all_reduced(gradient))

    class Leave(torch.autograd.Function):  # type: ignore[misc]
        forward = staticmethod(lambda _, x: all_reduced(x))
        backward = staticmethod(lambda _, gradient: gradient)

    def part(weight: Any, dim: int) -> Any:
        mine = weight.detach().chunk(mesh.size(), dim)[mesh.get_rank()]
        return torch.nn.Parameter(mine.clone())

    layers = list(model[::2])
    for columns, rows in zip(layers[::2], layers[1::2], strict=True):
        columns.weight, columns.bias = part(columns.weight, 0), part(columns.bias, 0)
        columns.register_forward_pre_hook(lambda _, x: Enter.apply(*x))
        rows.weight = part(rows.weight, 1)
        rows.forward = lambda x, rows=rows: Leave.apply(x @ rows.weight.T) + rows.bias
    return model, None


def pipeline(model: Any, mesh: Any, micro: int = 8) -> tuple[Any, ...]:
    """Give each rank one layer; pass micro-batches forward, then gradients backward."""
    import torch
    import torch.distributed as dist
    from torch.nn.functional import cross_entropy

    rank, last = mesh.get_rank(), mesh.size() - 1
    part = model[2 * rank : 2 * rank + 2]

    def backward(images: Any, labels: Any) -> float:
        pairs, losses = [], []
        for inputs, targets in zip(images.chunk(micro), labels.chunk(micro), strict=True):
            if rank > 0:
                inputs = torch.empty(len(targets), part[0].in_features)
                dist.recv(inputs, rank - 1)
                inputs.requires_grad_()
            outputs = part(inputs)
            if rank < last:
                dist.send(outputs.detach(), rank + 1)
            else:
                outputs = cross_entropy(outputs, targets) / micro
                losses.append(outputs.item())
            pairs.append((inputs, outputs))
        for inputs, outputs in pairs:
            gradient = torch.ones_like(outputs)
            if rank < last:
                dist.recv(gradient, rank + 1)
            outputs.backward(gradient)
            if rank > 0:
                dist.send(inputs.grad, rank - 1)
        return sum(losses) if losses else math.nan

    return part, None, backward
