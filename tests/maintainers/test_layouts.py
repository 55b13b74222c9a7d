"""The neutral view against the frameworks' own answer, each framework in a process of its own."""

import contextlib
import math
from collections.abc import Iterator
from importlib.util import find_spec

import numpy as np
import pytest
from _interpreter import Interpreter
from hypothesis import given, settings
from hypothesis import strategies as st

from distlab import layouts
from distlab.layouts.view import Mesh, itemsize, split
from distlab.layouts.words import sentence

RANKS = 8
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")


ATTEMPT = """
import distlab
from distlab.layouts import layout_of

def attempt(words, function):
    try:
        out[words] = f"no error but {function()!r}"
    except (TypeError, ValueError) as error:
        kind = "TypeError" if isinstance(error, TypeError) else "ValueError"
        out[words] = f"{kind}: {error}"
"""


class Framework(Interpreter):
    """A process that has started a framework with eight devices, and answers one case a call.

    The code it is given defines `answer(case)`. Whatever it runs may `attempt(words, function)`,
    which notes the error that a call raises under the words that it should have.
    """

    def __init__(self, code: str) -> None:
        super().__init__(ATTEMPT + code, KERAS_BACKEND="jax", CUDA_VISIBLE_DEVICES="-1")

    def __call__(self, **case):
        return self.run(f"out['answer'] = answer({case!r})")["answer"]

    def refuses(self, code: str) -> None:
        """Run attempts, each of which has to fail in the words it is given."""
        out = self.run(code)
        assert out
        for words, found in out.items():
            kind, told = words.split(": ", 1)
            assert found.startswith(f"{kind}: "), (words, found)
            assert told in found, (words, found)


def serve(code: str) -> Iterator[Framework]:
    with contextlib.closing(Framework(code)) as framework:
        yield framework


@pytest.fixture(scope="module")
def jax() -> Iterator[Framework]:
    yield from serve(
        """
distlab.virtual_devices(8, "jax")
import jax, keras, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

def plain(layout):
    return {d: [[s.start, s.stop] for s in index] for d, index in layout.slices.items()}

def answer(case):
    shape, names = tuple(case["shape"]), [f"a{i}" for i in range(len(case["mesh"]))]
    devices = np.array([jax.devices()[i] for i in case["devices"]]).reshape(case["mesh"])
    mesh = Mesh(devices, names)
    spec = [None if not axes else tuple(f"a{i}" for i in axes) for axes in case["spec"]]
    sharding = NamedSharding(mesh, PartitionSpec(*spec))
    x = jax.device_put(np.zeros(shape, case["dtype"]), sharding)
    theirs = {
        f"{s.device.platform}:{s.device.id}": [
            list(part.indices(n)[:2]) for part, n in zip(s.index, shape)
        ]
        for s in x.addressable_shards
    }
    array = layout_of(x)
    out = {
        "theirs": theirs,
        "array": plain(array),
        "sharding": plain(layout_of(sharding, shape)),
        "shard": list(array.shard_shape),
        "their shard": list(sharding.shard_shape(shape)),
        "bytes": array.bytes_per_device,
        "their bytes": x.addressable_shards[0].data.nbytes,
        "held": list(array.bytes_by_device.values()),
        "their held": [s.data.nbytes for s in x.addressable_shards],
        "counts": [array.num_slices, array.copies, array.is_whole],
        "their counts": [
            len(set(map(str, sharding.devices_indices_map(shape).values()))),
            1 + max(s.replica_id for s in x.addressable_shards),
            sharding.is_fully_replicated,
        ],
    }
    from jax._src.sharding_impls import GSPMDSharding  # what some jitted functions return
    unnamed = GSPMDSharding(tuple(devices.flat), sharding._to_xla_hlo_sharding(len(shape)))
    out["unnamed"] = plain(layout_of(unnamed, shape))
    if all(entry is None or len(entry) == 1 for entry in spec):
        keras_mesh = keras.distribution.DeviceMesh(
            case["mesh"], names, [f"cpu:{d.id}" for d in devices.flat]
        )
        axes = [entry and entry[0] for entry in spec]
        layout = keras.distribution.TensorLayout(axes, keras_mesh)
        out["keras"] = plain(layout_of(layout, shape))
        value = keras.distribution.distribute_tensor(np.zeros(shape, case["dtype"]), layout)
        out["keras value"] = plain(layout_of(value))
    return out
"""
    )


