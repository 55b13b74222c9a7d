#!/bin/sh
# torch.distributed.reduce on gloo, whose documentation says that the rank `dst` alone receives the result.
#
# Seen with torch 2.13.0 on CPUs, three ranks with 1, 10 and 100, dst=0: rank 0 holds 111, and the tensors of the
# senders have changed as well: rank 1 holds 110. A loss that is reduced for the log is a wrong one there.
# Fails if rank 0's sum is another, or every sender keeps its number.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq "torch==2.13.0" "numpy<3"
cat > "$folder/reduce.py" <<'PY'
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
x = torch.tensor([10.0 ** dist.get_rank()])
dist.reduce(x, dst=0)
held = [torch.zeros(1) for _ in range(3)]
dist.all_gather(held, x)
held = [each.item() for each in held]
if dist.get_rank() == 0:
    print(f"torch {torch.__version__}: ranks hold {held}, and had [1.0, 10.0, 100.0]")
dist.destroy_process_group()
assert held[0] == 111 and held[1:] != [10, 100], held
PY
"$folder/venv/bin/torchrun" --standalone --nproc-per-node 3 "$folder/reduce.py"
