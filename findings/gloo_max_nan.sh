#!/bin/sh
# torch.distributed.all_reduce with MAX and MIN on gloo, where one rank has a NaN.
#
# Seen with torch 2.13.0 on CPUs, two ranks with 1.0 and NaN: with the NaN on rank 0 both ranks get NaN, with the NaN on
# rank 1 both get 1.0, for MAX and for MIN; SUM gives NaN either way, as does torch.maximum in one process. So a check
# for overflow by MAX misses it on all ranks but one. Fails if that changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq "torch==2.13.0" "numpy<3"
cat > "$folder/nan.py" <<'PY'
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
lost = {}
for name in ("MAX", "MIN", "SUM"):
    for where in (0, 1):
        x = torch.tensor([float("nan") if dist.get_rank() == where else 1.0])
        dist.all_reduce(x, getattr(dist.ReduceOp, name))
        lost[name, where] = not x.isnan().item()
if dist.get_rank() == 0:
    print(f"torch {torch.__version__}: the NaN is lost (operation, its rank):", [k for k in lost if lost[k]])
dist.destroy_process_group()
assert torch.maximum(torch.tensor(1.0), torch.tensor(float("nan"))).isnan()
assert [key for key in lost if lost[key]] == [("MAX", 1), ("MIN", 1)], lost
PY
"$folder/venv/bin/torchrun" --standalone --nproc-per-node 2 "$folder/nan.py"
