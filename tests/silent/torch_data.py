"""Silent errors of PyTorch: collectives and DDP. Each rank has its part of one global batch."""

import functools
import os

from silent.row import row


def group():
    """Form the group; returns rank and world size."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    return dist.get_rank(), dist.get_world_size()


def part(numbers):
    """This rank's part of a list of numbers, as a column."""
    import torch

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    return torch.tensor(numbers).chunk(size)[rank].reshape(-1, 1)


def line(weight=1.0):
    """A layer that multiplies by one weight."""
    import torch

    layer = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(layer.weight, weight)
    return layer


@row(
    "DDP: two forwards, then two backwards",
    "the first backward is averaged over ranks, the second is not: the copies of the model drift "
    "apart",
    "one backward of the sum of both losses",
    lesson="10",
    thread="https://github.com/pytorch/pytorch/issues/47260",
)
def ddp_two_backwards(cured):
    import torch
    from torch.nn.parallel import DistributedDataParallel

    group()
    x, model = part([2.0, 4.0, 6.0, 8.0]), DistributedDataParallel(line())
    first, second = model(x).square().mean(), model(x).mean()
    if cured:
        (first + second).backward()
    else:
        first.backward()
        second.backward()
    gradient = model.module.weight.grad.clone()
    torch.optim.SGD(model.parameters(), 0.01).step()
    return {"gradient": gradient, "weight": model.module.weight}


@row(
    "`dist.all_reduce(loss.detach())` for the log, before `loss.backward()`, where the loss ends "
    "in `sqrt`, `exp`, `tanh` or `sigmoid`",
    "`detach` shares memory: backward reads the sum of the ranks where it has saved the result",
    "`dist.all_reduce(loss.detach().clone())`",
)
def all_reduce_of_a_detached_loss(cured):
    import torch.distributed as dist

    _, size = group()
    weight = line().weight
    loss = (part([9.0, 25.0, 9.0, 25.0]) * weight).mean().sqrt()
    dist.all_reduce(loss.detach().clone() if cured else loss.detach())
    loss.backward()
    dist.all_reduce(weight.grad)
    return {"gradient": weight.grad / size}


@row(
    "`dist.reduce(x, dst=0)` on gloo, and `x` is used afterwards",
    "the senders' `x` has partial sums",
    "reduce a clone",
    lesson="10",
    thread="https://github.com/pytorch/pytorch/issues/76527",
    nprocs=(1, 4),
)
def reduce_overwrites_its_senders(cured):
    import torch.distributed as dist

    rank, size = group()
    x = part([1.0, 2.0, 3.0, 4.0]).mean()
    total = x.clone()
    dist.reduce(total if rank == 0 or cured else x, dst=0)  # the sum, for the log of rank 0
    dist.all_reduce(x)
    return {"mean": x / size}


@row(
    "`all_reduce` with `MAX` or `MIN` on gloo, to see whether anybody has a NaN",
    "a NaN that is not on rank 0 is lost",
    "`SUM`, or `MAX` of `isnan`",
)
def max_loses_a_nan(cured):
    import torch
    import torch.distributed as dist

    group()
    x = part([1.0, 2.0, 3.0, float("nan")]).sum()
    found = x.isnan().float() if cured else x
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return {"NaN found": torch.logical_or(found.isnan(), found == 1.0) if cured else found.isnan()}


@row(
    "`dist.all_reduce` on gloo of a strided view, such as `x[:, 0]`",
    "other elements than the view's are added up",
    "`y = x[:, 0].contiguous()`, and copy it back",
    thread="https://github.com/pytorch/pytorch/pull/191187",
)
def all_reduce_of_a_view(cured):
    import torch
    import torch.distributed as dist

    _, size = group()
    x = torch.arange(6.0).reshape(3, 2)
    view = x[:, 0].contiguous() if cured else x[:, 0]
    dist.all_reduce(view)
    return {"mean": view / size, "x": x[:, 1]}