@pytest.fixture(scope="module")
def dtensor() -> Iterator[Framework]:
    yield from serve(
        """
distlab.virtual_devices(8, "tensorflow")
import numpy as np, tensorflow as tf
from tensorflow.experimental import dtensor

def answer(case):
    shape = tuple(case["shape"])
    n = int(np.prod(case["mesh"]))
    names = [f"a{i}" for i in range(len(case["mesh"]))]
    mesh = dtensor.create_mesh(
        list(zip(names, case["mesh"])), devices=[f"CPU:{i}" for i in range(n)]
    )
    spec = [f"a{axes[0]}" if axes else dtensor.UNSHARDED for axes in case["spec"]]
    layout = dtensor.Layout(spec, mesh)
    whole = np.arange(np.prod(shape, dtype=int), dtype="int32").reshape(shape)
    replicated = dtensor.copy_to_mesh(
        tf.constant(whole), dtensor.Layout.replicated(mesh, rank=len(shape))
    )
    value = dtensor.relayout(replicated, layout)
    variable = dtensor.DVariable(value, name="w")
    parts = [np.asarray(part) for part in dtensor.unpack(value)]
    out = {}
    for kind, view in {
        "value": layout_of(value),
        "variable": layout_of(variable),
        "layout": layout_of(layout, shape),
    }.items():
        cut = [whole[index] for index in view.slices.values()]
        out[kind] = len(cut) == len(parts) and all(map(np.array_equal, cut, parts))
    out["devices"] = list(view.mesh.devices)
    return out
"""
    )


@pytest.fixture(scope="module")
def torch() -> Iterator[Framework]:
    """Eight ranks, one after the other: a fake group has a rank, and talks to no other."""
    yield from serve(
        """
import torch, torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor import _utils
from torch.distributed.tensor.placement_types import _StridedShard
from torch.testing._internal.distributed.fake_pg import FakeStore

KINDS = {
    "shard": lambda d, f: Shard(d),
    "strided": lambda d, f: _StridedShard(d, split_factor=f),
    "replicate": lambda d, f: Replicate(),
    "partial": lambda d, f: Partial(),
}

def one_rank(rank, case):
    shape = tuple(case["shape"])
    mesh = DeviceMesh("cpu", torch.tensor(case["devices"]).reshape(case["mesh"]))
    placements = [KINDS[kind](d, f) for kind, d, f in case["placements"]]
    view = layout_of((mesh, placements), shape)
    if mesh.get_coordinate() is None:
        return None
    index = view.slices[f"rank {rank}"]
    size, offset = _utils.compute_local_shape_and_global_offset(shape, mesh, placements)
    out = {
        "slice": [[s.start, s.stop] for s in index],
        "shape": list(size),
        "offset": list(offset),
        "partial": list(view.partial),
    }
    if all(kind in ("shard", "replicate") for kind, _, _ in case["placements"]):
        whole = torch.arange(int(torch.tensor(shape).prod())).reshape(shape)
        value = distribute_tensor(whole, mesh, placements, src_data_rank=None)
        out["same"] = torch.equal(value.to_local(), whole[layout_of(value).slices[f"rank {rank}"]])
    return out

def answer(case):
    found = []
    for rank in range(8):
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=8)
        try:
            found.append(one_rank(rank, case))
        finally:
            dist.destroy_process_group()
    return found
"""
    )


