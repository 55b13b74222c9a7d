"""Silent errors of PyTorch: DTensor, `fully_shard` and tensor parallelism."""

from silent.row import row


def mesh():
    """A mesh of all ranks; forms the group."""
    import os

    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),))


def by_rows(rows):
    """A DTensor whose rows are sharded."""
    import torch
    from torch.distributed.tensor import Shard, distribute_tensor

    return distribute_tensor(torch.tensor(rows), mesh(), [Shard(0)])


def square():
    """A layer of four by four weights, the same everywhere."""
    import torch

    layer = torch.nn.Linear(4, 4, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.arange(16.0).reshape(4, 4).cos())
    return layer


def sharded(model):
    """`fully_shard` where there are several ranks; otherwise the model as it is."""
    from torch.distributed.fsdp import fully_shard

    over = mesh()
    return fully_shard(model, mesh=over) if over.size() > 1 else model


@row(
    "`F.mse_loss` of DTensors whose batch is sharded (also `huber_loss`, `smooth_l1_loss`, "
    "`soft_margin_loss`, `binary_cross_entropy`)",
    "the loss is right, and every gradient is multiplied by the number of shards",
    "`(y - target).square().mean()`",
    lesson="12",
)
def mse_loss_of_shards(cured):
    import torch
    from torch.distributed.tensor import Replicate, distribute_tensor

    x = by_rows([[1.0], [2.0], [3.0], [4.0]])
    weight = torch.nn.Parameter(distribute_tensor(torch.ones(1, 1), x.device_mesh, [Replicate()]))
    y, target = x @ weight, x * 0
    loss = (y - target).square().mean() if cured else torch.nn.functional.mse_loss(y, target)
    loss.backward()
    return {"loss": loss, "gradient": weight.grad}


@row(
    "`F.cross_entropy` with `ignore_index` on DTensors whose batch is sharded",
    "gradients are right, the loss is a mean of means: shards with few labels weigh too much",
    "`reduction='sum'`, divided by the number of labels that count",
    thread="https://github.com/pytorch/pytorch/issues/185167",
)
def cross_entropy_that_ignores(cured):
    import torch
    from torch.distributed.tensor import Shard, distribute_tensor

    x = by_rows([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0], [4.0, 0.0]]).requires_grad_()
    labels = distribute_tensor(torch.tensor([1, 1, 1, -100]), x.device_mesh, [Shard(0)])
    cross_entropy = torch.nn.functional.cross_entropy
    loss = cross_entropy(x, labels, reduction="sum") / 3 if cured else cross_entropy(x, labels)
    loss.backward()
    return {"loss": loss, "gradient": x.grad}


@row(
    "the gradient of `x.amax()`, `x.amin()` or `x.norm(float('inf'))` of a sharded DTensor",
    "the number is right; if it is not on the first rank, gradients are NaN and infinite",
    "`x.max()`, `x.min()` or `x.abs().max()`",
)
def gradient_of_a_maximum(cured):
    x = by_rows([[1.0], [2.0], [4.0], [3.0]]).requires_grad_()
    loss = x.max() if cured else x.amax()
    loss.backward()
    return {"loss": loss, "gradient": x.grad}


@row(
    "`.item()` or `float()` of a sum, a maximum or a mean of a sharded DTensor, and an `if` on its "
    "`any()`",
    "the number of this rank's part. `if total > 5` is right: what is compared is added up first",
    "`x.full_tensor()` first",
    lesson="12",
    thread="https://github.com/pytorch/pytorch/issues/144054",
)
def item_of_a_dtensor(cured):
    total = by_rows([[1.0], [2.0], [3.0], [4.0]]).sum()
    return {"sum": float(total.full_tensor() if cured else total)}


@row(
    "a row or a number of a sharded DTensor that is changed in place: `weight[0].zero_()`, "
    "`nn.init.zeros_(weight[0])`, `weight[0, 0] = 1.0`; `reset_parameters` of an `nn.Embedding` "
    "does so with its `padding_idx`",
    "nothing happens: `weight[0]` is a copy that was gathered",
    "change `weight.full_tensor()`, and `weight.copy_(distribute_tensor(...))` of that",
)
def row_changed_in_place(cured):
    import torch
    from torch.distributed.tensor import DTensor, distribute_tensor

    weight = sharded(square()).weight
    with torch.no_grad():
        if cured and isinstance(weight, DTensor):
            whole = weight.full_tensor()
            whole[0].zero_()
            weight.copy_(distribute_tensor(whole, weight.device_mesh, weight.placements))
        else:
            weight[0].zero_()
    return {"weight": weight}