@row(
    "DDP and a loss that is a sum over the batch (`reduction='sum'`)",
    "DDP averages over ranks: the gradient is that of one process divided by their number",
    "divide the sum by the global batch and multiply by the world size",
    lesson="10",
)
def ddp_of_a_sum(cured):
    from torch.nn.parallel import DistributedDataParallel

    _, size = group()
    model = DistributedDataParallel(line())
    loss = model(part([1.0, 2.0, 3.0, 4.0])).sum()
    (loss * size if cured else loss).backward()
    return {"gradient": model.module.weight.grad}


@row(
    "DDP and a mean over what counts, of which ranks have different numbers (padding, "
    "`ignore_index`, a last batch)",
    "a mean of means: every token of a rank with few weighs more",
    "divide the sum of the losses by the global count, times the world size",
    lesson="10",
)
def ddp_of_means_of_unequal_parts(cured):
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    _, size = group()
    model = DistributedDataParallel(line())
    x = part([1.0, 2.0, 3.0, 40.0])
    counts = part([1.0, 1.0, 1.0, 0.0])  # 0 is padding
    number = counts.sum()
    if cured:
        dist.all_reduce(number)
        number /= size
    ((model(x) * counts).sum() / number).backward()
    return {"gradient": model.module.weight.grad}


@row(
    "gradients clipped before they are reduced (`clip_grad_norm_` under `no_sync`, or before a "
    "hand-written `all_reduce`)",
    "each rank clips its own part, the mean of what is clipped is another vector",
    "clip after the reduction",
)
def clipped_before_the_sum(cured):
    import torch
    import torch.distributed as dist

    _, size = group()
    model = line()
    model(part([1.0, 1.0, 1.0, 5.0])).mean().backward()
    clip = functools.partial(torch.nn.utils.clip_grad_norm_, model.parameters(), 1.5)
    if not cured:
        clip()
    dist.all_reduce(model.weight.grad)
    model.weight.grad /= size
    if cured:
        clip()
    return {"gradient": model.weight.grad}


@row(
    "`BatchNorm1d` under DDP",
    "statistics are those of a rank's own part: gradients differ from those of one process, and "
    "the moving statistics are of rank 0's part, since DDP sends its buffers before each forward",
    "`GroupNorm`; on GPUs also `SyncBatchNorm.convert_sync_batchnorm`",
    lesson="11",
)
def batch_norm_of_a_part(cured):
    import torch
    from torch.nn.parallel import DistributedDataParallel

    group()
    norm = torch.nn.GroupNorm(1, 2) if cured else torch.nn.BatchNorm1d(2)
    model = DistributedDataParallel(norm)
    x = part([1.0, 2.0, 3.0, 8.0])
    y = model(torch.cat([x, x.square()], dim=1))
    (y * x).mean().backward()
    return {"gradient": norm.weight.grad, "buffers": dict(norm.named_buffers())}


@row(
    "`DistributedSampler` for evaluation, and a number of examples that the ranks do not divide",
    "it repeats examples until they do: these count twice",
    "`range(rank, len(data), world_size)`, and sums and counts added up",
    lesson="10",
    nprocs=(1, 4),
)
def sampler_that_repeats(cured):
    import torch
    import torch.distributed as dist
    from torch.utils.data import DistributedSampler

    rank, size = group()
    data = torch.tensor([100.0, 200.0, 3.0, 4.0, 5.0, 6.0])
    own = range(rank, 6, size) if cured else DistributedSampler(data, size, rank, shuffle=False)
    numbers = data[list(own)]
    sum_and_count = torch.stack([numbers.sum(), torch.tensor(float(len(numbers)))])
    dist.all_reduce(sum_and_count)
    return {"mean": sum_and_count[0] / sum_and_count[1]}


