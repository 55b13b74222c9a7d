"""Bytes of the types that a program asks for, where this machine moves wider ones."""

import contextlib
from collections.abc import Iterator

import pytest
from _interpreter import Interpreter
from _processes import require

HEAD = """
import distlab
distlab.virtual_devices(8, "jax")
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from distlab import collectives
mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("a", "b"))

def array(shape, dtype, *spec):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))

def on_each(function, *args):
    step = jax.shard_map(function, mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False)
    return collectives.count(step, *args)
"""


@pytest.fixture(scope="module")
def jax() -> Iterator[Interpreter]:
    require("jax")
    with contextlib.closing(Interpreter(HEAD, KERAS_BACKEND="jax")) as python:
        yield python


def test_each_collective_of_each_narrow_type(jax):
    out = jax.run("""
OPS = {
    "all-reduce": jax.lax.psum,
    "all-gather": lambda x, a: jax.lax.all_gather(x, a, tiled=True),
    "reduce-scatter": lambda x, a: jax.lax.psum_scatter(x, a, tiled=True),
    "all-to-all": lambda x, a: jax.lax.all_to_all(x, a, 0, 0, tiled=True),
    "collective-permute": lambda x, a: jax.lax.ppermute(x, a, [(0, 1), (1, 0)]),
}
for dtype in "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "int4", "uint4", "float32":
    for kind, op in OPS.items():
        found = on_each(lambda x: op(x, "b"), array((16, 4), dtype))
        out[f"{dtype} {kind}"] = [found.payload, found.payload_moved]
""")
    bits = {"bfloat16": 16, "float16": 16, "float32": 32, "int4": 4, "uint4": 4}
    widened = {"bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "uint4"}
    for name, (asked, moved) in out.items():
        dtype, kind = name.split()
        expected = 64 * bits.get(dtype, 8) // 8 * (4 if kind == "all-gather" else 1)
        assert asked == expected, name
        assert moved == expected * (2 if dtype in widened else 1), name


def test_gradients_whose_conversions_xla_removes(jax):
    """XLA adds up in float32 what it then need not convert; three all-reduces become one."""
    out = jax.run("""
def step(weights, x):
    def loss(weights):
        y = x.astype(jnp.bfloat16)
        for w in weights:
            y = jnp.tanh(y @ w)
        return y.astype(jnp.float32).sum()
    return jax.tree.map(lambda w, g: w - g, weights, jax.grad(loss)(weights))
shapes = [array((64, 64), "bfloat16", *spec) for spec in ((None, "b"), ("b", None), ())]
found = collectives.count(step, shapes, array((16, 64), "float32", "a"))
out["data"] = [found.select(axes="a").payload, found.select(axes="a").payload_moved]
out["shown"] = [repr(found), found._repr_html_()]
wide = jax.tree.map(lambda s: array(s.shape, "float32", *s.sharding.spec), shapes)
out["compiled"] = repr(
    collectives.count(jax.jit(step).lower(shapes, array((16, 64), "float32", "a")).compile()))
out["wide"] = repr(collectives.count(lambda ws, x: [w @ x.T for w in ws], wide, shapes[2]))
""")
    gradients = 64 * 64 // 4 * 2 + 64 * 64  # two are sharded over b
    assert out["data"] == [2 * gradients, 4 * gradients]
    for shown in out["shown"]:
        assert "The CPU moves bf16 as f32" in shown
    assert "count the function, or what lower() returned" in out["compiled"]
    assert "CPU" not in out["wide"]


def test_wide_and_narrow_ones_side_by_side(jax):
    out = jax.run("""
def mixed(x, y):
    widened = jax.lax.psum(y.astype("float32"), "a").astype("bfloat16")  # by the program itself
    return jax.lax.psum(x, "b"), jax.lax.psum(y, "b"), widened
found = on_each(mixed, array((16, 4), "float32"), array((16, 4), "bfloat16"))
out["b"] = sorted(dtype for c in found.select(axes="b").collectives for dtype, _ in c.tensors)
out["a"] = [dtype for c in found.select(axes="a").collectives for dtype, _ in c.tensors]
loop = lambda x: jax.lax.scan(lambda c, _: (jax.lax.psum(c * c, "b"), None), x, length=6)[0]
found = on_each(loop, array((16, 4), "bfloat16"))
out["loop"] = [found.calls, found.payload, found.payload_moved]
""")
    assert out["b"] == ["bf16", "f32"]
    assert out["a"] == ["f32"]
    assert out["loop"] == [6, 6 * 128, 6 * 256]


def test_a_mixed_precision_step_of_keras(jax):
    require("keras")
    out = jax.run("""
import keras
keras.config.set_dtype_policy("mixed_bfloat16")
keras.distribution.set_distribution(
    keras.distribution.DataParallel(devices=keras.distribution.list_devices()))
model = keras.Sequential([keras.Input((32,)), keras.layers.Dense(16)])
model.compile("sgd", "mse")
found = collectives.count_train_step(model, np.ones((64, 32)), np.ones((64, 16)))
out["types"] = sorted({(d, int(np.prod(s))) for c in found.collectives for d, s in c.tensors if s})
""")
    assert out["types"] == [["bf16", 16], ["bf16", 32 * 16]]


def test_pytorch_is_watched_in_the_types_that_the_program_passes():
    require("torch")
    with contextlib.closing(Interpreter("from distlab import collectives")) as python:
        out = python.run("""
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
mesh = init_device_mesh("cpu", (1,), mesh_dim_names=("data",))
x = torch.ones(8, dtype=torch.bfloat16)
with collectives.watch(mesh) as seen:
    dist.all_reduce(x)
    torch.distributed._functional_collectives.all_gather_tensor(x, 0, (mesh, 0)).sum()
step = seen.communication
out["types"] = [dtype for c in step.collectives for dtype, _ in c.tensors]
out["payload"] = [c.payload for c in step.collectives]
dist.destroy_process_group()
""")
    assert out["types"] == ["bfloat16", "bfloat16"]
    assert out["payload"] == [16, 16]
