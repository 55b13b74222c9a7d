#!/bin/sh
# `eval` of a pipeline schedule with a batch that is smaller than that of the call before.
#
# Seen with torch 2.13.0 on CPUs, two stages of one linear layer, two micro-batches: after a batch of 8 rows one of 4 gives
# 8 rows and no error. Each micro-batch is answered with as many rows as before; those that were not given are of the
# earlier batch. Fails if the answer has 4 rows, or an error is raised.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq "torch==2.13.0" "numpy<3"
cat > "$folder/pipeline.py" <<'PY'
import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

dist.init_process_group("gloo")
rank = dist.get_rank()
layer = torch.nn.Linear(1, 1, bias=False)
torch.nn.init.ones_(layer.weight)
schedule = ScheduleGPipe(PipelineStage(layer, rank, 2, torch.device("cpu")), n_microbatches=2)
answers = []
for batch in (torch.arange(1.0, 9.0), torch.arange(100.0, 104.0)):
    with torch.no_grad():
        answers.append(schedule.eval(*([batch[:, None]] if rank == 0 else [])))
    dist.barrier()
if rank == 1:
    seen = answers[1].flatten().tolist()
    print(f"torch {torch.__version__}: of 100, 101, 102, 103 after 1 to 8 it makes {seen}")
    assert seen == [100, 101, 3, 4, 102, 103, 7, 8], seen
dist.destroy_process_group()
PY
"$folder/venv/bin/torchrun" --standalone --nproc-per-node 2 "$folder/pipeline.py"
