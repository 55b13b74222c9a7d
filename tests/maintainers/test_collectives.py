"""Collectives counted against programs whose communication is known beforehand."""

import contextlib
import math
from collections.abc import Iterator
from importlib.util import find_spec

import numpy as np
import pytest
from _interpreter import Interpreter
from hypothesis import given, settings
from hypothesis import strategies as st

from distlab.layouts import hlo
from distlab.layouts.collectives import Collective, Communication, sent_bytes
from distlab.layouts.communication import axes_of_groups
from distlab.layouts.view import Mesh

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")


@contextlib.contextmanager
def started(code: str, **environment: str) -> Iterator[Interpreter]:
    """A process that has imported distlab."""
    head = "import distlab\nfrom distlab import collectives\n"
    with contextlib.closing(Interpreter(head + code, **environment)) as python:
        yield python


# --- theory -----------------------------------------------------------------------------------


def ring(values: np.ndarray, *, reduce: bool, gather: bool) -> tuple[np.ndarray, int]:
    """Pass chunks round a ring of devices, one row of `values` each; count what one sends."""
    devices, sent = len(values), 0
    chunks = np.array(np.split(values, devices, axis=1), dtype=values.dtype)  # chunk, device
    for step in range(devices - 1) if reduce else ():
        moving = [chunks[(d - step) % devices, d].copy() for d in range(devices)]
        for d in range(devices):
            chunks[(d - step) % devices, (d + 1) % devices] += moving[d]
        sent += moving[0].nbytes
    for step in range(devices - 1) if gather else ():
        moving = [chunks[(d + 1 - step) % devices, d].copy() for d in range(devices)]
        for d in range(devices):
            chunks[(d + 1 - step) % devices, (d + 1) % devices] = moving[d]
        sent += moving[0].nbytes
    return np.concatenate(chunks, axis=1), sent


def test_bytes_sent_are_those_of_a_ring(subtests):
    for devices in (2, 3, 4, 8):
        with subtests.test(devices=devices):
            values = np.random.default_rng(0).integers(0, 9, (devices, 6 * devices)).astype("int32")
            reduced, sent = ring(values, reduce=True, gather=True)
            assert (reduced == values.sum(0)).all()
            _, scattered = ring(values, reduce=True, gather=False)
            _, gathered = ring(values, reduce=False, gather=True)
            payload = values[0].nbytes
            assert sent == sent_bytes("all-reduce", payload, devices)
            assert scattered == sent_bytes("reduce-scatter", payload, devices)
            assert gathered == sent_bytes("all-gather", payload, devices)


def test_one_device_sends_nothing_and_unknown_kinds_are_refused():
    assert sent_bytes("all-reduce", 1000, 1) == 0
    with pytest.raises(ValueError, match="Unknown collective 'all-red'"):
        sent_bytes("all-red", 1000, 4)
    for kind in ("ragged-all-to-all", "collective-broadcast", "collective-permute"):
        (found,) = hlo.collectives_of(program(f"f32[2] {kind}(%p), replica_groups={{{{0,1}}}}"))
        assert sent_bytes(found.kind, 8, 4) > 0


# --- HLO --------------------------------------------------------------------------------------


def program(*lines: str, before: str = "") -> str:
    body = "\n".join(f"  %op.{i} = {line}" for i, line in enumerate(lines))
    return f"HloModule jit_f\n{before}\nENTRY %main.1 (p: f32[4]) -> f32[4] {{\n{body}\n}}\n"


@st.composite
def groups_on_meshes(draw):
    """A mesh, some of its axes, and the groups of devices that lie along them."""
    shape = draw(st.lists(st.integers(2, 4), min_size=1, max_size=3))
    axes = draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    ids = np.arange(math.prod(shape)).reshape(shape)
    fixed = [d for d in range(len(shape)) if d not in axes]
    order = [*fixed, *sorted(axes)]
    groups = ids.transpose(order).reshape(-1, math.prod(shape[d] for d in sorted(axes)))
    return shape, sorted(axes), order, [tuple(int(i) for i in group) for group in groups]