@row(
    "parameters that are unfrozen, or layers that are replaced, after the model was wrapped in DDP",
    "DDP knows those that required a gradient when it was made: others are not averaged, and the "
    "copies drift apart",
    "wrap the model again",
    lesson="11",
)
def unfrozen_after_wrapping(cured):
    import torch
    from torch.nn.parallel import DistributedDataParallel

    group()
    model = torch.nn.Sequential(line(2.0), line(3.0))
    model[0].weight.requires_grad_(False)
    wrapped = DistributedDataParallel(model)
    model[0].weight.requires_grad_(True)
    if cured:
        wrapped = DistributedDataParallel(model)
    wrapped(part([1.0, 2.0, 3.0, 4.0])).mean().backward()
    return {"gradients": [layer.weight.grad for layer in model]}


@row(
    "`ddp.module(x)` instead of `ddp(x)` in training",
    "gradients are not averaged",
    "`ddp(x)`",
    lesson="10",
)
def module_of_ddp(cured):
    from torch.nn.parallel import DistributedDataParallel

    group()
    model = DistributedDataParallel(line())
    forward = model if cured else model.module
    forward(part([1.0, 2.0, 3.0, 4.0])).mean().backward()
    return {"gradient": model.module.weight.grad}


@row(
    "the last forward of an accumulation inside `no_sync()`, its backward outside",
    "what counts is where the forward was: gradients are not averaged",
    "forward and backward of the last micro-batch outside",
    lesson="11",
    thread="https://github.com/huggingface/accelerate/pull/1726",
)
def forward_inside_no_sync(cured):
    import contextlib

    from torch.nn.parallel import DistributedDataParallel

    group()
    model = DistributedDataParallel(line())
    with contextlib.nullcontext() if cured else model.no_sync():
        loss = model(part([1.0, 2.0, 3.0, 4.0])).mean()
    loss.backward()
    return {"gradient": model.module.weight.grad}


@row(
    "`torch.manual_seed(0)` on all ranks, and `Dropout`",
    "all ranks drop the same units of their examples",
    "`torch.manual_seed(seed + rank)` once the model is made",
    lesson="11",
)
def dropout_of_ranks(cured):
    import torch
    import torch.distributed as dist

    rank, size = group()
    torch.manual_seed(rank if cured else 0)
    masks = torch.nn.functional.dropout(torch.ones(8 // size, 64))
    everybodys = [torch.empty_like(masks) for _ in range(size)]
    dist.all_gather(everybodys, masks)
    return {"different masks": len(torch.cat(everybodys).unique(dim=0))}


@row(
    "a checkpoint loaded on rank 0 alone, after the model was wrapped in DDP",
    "DDP sends weights once, when it is made, and only buffers later: the copies stay apart",
    "load on all ranks, or before wrapping",
)
def loaded_on_rank_0(cured):
    import torch
    from torch.nn.parallel import DistributedDataParallel

    rank, _ = group()
    model = DistributedDataParallel(line())
    if rank == 0 or cured:
        model.module.load_state_dict({"weight": torch.tensor([[2.0]])})
    model(part([1.0, 2.0, 3.0, 4.0])).square().mean().backward()
    return {"gradient": model.module.weight.grad, "weight": model.module.weight}


@row(
    "`dist.all_gather` of features under DDP, for a loss that compares all with all",
    "no gradient passes through it: each rank has the part of its own features alone",
    "`all_gather` of `torch.distributed.nn.functional`",
)
def gathered_features(cured):
    import torch
    import torch.distributed as dist
    from torch.distributed.nn.functional import all_gather
    from torch.nn.parallel import DistributedDataParallel

    rank, size = group()
    model = DistributedDataParallel(line())
    own = model(part([1.0, 2.0, 3.0, 4.0]))
    everybodys = [torch.empty_like(own) for _ in range(size)]
    if cured:
        everybodys = all_gather(own)
    else:
        dist.all_gather(everybodys, own)
        everybodys[rank] = own  # this rank's part has a gradient
    features = torch.cat(list(everybodys))
    loss = (features @ features.T).mean()
    loss.backward()
    return {"loss": loss, "gradient": model.module.weight.grad}
