#!/bin/sh
# The order that PyTorch's pipelining gives for its schedule 1F1B, which its drawing of schedules uses.
#
# Seen with torch 2.13.0: on the last of four ranks, with eight micro-batches, get_schedule_ops("1F1B", 4, 8)
# begins 3F1 3B0 3F2 3B1 ... and has 3F8. There is no micro-batch 8, and 3F0 is missing. (What the schedule
# runs is right: it is only this list.) Fails if the list is no longer so.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq "torch==2.13.0" "numpy<3"
"$folder/venv/bin/python" - <<'PY'
import torch
from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops

last = [str(action) for action in get_schedule_ops("1F1B", 4, 8)[3] if action is not None]
print("torch", torch.__version__, "last rank:", *last)
assert last[:2] == ["3F1", "3B0"] and "3F8" in last and "3F0" not in last
PY