@st.composite
def meshes(draw) -> list[int]:
    """Shapes of meshes of at most eight devices."""
    shape: list[int] = []
    for _ in range(draw(st.integers(1, 3))):
        shape.append(draw(st.integers(1, RANKS // math.prod(shape))))
    return shape


@st.composite
def layouts_on_meshes(draw, *, several_axes=True) -> dict:
    """A mesh, a spec, and a shape that divides by it."""
    mesh = draw(meshes())
    dimensions = draw(st.integers(0, 4))
    spec: list[list[int]] = [[] for _ in range(dimensions)]
    for axis in draw(st.permutations(range(len(mesh)))):
        choices = [d for d in range(dimensions) if several_axes or not spec[d]]
        where = draw(st.sampled_from([None, *choices]))
        if where is not None:
            spec[where].append(axis)
    shape = [math.prod(mesh[axis] for axis in axes) * draw(st.integers(1, 4)) for axes in spec]
    used = math.prod(mesh)
    devices = draw(st.permutations(range(RANKS)))[:used]
    return {"mesh": mesh, "devices": devices, "spec": spec, "shape": shape}


@settings(max_examples=120, deadline=None)
@given(case=layouts_on_meshes(), dtype=st.sampled_from(["float32", "uint8", "bool", "bfloat16"]))
def test_slices_are_those_of_jax_and_keras(jax, case, dtype):
    out = jax(**case, dtype=dtype)
    for kind in ("array", "sharding", "unnamed", "keras", "keras value"):
        if kind in out:
            assert out[kind] == out["theirs"], kind
    for kind in ("shard", "bytes", "held", "counts"):
        assert out[kind] == out[f"their {kind}"], kind


@settings(max_examples=60, deadline=None)
@given(case=layouts_on_meshes(several_axes=False))
def test_slices_are_those_that_dtensor_unpacks(dtensor, case):
    out = dtensor(**case)
    assert out.get("value"), out
    assert out["variable"]
    assert out["layout"]
    assert out["devices"] == [f"cpu:{i}" for i in range(math.prod(case["mesh"]))]


@st.composite
def placements(draw) -> dict:
    """Any placements PyTorch allows: uneven, empty, several axes on one dimension."""
    mesh = draw(meshes())
    dimensions = draw(st.integers(1, 4))
    chosen = []
    for _ in mesh:
        kind = draw(st.sampled_from(["shard", "shard", "replicate", "partial"]))
        chosen.append((kind, draw(st.integers(0, dimensions - 1)), 1))
    devices = draw(st.permutations(range(RANKS)))[: math.prod(mesh)]
    shape = draw(st.lists(st.integers(1, 11), min_size=dimensions, max_size=dimensions))
    return {"mesh": mesh, "devices": devices, "shape": shape, "placements": chosen}


@st.composite
def fsdp_and_tensor_parallel(draw) -> dict:
    """FSDP over a dimension that tensor parallelism has split: the inner axis is cut first."""
    fsdp, tp = draw(st.sampled_from([(2, 2), (4, 2), (2, 4), (2, 3)]))
    shape = [fsdp * tp * draw(st.integers(1, 4)), draw(st.integers(1, 5))]
    chosen = [("strided", 0, tp), ("shard", 0, 1)]
    devices = list(range(fsdp * tp))
    return {"mesh": [fsdp, tp], "devices": devices, "shape": shape, "placements": chosen}


@needs_torch
@settings(max_examples=140, deadline=None)
@given(case=st.one_of(placements(), placements(), placements(), fsdp_and_tensor_parallel()))
def test_slices_are_those_of_torch(torch, case):
    for rank, out in enumerate(torch(**case)):
        if out is None:
            assert rank not in case["devices"]
            continue
        assert [stop - start for start, stop in out["slice"]] == out["shape"]
        if math.prod(out["shape"]):  # where an empty shard starts means nothing
            assert [start for start, _ in out["slice"]] == out["offset"]
        assert out.get("same", True)
        kinds = [kind for kind, _, _ in case["placements"]]
        assert len(out["partial"]) == kinds.count("partial")


def test_bytes_per_element(subtests):
    for dtype, size in [
        ("float32", 4), ("f32", 4), ("bool", 1), ("pred", 1), ("bfloat16", 2), ("complex64", 8),
        ("float8_e4m3fn", 1), ("int4", 1), ("uint8", 1), ("string", None), (None, None),
    ]:  # fmt: skip
        with subtests.test(dtype=dtype):
            assert itemsize(dtype) == size


MESH = Mesh((("data", 2), ("model", 4)), tuple(f"cpu:{i}" for i in range(8)))


def test_a_layout_in_words(subtests):
    for shape, spec, words in [
        ((64, 28, 28, 1), [("data",)],
         "Dimension 0 sharded 2 ways over data, dimensions 1 to 3 not sharded, "
         "each slice on 4 devices."),
        ((8,), [("data", "model")],
         "Dimension 0 sharded 8 ways over data and model, each slice on 1 device."),
        ((3, 3), [], "Replicated on 8 devices."),
        ((), [], "Replicated on 8 devices."),
    ]:  # fmt: skip
        with subtests.test(words, shape=shape):
            assert sentence(split(shape, MESH, spec)) == words


def test_a_layout_that_does_not_fit(subtests):
    for shape, spec, message in [
        ((3, 4), [("data",)], "dimension 0 has size 3, which is not divisible by 2"),
        ((4,), [("data",), ()], "has 1 dimension, but the layout is for 2"),
        ((4,), [("pipe",)], "Axis 'pipe' is not in the mesh"),
        ((4, 4), [("data",), ("data",)], "Axis 'data' splits .* twice"),
    ]:
        with subtests.test(message), pytest.raises(ValueError, match=message):
            split(shape, MESH, spec)


def test_a_layout_is_its_own_view():
    layout = split((4,), MESH, [("data",)])
    assert layouts.layout_of(layout) is layout
    assert layouts.mesh_of(layout) is MESH
    with pytest.raises(ValueError, match=r"shape=\[5\] was given"):
        layouts.layout_of(layout, shape=(5,))


def test_a_plain_thing_is_told_how_to_get_a_layout(subtests):
    for plain, words in [
        (np.ones(3), "An ndarray has no layout: NumPy knows no devices. These have one:"),
        ([1, 2], "A list has no layout: give what is in it one by one."),
        ((1, 2), "A tuple has no layout: give what is in it one by one."),
        (None, "A NoneType has no layout."),
        ("kernel", "A str has no layout."),
    ]:
        for function in (layouts.layout_of, layouts.draw):
            with subtests.test(words), pytest.raises(TypeError) as caught:
                function(plain)
            assert str(caught.value).startswith(words)
            for way in ("jax.device_put(x, Named", "distribute_tensor(x, mesh", "Meshes can"):
                assert way in str(caught.value)
    for shape in (5, "5"):
        with subtests.test(shape=shape), pytest.raises(TypeError, match="must be a tuple of sizes"):
            layouts.layout_of(np.ones(3), shape=shape)


def test_bad_input_from_jax_and_keras_gets_one_clear_error(jax):
    jax.refuses("""
import jax, keras, numpy as np
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))
rows = NamedSharding(mesh, P("data"))
x = jax.device_put(np.zeros((4, 4)), rows)
layout = keras.distribution.TensorLayout(("data",))
long, free = NamedSharding(mesh, P("data", None)), NamedSharding(mesh, P(P.UNCONSTRAINED))
nowhere = NamedSharding(mesh.abstract_mesh, P("data"))
attempt("TypeError: An ndarray has no layout", lambda: layout_of(np.ones(3)))
attempt("TypeError: give its shape", lambda: layout_of(rows))
attempt("ValueError: size 3, which is not divisible by 2", lambda: layout_of(rows, (3,)))
attempt("ValueError: layout is for 2", lambda: layout_of(long, (4,)))
attempt("ValueError: shape=[4, 5] was given", lambda: layout_of(x, (4, 5)))
attempt("TypeError: abstract value", lambda: jax.jit(lambda x: layout_of(x))(x))
attempt("TypeError: has no layout", lambda: layout_of(jax.ShapeDtypeStruct((4,), "float32")))
attempt("TypeError: but no devices", lambda: layout_of(nowhere, (4,)))
attempt("ValueError: unconstrained", lambda: layout_of(free, (4,)))
attempt("TypeError: has no device_mesh yet", lambda: layout_of(layout, (4,)))
attempt("TypeError: A KerasTensor is an abstract value", lambda: layout_of(keras.Input((3,))))
dense = keras.layers.Dense(3)
attempt("TypeError: layouts.table", lambda: layout_of(keras.Sequential([dense])))
attempt("TypeError: A Zeros has no layout", lambda: layout_of(keras.initializers.Zeros()))
""")


def test_bad_input_from_tensorflow_gets_one_clear_error(dtensor):
    dtensor.refuses("""
import tensorflow as tf
from tensorflow.experimental import dtensor
mesh = dtensor.create_mesh([("x", 2), ("y", 4)], devices=[f"CPU:{i}" for i in range(8)])
layout = dtensor.Layout(["x", dtensor.UNSHARDED], mesh)
value = dtensor.call_with_layout(tf.ones, layout, shape=(4, 4))
attempt("TypeError: it is a plain tensor", lambda: layout_of(tf.ones(3)))
attempt("TypeError: Variable has no layout: it is a", lambda: layout_of(tf.Variable(1.0)))
attempt("TypeError: give its shape", lambda: layout_of(layout))
attempt("ValueError: size 3, which is not divisible by 2", lambda: layout_of(layout, (3, 3)))
attempt("ValueError: has 1 dimension, but the layout", lambda: layout_of(layout, (4,)))
attempt("ValueError: but the DTensor layout is for 2", lambda: layout_of(layout, (4, 4, 4)))
attempt("TypeError: A Mesh has no layout", lambda: layout_of(mesh))
@tf.function
def f(x):
    attempt("TypeError: abstract value", lambda: layout_of(x))
    return x
f(value)
""")


@needs_torch
def test_bad_input_from_torch_gets_one_clear_error(torch):
    torch.refuses("""
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard
from torch.testing._internal.distributed.fake_pg import FakeStore
dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
mesh = init_device_mesh("cpu", (4, 2), mesh_dim_names=("dp", "tp"))
strided = _StridedShard(0, split_factor=2)
attempt("TypeError: it is a plain PyTorch object", lambda: layout_of(torch.ones(3)))
attempt("TypeError: A Linear has no layout", lambda: layout_of(torch.nn.Linear(2, 2)))
attempt("TypeError: give its shape", lambda: layout_of((mesh, [Shard(0), Shard(1)])))
attempt("ValueError: needs as many placements", lambda: layout_of((mesh, [Shard(0)]), (4,)))
attempt("ValueError: splits dimension 1", lambda: layout_of((mesh, [Shard(0), Shard(1)]), (4,)))
attempt("ValueError: separate pieces", lambda: layout_of((mesh, [strided, Replicate()]), (16,)))
""")


def test_no_framework_is_imported_that_an_object_did_not_bring():
    with contextlib.closing(Framework("")) as python:
        out = python.run("""
import sys
from distlab import collectives, layouts
layouts.draw(layouts.Mesh((("x", 2),), ("cpu:0", "cpu:1")))
attempt("list", lambda: layout_of([1, 2]))
heavy = ("numpy", "jax", "keras", "tensorflow", "torch")
out["after python"] = [name for name in heavy if name in sys.modules]
distlab.virtual_devices(2, "jax")
import jax
layout_of(jax.numpy.ones(3))
out["after jax"] = [m for m in ("keras", "tensorflow", "torch") if m in sys.modules]
""")
    assert out["after python"] == []
    assert out["after jax"] == []
