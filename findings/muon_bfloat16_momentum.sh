#!/bin/sh
# The momentum of Muon, of a bfloat16 weight, without Nesterov's momentum.
#
# Seen with torch 2.13.0 on CPUs: after the first step with a gradient of 8 and momentum 0.95, the buffer of a float32 weight
# holds 0.05 * 8 = 0.4, that of a bfloat16 weight 0.25, which is the update divided by its norm: the step writes into its own
# buffer. Nothing is raised; what came before the last step is lost but for its direction. With nesterov=True, the default,
# both hold 0.4, and so do all with torch 2.15.0. Fails if the bfloat16 buffer holds 0.4.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq "torch==2.13.0" "numpy<3"
cat > "$folder/muon.py" <<'PY'
import torch


def buffer(dtype, nesterov):
    weight = torch.nn.Parameter(torch.ones(4, 4, dtype=dtype))
    optimizer = torch.optim.Muon([weight], lr=0.1, momentum=0.95, nesterov=nesterov)
    weight.grad = torch.full_like(weight, 8.0)
    optimizer.step()
    return round(optimizer.state[weight]["momentum_buffer"][0, 0].item(), 2)


seen = {
    f"{str(dtype)[6:]}, nesterov={nesterov}": buffer(dtype, nesterov)
    for dtype in (torch.float32, torch.bfloat16)
    for nesterov in (True, False)
}
print(f"torch {torch.__version__}: momentum after a gradient of 8: {seen}")
assert list(seen.values()) == [0.4, 0.4, 0.4, 0.25], seen
PY
"$folder/venv/bin/python" "$folder/muon.py"