@row(
    "`x.norm(dim=0).sum()` of a DTensor whose rows are sharded",
    "norms of parts are added up",
    "`x.square().sum(0).sqrt().sum()`",
)
def norm_of_columns(cured):
    x = by_rows([[3.0, 0.0], [0.0, 5.0], [4.0, 0.0], [0.0, 12.0]])
    norms = x.square().sum(0).sqrt() if cured else x.norm(dim=0)
    return {"sum of norms": norms.sum()}


@row(
    "`fully_shard` of each block of a model, and not of the model",
    "gradients of what is in no block, such as an embedding, are not averaged: the copies drift "
    "apart",
    "`fully_shard(model)` as well, last",
)
def blocks_without_the_model(cured):
    import torch
    from torch.distributed.fsdp import fully_shard

    over, model = mesh(), torch.nn.Sequential(square(), square())
    fully_shard(model[1], mesh=over)
    if cured:
        fully_shard(model, mesh=over)
    x = torch.arange(16.0).reshape(4, 4).sin().chunk(over.size())[over.get_local_rank()]
    model(x).square().mean().backward()
    return {"gradients": [layer.weight.grad for layer in model]}


@row(
    "an optimizer made before `fully_shard` or `parallelize_module`",
    "it has the parameters of before, whose gradients are None: nothing is trained",
    "the optimizer last",
    lesson="12",
)
def optimizer_made_before_sharding(cured):
    import torch

    model = square()
    if cured:
        model = sharded(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    if not cured:
        model = sharded(model)
    loss = model(torch.ones(1, 4)).square().sum()
    loss.backward()
    optimizer.step()
    return {"loss": loss, "weight": model.weight}


@row(
    "`p.data = ...` under `fully_shard`, also in `vector_to_parameters` and in an EMA",
    "nothing happens: the module gathers the weights that it keeps itself",
    "`p.copy_(...)` or `p.mul_(...)` under `torch.no_grad()`",
    lesson="12",
)
def data_of_a_sharded_parameter(cured):
    import torch

    model = sharded(square())
    with torch.no_grad():
        for parameter in model.parameters():
            if cured:
                parameter.mul_(0.5)
            else:
                parameter.data = parameter.data * 0.5
    return {"output": model(torch.ones(1, 4))}


@row(
    "changing parameters under `fully_shard` after a forward without a backward (an evaluation)",
    "the root's are still gathered: the copy is changed, used, and thrown away after the next "
    "backward",
    "`model.reshard()` before",
    thread="https://github.com/pytorch/pytorch/issues/144289",
)
def weights_changed_after_an_evaluation(cured):
    import torch

    model = sharded(square())
    x = torch.ones(1, 4)
    with torch.no_grad():
        model(x)
        if cured and hasattr(model, "reshard"):
            model.reshard()
        for parameter in model.parameters():
            parameter.mul_(0.5)
    model(x).sum().backward()
    return {"weight": model.weight}


@row(
    "`zero_grad()`, to drop a micro-batch, after `set_requires_gradient_sync(False)`",
    "the dropped gradient comes back with the next backward that is reduced",
    "look at the loss first, and leave out its backward, on all ranks alike",
)
def dropped_micro_batch(cured):
    import torch

    model = sharded(square())
    x, bad = torch.ones(1, 4), 1000 * torch.ones(1, 4)
    if hasattr(model, "set_requires_gradient_sync"):
        model.set_requires_gradient_sync(False)
    loss = model(bad).sum()
    if not cured:
        loss.backward()
    model.zero_grad()  # there was something wrong with it
    if hasattr(model, "set_requires_gradient_sync"):
        model.set_requires_gradient_sync(True)
    model(x).sum().backward()
    return {"gradient": model.weight.grad}


@row(
    "`parallelize_module` of a model whose head has the weights of its embedding",
    "they are two weights from then on",
    "`head.weight = embedding.weight` once more, afterwards",
    thread="https://github.com/pytorch/pytorch/pull/116475",
)
def tied_embedding(cured):
    import torch
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    over = mesh()
    model = torch.nn.Sequential(torch.nn.Embedding(8, 4), torch.nn.Linear(4, 8, bias=False))
    with torch.no_grad():
        model[0].weight.copy_(torch.arange(32.0).reshape(8, 4).cos())
    model[1].weight = model[0].weight
    if over.size() > 1:
        plan = {
            "0": RowwiseParallel(input_layouts=Replicate()),
            "1": ColwiseParallel(output_layouts=Replicate()),
        }
        parallelize_module(model, over, plan)
    if cured:
        model[1].weight = model[0].weight
    optimizer, losses = torch.optim.SGD(model.parameters(), 0.5), []
    for _ in range(3):
        loss = torch.nn.functional.cross_entropy(model(torch.arange(8)), torch.arange(8).roll(1))
        losses.append(loss.detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return {"losses": losses, "embedding": model[0].weight, "head": model[1].weight}


@row(
    "`torch.optim.Muon` on parameters of `fully_shard`",
    "products of a matrix that has more rows than columns are sums over ranks, which bfloat16 "
    "rounds otherwise, and five iterations enlarge that to some hundredths of a step; noise of "
    "`2**-8` in the gradient does the same to one process. Other matrices come out the same",
    "nothing is wrong; where runs must agree, DDP",
    lesson="18",
)
def muon_of_shards(cured):
    import torch
    from torch.nn.parallel import DistributedDataParallel

    model = torch.nn.Linear(4, 8, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.arange(32.0).reshape(8, 4).sin())
    model = DistributedDataParallel(model) if cured and mesh() else sharded(model)
    optimizer = torch.optim.Muon(model.parameters(), lr=0.1, weight_decay=0.0)
    model(torch.arange(16.0).reshape(4, 4).cos()).sin().sum().backward()
    optimizer.step()
    return {"weight": next(model.parameters())}


@row(
    "`ColwiseParallel` of one layer for queries, keys and values, whose answer `forward` divides "
    "with `chunk(3)`",
    "each rank divides its own columns: rank 0 takes queries for keys",
    "three layers, or their rows in an order that gives each rank its part of all three",
    thread="https://github.com/pytorch/pytorch/pull/149701",
)
def fused_projection(cured):
    import torch
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    class Attention(torch.nn.Module):
        def __init__(self):
            super().__init__()
            weight = torch.arange(48.0).reshape(12, 4).cos()
            weights = [torch.nn.Parameter(part) for part in weight.split(4 if cured else 12)]
            layers = [torch.nn.Linear(4, len(own), bias=False) for own in weights]
            for layer, own in zip(layers, weights, strict=True):
                layer.weight = own
            self.projections, self.out = torch.nn.ModuleList(layers), square()

        def forward(self, x):
            made = [layer(x) for layer in self.projections]
            q, k, v = made if cured else made[0].chunk(3, -1)
            return self.out((q * k).tanh() * v)

    over, model = mesh(), Attention()
    plan = {"projections.*": ColwiseParallel(), "out": RowwiseParallel()}
    parallelize_module(model, over, plan)
    return {"loss": model(torch.arange(8.0).reshape(2, 4).sin()).square().mean()}


@row(
    "`y.to_local()` and a mean of it as the loss, where `y` is a DTensor whose batch is sharded",
    "the loss is that of this rank's part, and gradients are added up over ranks, not averaged",
    "`y.square().mean()` of the DTensor, without `to_local`",
)
def loss_of_the_local_part(cured):
    import torch
    from torch.distributed.tensor import Replicate, distribute_tensor

    x = by_rows([[1.0], [2.0], [3.0], [4.0]])
    weight = torch.nn.Parameter(distribute_tensor(torch.ones(1, 1), x.device_mesh, [Replicate()]))
    y = x @ weight
    (y if cured else y.to_local()).square().mean().backward()
    return {"gradient": weight.grad}
