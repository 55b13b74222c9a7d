"""Clipping to the norm 1: what a gradient of 3 that is `Partial` has afterwards."""

import distlab


def clip():
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial

    weight = torch.nn.Parameter(DTensor.from_local(torch.ones(1), init_device_mesh("cpu", (2,))))
    weight.grad = DTensor.from_local(torch.full((1,), 1.5), weight.device_mesh, [Partial()])
    torch.nn.utils.clip_grad_norm_([weight], 1.0)
    return weight.grad.full_tensor().item()


gradient = distlab.run(clip, nprocs=2, framework="torch", quiet=True)[0]
print("gradient", round(gradient, 3))
print("WORKS" if abs(gradient - 1) < 0.01 else "")
