"""Muon without Nesterov's momentum, on a bfloat16 weight: what it has of a gradient of 8."""

import torch

weight = torch.nn.Parameter(torch.ones(4, 4, dtype=torch.bfloat16))
optimizer = torch.optim.Muon([weight], momentum=0.95, nesterov=False)
weight.grad = torch.full_like(weight, 8.0)
optimizer.step()
momentum = optimizer.state[weight]["momentum_buffer"][0, 0].item()
print("momentum", momentum)
print("WORKS" if abs(momentum - 0.05 * 8) < 0.01 else "")
