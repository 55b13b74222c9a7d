"""What a map leaves on every device, and the rules that the lint prints: each is tried."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from _interpreter import Interpreter
from _processes import require
from _tools import ROOT, TOOLS

HEAD = """
import warnings; warnings.simplefilter("ignore")
import distlab
distlab.virtual_devices(8, "jax")
import pathlib, re, tempfile
import keras
from keras import layers as L
from distlab import layouts
D = keras.distribution

def mapped(rules, shape=(2, 4)):
    map = D.LayoutMap(D.DeviceMesh(shape, ["batch", "model"]))
    for key, axes in rules.items():
        map[key] = axes
    return map

def built(map, make):
    D.set_distribution(D.ModelParallel(layout_map=map, batch_dim_name="batch"))
    return make()

def found(model, map, kind):
    return [f for f in layouts.lint(model, map).findings if f.kind == kind]

def pasted(messages, map):
    \"""The lines of the messages, run as a reader would run them.\"""
    lines = [text.partition(" Write: ")[2] for text in messages if " Write: " in text]
    exec("\\n".join(lines), {"layout_map": map})
    return sum(line.count("layout_map[") for line in lines)
"""


@pytest.fixture(scope="module")
def keras() -> Iterator[Interpreter]:
    require("jax")
    with contextlib.closing(Interpreter(HEAD, KERAS_BACKEND="jax")) as python:
        yield python


def test_most_bytes_on_every_device_and_the_rules_that_shard_them(keras):
    out = keras.run("""
class Experts(L.Layer):
    def build(self, shape):
        self.up = self.add_weight(name="expert_gate_dense", shape=(6, shape[-1], 32))
        self.odd = self.add_weight(name="odd", shape=(7, 9, 11))
        self.router = L.Dense(8, name="router_gate_dense")
        self.router.build(shape)
    def call(self, x):
        add = keras.ops.sum
        return x + add(self.router(x)) * add(self.up) * add(self.odd)

def make():
    x = y = keras.Input((16,))
    for i in range(3):
        y = Experts(name=f"block_{i}")(y)
    return keras.Model(x, y)

rules = {".*gate_dense/kernel": (None, "model")}
map = mapped(rules)
model = built(map, make)
report = layouts.lint(model, map)
out["kinds"] = report.kinds()
out["messages"] = [f.message for f in report.findings]
out["paths"] = [list(f.paths) for f in report.findings]
better = mapped(rules)
out["pasted"] = pasted(out["messages"], better)
again = built(better, make)
out["again"] = layouts.lint(again, better).kinds()
out["sharded"] = [list(layouts.table(again)[f"block_{i}/expert_gate_dense"].layout.shard_shape)
                  for i in range(3)]
data_only = mapped(rules, (8, 1))
out["no model axis"] = layouts.lint(built(data_only, make), data_only).kinds()
""")
    assert out["kinds"] == ["replicated", "sibling"]
    share, sibling = out["messages"]
    assert "'block_0/expert_gate_dense' (12 KiB, and 2 like it)" in share
    assert "'block_0/odd' (2,772 B, and 2 like it)" in share
    assert "96 % of the model's" in share
    assert "no simple rule for 1 of them" in share  # 7, 9 and 11 do not divide by 4
    assert out["paths"][0] == [
        f"block_{i}/{n}" for n in ("expert_gate_dense", "odd") for i in range(3)
    ]
    assert "'.*gate_dense/kernel' shards 'block_0/router_gate_dense/kernel' (512 B)" in sibling
    assert "with 'gate_dense' in the name as well" in sibling
    assert out["pasted"] == 1
    assert out["again"] == []
    assert out["sharded"] == [[6, 16, 8]] * 3
    assert out["no model axis"] == []