@settings(max_examples=200, deadline=None)
@given(case=groups_on_meshes())
def test_groups_are_read_in_each_of_the_ways_xla_writes_them(case):
    shape, axes, order, groups = case
    sizes = ",".join(map(str, shape))
    listed = "{" + ",".join("{" + ",".join(map(str, g)) + "}" for g in groups) + "}"
    turn = "" if order == sorted(order) else f"T({','.join(map(str, order))})"
    iota = f"[{len(groups)},{len(groups[0])}]<=[{sizes}]{turn}"
    names = ",".join(f"'axis_{i}'={n}" for i, n in enumerate(shape))
    over = ",".join(f"'axis_{i}'" for i in axes)
    mesh = Mesh(
        tuple((f"a{i}", n) for i, n in enumerate(shape)),
        tuple(f"cpu:{i}" for i in range(math.prod(shape))),
    )
    # The same groups once more, from a mesh whose devices are in another order.
    moved = ",".join(f"'axis_{i}'={shape[d]}" for i, d in enumerate(order))
    along = ",".join(f"'axis_{i}'" for i in range(len(order) - len(axes), len(order)))
    device_ids = f"([{sizes}]{turn})" if turn else f"([{math.prod(shape)}])"
    for written in (
        listed,
        iota,
        f"mesh[{names}] {{{over}}}",
        f"mesh[{moved}], device_ids={device_ids} {{{along}}}",
    ):
        line = f"f32[4]{{0}} all-reduce(%p), channel_id=1, replica_groups={written}, to_apply=%add"
        found = hlo.groups_of(line)
        assert {frozenset(g) for g in found} == {frozenset(g) for g in groups}, written
        (collective,) = hlo.collectives_of(program(line), mesh)
        assert collective.axes == tuple(f"a{i}" for i in axes)
        assert collective.devices == len(groups[0])


def test_a_part_of_an_axis():
    for part, groups in [
        ("'a':(2)2", ((0, 2), (1, 3), (4, 6), (5, 7))),
        ("'a':(1)2", ((0, 4), (1, 5), (2, 6), (3, 7))),
        ("'a':(1)2,'a':(4)2", ((0, 1, 4, 5), (2, 3, 6, 7))),
    ]:
        found = hlo.groups_of(f"f32[4] all-reduce(%p), replica_groups=mesh['a'=8] {{{part}}}")
        assert found == groups


def test_groups_in_an_unknown_way_are_refused():
    with pytest.raises(ValueError, match="unknown way: something"):
        hlo.groups_of("f32[4] all-reduce(%p), replica_groups=something, to_apply=%add")
    with pytest.raises(ValueError, match="no ENTRY"):
        hlo.collectives_of("nothing")


def test_shapes_of_several_tensors_and_of_asynchronous_pairs():
    found = hlo.collectives_of(
        program(
            "(f32[], bf16[128,784]{1,0:T(8,128)}, /*index=2*/pred[3]{0}) all-reduce(%a, %b, %c), "
            "replica_groups={{0,1,2,3}}, to_apply=%add",
            "(f32[4,2]{1,0}, f32[4,8]{1,0}) all-gather-start(%p), replica_groups={{0,1,2,3}}",
            "f32[4,8]{1,0} all-gather-done(%s)",
            "((f32[2], f32[3]), (f32[8], f32[12])) all-gather-start(%p, %q), replica_groups={}",
            "((f32[8]{0}), f32[2]{0}, u32[]) reduce-scatter-start(%p), replica_groups={{0,1,2,3}}",
            "f32[8]{0} all-reduce-start(%p), replica_groups={}, to_apply=%add",
            "(f32[4], f32[4], u32[], u32[]) collective-permute-start(%p), "
            "source_target_pairs={{0,1},{1,0}}",
            "f32[4] collective-permute-done(%s)",
            "f32[4]{0} fusion(%all-reduce.3), kind=kLoop, calls=%f",
        )
    )
    assert [(each.kind, each.tensors, each.payload) for each in found] == [
        ("all-reduce", (("f32", ()), ("bf16", (128, 784)), ("pred", (3,))), 4 + 2 * 128 * 784 + 3),
        ("all-gather", (("f32", (4, 8)),), 128),
        ("all-gather", (("f32", (8,)), ("f32", (12,))), 80),
        ("reduce-scatter", (("f32", (2,)),), 32),
        ("all-reduce", (("f32", (8,)),), 32),
        ("collective-permute", (("f32", (4,)),), 16),
    ]


