"""Silent errors of PyTorch: pipeline parallelism."""

from silent.row import row


def layer():
    """A layer of four by four weights, the same everywhere."""
    import torch

    made = torch.nn.Linear(4, 4, bias=False)
    with torch.no_grad():
        made.weight.copy_(torch.arange(16.0).reshape(4, 4).cos())
    return made


def two_layers(loss, scale_grads=True):
    """A pipeline of as many stages as ranks; the schedule, the group's rank and size, the part."""
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    part = torch.nn.Sequential(layer(), layer())
    if size > 1:
        part = part[rank : rank + 1]
    stage = PipelineStage(part, rank, size, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, n_microbatches=2, loss_fn=loss, scale_grads=scale_grads)
    return schedule, part, rank, size


@row(
    "`schedule.eval` of a pipeline with a smaller batch than before",
    "the answer has rows of earlier batches",
    "pad the batch, or make a new stage for it",
    lesson="13",
)
def pipeline_eval_of_a_smaller_batch(cured):
    import torch
    import torch.distributed as dist

    schedule, _, rank, size = two_layers(None)
    answer = None
    for number in (8, 4):
        x = torch.arange(4.0 * number).reshape(number, 4) / number
        x = torch.cat([x, torch.zeros(8 - number, 4)]) if cured else x
        with torch.no_grad():
            answer = schedule.eval(*([x] if rank == 0 else []))
        dist.barrier()
    answers = [answer[:number] if cured and answer is not None else answer]
    dist.broadcast_object_list(answers, src=size - 1)
    return {"answer": answers[0]}


@row(
    "two `schedule.step()` of a pipeline before the optimizer's step",
    "the second divides the gradients of the first by the number of micro-batches once more",
    "`scale_grads=False`, and divide by hand before the optimizer's step",
)
def two_steps_of_a_pipeline(cured):
    import torch
    import torch.distributed as dist

    schedule, part, rank, size = two_layers(torch.nn.MSELoss(), scale_grads=not cured)
    x = torch.arange(16.0).reshape(4, 4) / 16
    for _ in range(2):
        if size == 1:
            torch.nn.functional.mse_loss(part(x), torch.zeros(4, 4)).backward()
            continue
        schedule.step(*([x] if rank == 0 else []), target=torch.zeros(4, 4) if rank else None)
        dist.barrier()
    gradient = part[-1].weight.grad
    if cured and size > 1:
        gradient /= 2
    dist.broadcast(gradient, src=size - 1)
    return {"gradient": gradient}