def test_a_rule_that_begins_with_a_models_name(keras):
    out = keras.run("""
map = mapped({"s/d1/kernel": (None, "model"), ".*d2/kernel": ("model", None)})
layers = lambda: [keras.Input((8,)), L.Dense(8, name="d1"), L.Dense(8, name="d2")]
model = built(map, lambda: keras.Sequential(layers(), name="s"))
out["before"] = [[f.kind, f.message] for f in layouts.lint(model, map).findings]
with tempfile.TemporaryDirectory() as folder:
    model.save(pathlib.Path(folder, "s.keras"))
    loaded = built(map, lambda: keras.saving.load_model(pathlib.Path(folder, "s.keras")))
    out["paths"] = [v.path for v in loaded.variables]
    out["after"] = [[f.kind, f.message] for f in layouts.lint(loaded, map).findings]
    cured = mapped({".*d1/kernel": (None, "model"), ".*d2/kernel": ("model", None)})
    for when, made in {
        "cured": lambda: keras.Sequential(layers(), name="s"),
        "cured, loaded": lambda: keras.saving.load_model(pathlib.Path(folder, "s.keras")),
    }.items():
        out[when] = layouts.lint(built(cured, made), cured).kinds()
""")
    assert out["paths"][0] == "d1/kernel"
    ((kind, message),) = out["before"]
    assert kind == "model-name"
    assert "'s/d1/kernel' begins with the name of a model" in message
    assert "Write '.*d1/kernel', which matches both." in message
    kind, message = out["after"][0]
    assert kind == "unmatched"
    assert "lack the name 's': 'd1/kernel'" in message
    assert "Write '.*d1/kernel', which matches both." in message
    assert out["cured"] == out["cured, loaded"] == []


def test_a_mistyped_key_keeps_the_readers_layout(keras, subtests):
    """The key put right where that is clear, and else the paths alone."""
    out = keras.run("""
def make():
    x = keras.Input((784,))
    y = L.Dense(512, name="d1")(x)
    for name in "dense_1", "dense_2":
        y = L.Dense(16, name=name)(y)
    return keras.Model(x, y)

COLUMNS = (None, "model")
for key, axes in [
    (".*d1/kernal", COLUMNS), ("dens_1/kernel", COLUMNS), ("mlp/d1/kernel", COLUMNS),
    (".*(d1|dense_1)/kernal", COLUMNS), (".*d1/outptu", ("batch", None)),
    ("dense_3/kernel", COLUMNS), ("d4/kernel", COLUMNS), (".*d1/bais", COLUMNS),
    ("up/kernel", COLUMNS), (".*(d1/x|y)/kernal", COLUMNS), (".*dense_1/kernal", ("model",)),
]:
    map = mapped({key: axes})
    D.set_distribution(None)
    report = layouts.lint(make(), map)
    (finding,) = [f for f in report.findings if f.kind == "unmatched"]
    better = mapped({})
    pasted([finding.message], better)
    out[key] = [finding.message, {k: [*better[k].axes] for k in better}]
    bare = [f.message for f in report.findings if f.kind == "replicated"]
    assert not any(repr(path) in text for text in bare for path in finding.paths)
    assert "unmatched" not in layouts.lint(make(), better).kinds()
map = mapped({".*d1/kernel": COLUMNS, ".*d1/kernal": COLUMNS})
out["has a rule"] = [layouts.lint(make(), map).findings[0].message, {}]
""")
    columns = [None, "model"]
    for key, rules, near in [
        (".*d1/kernal", {".*d1/kernel": columns}, "Nearest: 'd1/kernel'."),
        ("dens_1/kernel", {"dense_1/kernel": columns}, "Nearest: 'dense_1/kernel'."),
        ("mlp/d1/kernel", {}, "Nearest: 'd1/kernel'"),
        (
            ".*(d1|dense_1)/kernal",
            {".*(d1|dense_1)/kernel": columns},
            "'d1/kernel', 'dense_1/kernel'",
        ),
        (".*d1/outptu", {".*d1/output": ["batch", None]}, "Nearest: 'd1/output'."),
        ("dense_3/kernel", {}, "'dense_2/kernel', 'dense_1/kernel'"),
        ("d4/kernel", {}, "'d1/kernel'"),
        (".*d1/bais", {}, "Nearest: 'd1/bias'."),  # two dimensions, and it has one
        ("up/kernel", {}, ""),
        (".*(d1/x|y)/kernal", {}, ""),
        (".*dense_1/kernal", {}, "Nearest: 'dense_1/kernel'."),
        ("has a rule", {}, "'.*d1/kernal' matches nothing, so it does nothing. Nearest:"),
    ]:
        with subtests.test(key):
            message, found = out[key]
            assert found == rules, message
            assert near in message