INNER = """
%body (p: (s32[], f32[4])) -> (s32[], f32[4]) {
  %r = f32[4]{0} all-reduce(%x), replica_groups={}, to_apply=%add
}

%cond (p: (s32[], f32[4])) -> pred[] {
  ROOT %lt = pred[] compare(%a, %b), direction=LT
}
"""


@pytest.mark.parametrize(
    ("lines", "times", "exact"),
    [
        (["(s32[], f32[4]) while(%t), condition=%cond, body=%body, "
          'backend_config={"known_trip_count":{"n":"5"}}'], 5, True),
        (["(s32[], f32[4]) while(%t), condition=%cond, body=%body"], 1, False),
        (["f32[4] conditional(%i, %a, %b), branch_computations={%body, %cond}"], 1, False),
        (["f32[4] conditional(%i, %a, %b), true_computation=%body, false_computation=%cond"],
         1, False),
        (["f32[4] call(%a), to_apply=%body"], 1, True),
        (["((f32[4]), f32[4]) async-start(%a), calls=%body", "f32[4] async-done(%s), calls=%body"],
         1, True),
    ],
)  # fmt: skip
def test_loops_and_branches(lines, times, exact):
    (found,) = hlo.collectives_of(program(*lines, before=INNER))
    assert (found.times, found.exact) == (times, exact)


# --- JAX and Keras ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    """Where XLA writes the programs of training steps that it compiles."""
    return str(tmp_path_factory.mktemp("hlo"))


@pytest.fixture(scope="module")
def jax(folder) -> Iterator[Interpreter]:
    flags = f"--xla_dump_to={folder} --xla_dump_hlo_module_re=.*train_step.*"
    code = 'distlab.virtual_devices(8, "jax")'
    with started(code, KERAS_BACKEND="jax", XLA_FLAGS=flags) as python:
        yield python


def test_each_collective_over_each_axis_of_a_jax_mesh(jax):
    out = jax.run("""
import itertools, jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
shard_map = jax.shard_map
OPS = {
    "all-reduce": jax.lax.psum,
    "all-gather": lambda x, a: jax.lax.all_gather(x, a, tiled=True),
    "reduce-scatter": lambda x, a: jax.lax.psum_scatter(x, a, tiled=True),
    "all-to-all": lambda x, a: jax.lax.all_to_all(x, a, 0, 0, tiled=True),
}
out["wrong"] = []
out["seen"] = 0
for shape in (8,), (2, 4), (2, 2, 2), (1, 8):
    names = ("a", "b", "c")[: len(shape)]
    for devices in np.arange(8), np.array([3, 1, 4, 0, 5, 2, 6, 7]):
        mesh = Mesh(np.array(jax.devices())[devices].reshape(shape), names)
        x = jax.ShapeDtypeStruct((16, 3), "float32", sharding=NamedSharding(mesh, P()))
        for number in range(1, len(shape) + 1):
            for axes in itertools.combinations(names, number):
                size = int(np.prod([mesh.shape[a] for a in axes]))
                if 1 in (mesh.shape[a] for a in axes):
                    continue
                for kind, op in OPS.items():
                    step = shard_map(lambda x: op(x, axes), mesh=mesh, in_specs=P(), out_specs=P(),
                                     check_vma=False)
                    found = collectives.count(step, x)
                    payload = 16 * 3 * 4 * (size if kind == "all-gather" else 1)
                    mine = (1, kind, axes, size, payload)
                    (c, *more) = found.collectives
                    theirs = (1 + len(more), c.kind, c.axes, c.devices, found.payload)
                    out["seen"] += 1
                    if mine != theirs:
                        out["wrong"].append([mine, theirs])
        step = shard_map(lambda x: jax.lax.ppermute(x, names[-1], [(0, 1), (1, 0)]), mesh=mesh,
                         in_specs=P(), out_specs=P(), check_vma=False)
        (c,) = collectives.count(step, x).collectives
        if (c.kind, c.axes) != ("collective-permute", (names[-1],)):
            out["wrong"].append([c.kind, c.axes])

mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("a", "b"))
whole = NamedSharding(mesh, P())
x = jax.device_put(np.ones((8, 8), "float32"), whole)
loop = shard_map(
    lambda x: jax.lax.scan(lambda c, _: (jax.lax.psum(c * c, "b"), None), x, length=6)[0],
    mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False)
found = collectives.count(jax.jit(loop), x)
out["loop"] = [found.calls, found.payload, found.sent]
lowered = jax.jit(loop).lower(x)
out["lowered"] = repr(collectives.count(lowered)) == repr(found)
out["compiled"] = repr(collectives.count(lowered.compile())) == repr(found)
out["none"] = repr(collectives.count(lambda x: x * 2, x))
try:
    collectives.count(lowered, x)
except TypeError as error:
    out["error"] = str(error)
""")
    assert out["wrong"] == []
    assert out["seen"] == 2 * 4 * (1 + 3 + 7 + 1)
    assert out["loop"] == [6, 6 * 256, 6 * 384]
    assert out["lowered"]
    assert out["compiled"]
    assert out["none"] == "no communication"
    assert "takes no arguments" in out["error"]


