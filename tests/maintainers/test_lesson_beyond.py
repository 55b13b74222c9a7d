"""What the lesson Beyond one machine writes: its script, its batch job, its manifest."""

import ast
import json
import os
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import jsonschema
import nbformat
import numpy as np
import pytest
import yaml
from _processes import require
from _slurm import NODES, poll, slurm
from _tools import ROOT

from distlab import datasets
from distlab.ports import HeldPort

LESSON = ROOT / "notebooks" / "16_beyond_one_machine.ipynb"
SCHEMA = ROOT / "tests" / "jobset.schema.json"


def sources() -> list[str]:
    cells = nbformat.read(LESSON, as_version=4).cells
    return [cell.source for cell in cells if cell.cell_type == "code"]


def written(name: str) -> str:
    """A file that the lesson writes."""
    (found,) = (s for s in sources() if s.startswith(f"%%writefile {name}\n"))
    return found.partition("\n")[2]


def manifest() -> dict[str, Any]:
    """The lesson's JobSet."""
    cells = nbformat.read(LESSON, as_version=4).cells
    (found,) = re.findall(r"```yaml\n(.*?)```", "\n".join(c.source for c in cells), re.DOTALL)
    return yaml.safe_load(found)


def batch_script() -> str:
    """The lesson's Slurm script."""
    (found,) = (s for s in sources() if s.startswith("SBATCH = "))
    (assignment,) = ast.parse(found).body
    assert isinstance(assignment, ast.Assign)
    return ast.literal_eval(assignment.value)


def faults(manifest: object) -> list[str]:
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return [e.message for e in jsonschema.Draft202012Validator(schema).iter_errors(manifest)]


def test_the_manifest_is_a_job_set():
    assert faults(manifest()) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda spec: spec["failurePolicy"].update(maxRestarts="3"), "is not of type 'integer'"),
        (lambda spec: spec["network"].update(enableDNSHostname=True), "enableDNSHostname"),
        (lambda spec: spec["replicatedJobs"][0].pop("name"), "'name' is a required property"),
        (
            lambda spec: spec["replicatedJobs"][0]["template"]["spec"].update(paralelism=2),
            "paralelism",
        ),
    ],
)
def test_the_schema_finds_faults(change, message):
    changed = manifest()
    change(changed["spec"])
    (found,) = faults(changed)
    assert message in found


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with train.py, its problem, and a distlab that can't be imported."""
    (tmp_path / "train.py").write_text(written("train.py"))
    (tmp_path / "distlab.py").write_text("raise ImportError('not needed here')\n")
    (images, labels), _ = datasets.load("digits")
    draw = np.random.default_rng(1).normal
    np.savez(
        tmp_path / "problem.npz",
        images=(images[:128].reshape(-1, 784) / 255).astype("float32"),
        labels=labels[:128].astype("int64"),
        kernel_1=draw(0, 0.05, (784, 64)).astype("float32"),
        kernel_2=draw(0, 0.05, (64, 10)).astype("float32"),
    )
    return tmp_path


@pytest.mark.parametrize(
    ("local_rank", "visible", "expected"), [("2", 4, ("cuda", 2)), ("2", 1, ("cuda", 0))]
)
def test_a_rank_takes_the_gpu_it_gets(local_rank, visible, expected, monkeypatch):
    chosen = []
    cuda = types.SimpleNamespace(
        is_available=lambda: True, device_count=lambda: visible, set_device=chosen.append
    )
    tree = ast.parse(written("train.py"))
    (function,) = (n for n in tree.body if getattr(n, "name", "") == "choose_device")
    torch = types.SimpleNamespace(cuda=cuda, device=lambda *kind: kind)
    names = {"torch": torch, "os": os}
    exec(compile(ast.Module([function], []), "train.py", "exec"), names)
    monkeypatch.setenv("LOCAL_RANK", local_rank)
    assert names["choose_device"]() == (expected, "nccl")
    assert chosen == [expected]


def test_train_needs_no_distlab_and_no_launcher(place):
    require("torch")
    (place / "run").mkdir()
    left_out = ("RANK", "WORLD_SIZE", "PYTHONPATH", "MASTER_ADDR", "MASTER_PORT")
    environment = {k: v for k, v in os.environ.items() if k not in left_out}
    environment["CUDA_VISIBLE_DEVICES"] = "-1"
    command = [sys.executable, "train.py", str(place / "run"), "--epochs", "2"]
    subprocess.run(command, cwd=place, env=environment, check=True, timeout=180)
    with np.load(place / "run" / "result.npz") as file:
        assert len(file["losses"]) == 4


@pytest.mark.needs("slurm")
def test_the_batch_script_under_slurm(place):
    require("torch")
    port = HeldPort()
    port.close()
    script = batch_script().replace("29500", str(port.number))
    script = re.sub(r"#SBATCH --gpus.*\n", f"#SBATCH --chdir={place}\n", script)
    script = script.replace("--nproc-per-node=gpu", "--nproc-per-node=1")
    script = script.replace("--cpus-per-task=32", "--cpus-per-task=4")
    script = script.replace("/shared/", f"{place}/")
    (place / "job.sh").write_text(script)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    options = [f"--output={place / 'job.log'}", f"--export=ALL,PATH={path}"]
    with slurm() as cluster:
        number = cluster.ask("sbatch", "--parsable", *options, str(place / "job.sh")).strip()
        poll(lambda: not cluster.jobs(), "the job has not ended", timeout=180)
        said = (place / "job.log").read_text()
    run = place / f"digits-{number}"
    assert (run / "result.npz").exists(), said
    ranks = [json.loads((run / f"rank-{r}.jsonl").read_text().splitlines()[0]) for r in range(2)]
    assert len(NODES) == len(ranks)
    assert sorted(r["told"]["GROUP_RANK"] for r in ranks) == ["0", "1"]