def test_what_belongs_to_a_sharded_kernel(keras):
    """LoRA's matrices and the scales of quantized kernels, in the layouts of their kernels."""
    out = keras.run("""
def make(mode):
    x = keras.Input((8,), dtype="int32")
    y = L.Embedding(64, 16, name="emb")(x)
    y = L.Dense(32, name="d1")(y)
    y = L.Dense(16, name="d2")(y)
    model = keras.Model(x, L.MultiHeadAttention(4, 4, name="mha")(y, y))
    if "lora" in mode:
        for name in "emb", "d1", "d2":
            model.get_layer(name).enable_lora(4)
    if mode != "lora":
        model.quantize(mode.split()[-1])
    return model

rules = {".*d1/kernel": (None, "model"), ".*d2/kernel": ("model", None),
         ".*query/kernel": (None, "model", None), "emb/embeddings": ("model", None)}
for mode in "lora", "int8", "float8", "lora int8":
    map = mapped(rules)
    model = built(map, lambda: make(mode))
    these = found(model, map, "companion")
    out[mode] = sorted(path for f in these for path in f.paths)
    pasted([f.message for f in these], map)
    again = built(map, lambda: make(mode))
    out[f"{mode}, pasted"] = len(found(again, map, "companion"))
    out[f"{mode}, sharded"] = {
        row.path: list(row.layout.shard_shape) for row in layouts.table(again).rows
        if row.path in out[mode] and row.layout.num_slices > 1}
D.set_distribution(None)
""")
    lora = {f"{d}/lora_kernel_{m}" for d in ("d1", "d2") for m in "ab"}
    lora |= {f"emb/lora_embeddings_{m}" for m in "ab"}
    scales = {f"{layer}/kernel_scale" for layer in ("d1", "d2", "mha/query")}
    assert set(out["lora"]) == lora
    assert set(out["int8"]) == scales | {"emb/embeddings_scale"}
    assert set(out["float8"]) == scales
    assert set(out["lora int8"]) == lora | scales | {"emb/embeddings_scale"}
    for mode in "lora", "int8", "float8", "lora int8":
        assert out[f"{mode}, pasted"] == 0, mode
    assert out["lora, sharded"] == {
        "d1/lora_kernel_b": [4, 8],
        "d2/lora_kernel_a": [8, 4],
        "emb/lora_embeddings_a": [16, 4],
    }
    assert out["int8, sharded"] == {
        "d1/kernel_scale": [8],
        "mha/query/kernel_scale": [1, 1, 1, 4],
        "emb/embeddings_scale": [16],
    }


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_a_backend_without_distribution_is_the_cause(backend):
    require(backend)
    with contextlib.closing(
        Interpreter("from distlab import layouts", KERAS_BACKEND=backend)
    ) as it:
        out = it.run("""
import keras
D = keras.distribution
map = D.LayoutMap(D.DeviceMesh((2, 4), ["data", "model"], [f"cpu:{i}" for i in range(8)]))
map[".*d1/kernel"] = (None, "model")
D.set_distribution(D.ModelParallel(layout_map=map, batch_dim_name="data"))
x = keras.Input((8,))
report = layouts.lint(keras.Model(x, keras.layers.Dense(16, name="d1")(x)))
out["kinds"], out["text"] = report.kinds(), repr(report)
""")
    assert out["kinds"] == ["not-applied"]
    assert f"Keras runs on {backend}, where keras.distribution does nothing" in out["text"]
    assert "built before" not in out["text"]


def test_the_table_of_published_maps_is_what_the_command_makes():
    require("keras_hub")
    page = ROOT / "docs" / "layouts.md"
    before = page.read_text()
    made = subprocess.run([sys.executable, TOOLS / "published_maps.py"], env=os.environ)
    assert made.returncode == 0
    assert page.read_text() == before