KERAS = """
import keras, numpy as np
from distlab import layouts
D, L = keras.distribution, keras.layers
x = np.random.default_rng(0).normal(size=(64, 784)).astype("float32")
y = np.zeros(64, "int32")

def mlp(compiled=True):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([
        keras.Input((784,)), L.Dense(512, activation="relu", name="d1"), L.Dropout(0.1),
        L.Dense(10, name="d2"),
    ])
    if compiled:
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                      metrics=["accuracy"])
    return model

def parallel(shape, rules=()):
    map = D.LayoutMap(D.DeviceMesh(shape, ["data", "model"]))
    for key, axes in dict(rules).items():
        map[key] = axes
    D.set_distribution(D.ModelParallel(layout_map=map, batch_dim_name="data"))

def rows(step):
    return sorted([c.kind, list(c.axes), c.payload] for c in step.collectives)
"""


@pytest.fixture(scope="module")
def keras(jax, folder) -> dict:
    """Everything about Keras."""
    return jax.run(f"""{KERAS}
import pathlib
from distlab.layouts import hlo

def programs():
    return set(pathlib.Path({folder!r}).glob("*train_step*after_optimizations.txt"))

def found(path):
    program = path.read_text()
    groups = [hlo.groups_of(line) for line in program.splitlines() if "replica_groups" in line]
    return [sorted(map(repr, each)) for each in (hlo.collectives_of(program), groups)]

parallel((2, 4), {{".*d1/kernel": (None, "model")}})
mlp().fit(x, y, batch_size=64, verbose=0)
(fit,) = programs()
collectives.count_train_step(mlp(), x, y)
(ours,) = programs() - {{fit}}
out["fit"] = {{"same": found(fit) == found(ours), "number": len(found(ours)[0])}}

D.set_distribution(D.DataParallel(devices=D.list_devices()))
model = mlp()
before = [np.asarray(v.value) for v in model.variables]
step = collectives.count_train_step(model, x, y)
out["data parallel"] = {{
    "kinds": sorted({{(c.kind, *c.axes, c.devices) for c in step.collectives}}),
    "payload": step.payload,
    "untouched": all(map(np.array_equal, before, [v.value for v in model.variables])),
    "counters": [int(model.optimizer.iterations), float(model.metrics[0].result())],
}}
model.fit(x, y, verbose=0)
again = collectives.count_train_step(model, x, y)
out["data parallel"]["after fit"] = rows(again) == rows(step)

RULES = {{".*d1/kernel": (None, "model"), ".*d1/bias": ("model",), ".*d2/kernel": ("model", None)}}
for shape in (8, 1), (4, 2), (2, 4), (1, 8):
    parallel(shape, RULES)
    model = mlp()
    step = collectives.count_train_step(model, x, y)
    out[str(shape)] = {{
        "data": step.select("all-reduce", "data").payload,
        "model": step.select("all-reduce", "model").payload,
        "all": step.payload,
    }}
D.set_distribution(None)
out["alone"] = repr(collectives.count_train_step(mlp(), x, y))

def attempt(name, call):
    try:
        call()
        out[name] = "no error"
    except Exception as error:
        out[name] = [type(error).__name__, str(error)]

eager = mlp()
eager.compile("adam", "mse", run_eagerly=True)
lazy = keras.Sequential([L.Dense(3), L.BatchNormalization()])
lazy.compile("sgd", "mse")
attempt("not compiled", lambda: collectives.count_train_step(mlp(compiled=False), x, y))
attempt("eager", lambda: collectives.count_train_step(eager, x, y))
parallel((2, 4), {{}})
attempt("indivisible", lambda: collectives.count_train_step(mlp(), x[:25], y[:25]))
D.set_distribution(None)
attempt("not built", lambda: collectives.count_train_step(lazy, x, np.zeros((64, 3), "float32")))
""")


def test_the_step_counted_is_the_step_that_fit_runs(keras):
    """XLA writes every program it compiles to files: the one of `fit` and ours."""
    assert keras["fit"]["same"]
    assert keras["fit"]["number"] > 0


def test_keras_data_parallel_all_reduces_the_gradients(keras):
    found = keras["data parallel"]
    assert found["kinds"] == [["all-reduce", "batch", 8]]
    gradients = 4 * (784 * 512 + 512 + 512 * 10 + 10)
    assert gradients <= found["payload"] <= gradients + 64  # loss and metrics are scalars


def test_counting_trains_nothing(keras):
    found = keras["data parallel"]
    assert found["untouched"]
    assert found["counters"] == [0, 0.0]
    assert found["after fit"]


def test_keras_model_parallel_on_every_mesh(keras, subtests):
    for data, model in [(8, 1), (4, 2), (2, 4), (1, 8)]:
        with subtests.test(data=data, model=model):
            found = keras[f"({data}, {model})"]
            gradients = 4 * ((784 * 512 + 512 + 512 * 10) // model + 10)
            logits = 4 * 64 // data * 10  # summed over the parts of the hidden layer
            assert 0 <= found["data"] - gradients * (data > 1) <= 64
            assert found["model"] == logits * (model > 1)
            assert found["all"] == found["data"] + found["model"]


def test_keras_on_one_device(keras):
    assert keras["alone"] == "no communication"


def test_keras_models_that_cannot_be_counted_say_why(keras):
    assert keras["not compiled"][0] == keras["eager"][0] == "RuntimeError"
    assert "model.compile" in keras["not compiled"][1]
    assert "run_eagerly" in keras["eager"][1]
    assert keras["not built"] == "no error"
    words = "A batch of 25 is not divisible by 2, the size of the mesh axis 'data'"
    assert keras["indivisible"][0] == "ValueError" and words in keras["indivisible"][1]


# --- PyTorch ----------------------------------------------------------------------------------


TORCH = """
import torch, torch.distributed as dist
from torch import nn
def mlp():
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
def rows(seen):
    return [[c.kind, list(c.axes), c.devices, c.payload] for c in seen.communication.collectives]
"""


@pytest.fixture(scope="module")
def torch() -> Iterator[Interpreter]:
    with started(TORCH) as python:
        yield python


@needs_torch
def test_torch_ddp_over_gloo(tmp_path):
    """Two real ranks: DistributedDataParallel sums each gradient once, in buckets."""
    with started(TORCH) as python:  # one of its own: the other has threads, and cannot fork
        out = python.run(f"""
import os
from torch.nn.parallel import DistributedDataParallel
torch.set_num_threads(1)
child = os.fork()
dist.init_process_group(
    "gloo", init_method="file://{tmp_path}/store", rank=int(child == 0), world_size=2)
model = DistributedDataParallel(mlp())
with collectives.watch() as seen:
    model(torch.ones(8, 16)).sum().backward()
out["rows"] = rows(seen)
with collectives.watch() as seen:
    mlp()(torch.ones(8, 16)).sum().backward()
out["none"] = repr(seen.communication)
dist.barrier()
dist.destroy_process_group()
if child == 0:
    os._exit(0)
out["child"] = os.waitpid(child, 0)[1]
""")
    gradients = 4 * (16 * 32 + 32 + 32 * 8 + 8)
    assert out["rows"] == [["all-reduce", [], 2, gradients]]
    assert out["none"] == "no communication"
    assert out["child"] == 0


@needs_torch
def test_torch_modules_of_one_name_run_on_after_a_watch(torch):
    """Modules in a plain list have no names of their own, and neither have Keras' layers."""
    out = torch.run("""
class Listed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = [torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)]

    def forward(self, x):
        for step in self.steps:
            x = step(x)
        return x

model = Listed()
with collectives.watch() as seen:
    model(torch.ones(2, 4)).sum().backward()
hooks = [len(step._forward_hooks) for step in model.steps]
out["hooks"], out["shape"] = hooks, list(model(torch.ones(2, 4)).shape)
""")
    assert out == {"hooks": [0, 0], "shape": [2, 4]}


@needs_torch
def test_torch_collectives_and_the_axes_they_run_over(torch):
    out = torch.run("""
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.testing._internal.distributed.fake_pg import FakeStore
dist.init_process_group("fake", store=FakeStore(), rank=5, world_size=8)
mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))

def train(model):
    with CommDebugMode() as theirs, collectives.watch(mesh) as seen:
        model(torch.ones(8, 16)).sum().backward()
    with CommDebugMode() as theirs:
        model(torch.ones(8, 16)).sum().backward()
    return rows(seen), theirs.get_total_counts(), seen.communication.calls

model = mlp()
parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
out["tp"], *out["tp calls"] = train(model)
model = mlp()
fully_shard(model, mesh=mesh["dp"])
out["fsdp"], *out["fsdp calls"] = train(model)

t = torch.ones(8)
many = [torch.ones(8) for _ in range(8)]
with collectives.watch(mesh) as seen:
    dist.all_reduce(t, group=mesh.get_group("tp"))
    dist.broadcast(t, 0)
    dist.all_gather(many, t)
    dist.all_gather_into_tensor(torch.ones(64), t)
    dist.reduce_scatter_tensor(torch.ones(1), t)
    dist.all_to_all_single(torch.ones(8), t)
    dist.reduce(t, 5)
    dist.gather(t, many, dst=5)
    dist.scatter(t, many, src=5)
out["by hand"] = rows(seen)
dist.destroy_process_group()
""")
    assert out["tp"] == [["all-reduce", ["tp"], 4, 4 * 8 * 8]]  # the output of the second layer
    assert out["tp calls"][0] == out["tp calls"][1] == 1
    weights = 4 * (16 * 32 + 32 + 32 * 8 + 8)
    assert out["fsdp"] == [
        ["all-gather", ["dp"], 2, weights],
        ["reduce-scatter", ["dp"], 2, weights],
    ]
    assert out["fsdp calls"][0] == out["fsdp calls"][1] == 2
    everyone = ["dp", "tp"]
    assert out["by hand"] == [
        ["all-reduce", ["tp"], 4, 32],
        ["broadcast", everyone, 8, 32],
        ["all-gather", everyone, 8, 256],
        ["all-gather", everyone, 8, 256],
        ["reduce-scatter", everyone, 8, 32],
        ["all-to-all", everyone, 8, 32],
        ["reduce", everyone, 8, 32],
        ["gather", everyone, 8, 256],
        ["scatter", everyone, 8, 256],
    ]


# --- what is shown ----------------------------------------------------------------------------

STEP = Communication(
    (
        Collective("all-reduce", ("data",), 2, (("f32", (784, 128)), ("f32", (128,)))),
        Collective("all-gather", ("data", "model"), 8, (("bf16", (8, 8)),), times=3),
        Collective("all-reduce", ("data",), 2, (("f32", ()),), exact=False),
    )
)


def test_a_step_as_text_and_html():
    assert repr(STEP) == (
        "collective  over            devices    calls  tensors    bytes  bytes sent\n"
        "all-gather  data and model        8        3        3      384         336\n"
        "all-reduce  data                  2  about 2        3  401,924     401,924"
    )
    assert STEP._repr_html_().count("<tr>") == 3
    assert STEP.calls == 5
    assert STEP.select("all-gather").payload == 3 * 128
    assert STEP.select(axes=("model", "data")).calls == 3
    assert STEP.select("all-gather", "data").collectives == ()


def test_axes_of_groups_that_are_no_whole_axes():
    mesh = Mesh((("a", 2), ("b", 4)), tuple(f"cpu:{i}" for i in range(8)))
    assert axes_of_groups([(0, 1), (2, 3), (4, 5), (6, 7)], mesh) == ()
    assert axes_of_groups([(0, 1, 2, 3), (4, 5, 6, 7)], mesh) == ("b",)
    assert axes_of_groups([tuple(range(8))], mesh) == ("a", "b")
    assert axes_of_groups([(0, 1)], None) == ()
