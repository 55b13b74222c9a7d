"""The lint on real models: what it must find, and correct maps it must leave alone."""

import contextlib
import re
from collections.abc import Iterator

import pytest
from _interpreter import Interpreter
from _processes import require
from hypothesis import given, settings
from hypothesis import strategies as st

from distlab import layouts
from distlab.layouts.rules import FULLMATCH, MATCH, SEARCH, Rule, Rules
from distlab.layouts.view import Mesh


def serve(backend: str, code: str) -> Iterator[Interpreter]:
    """A process for one framework, which Keras runs on, too."""
    head = "import warnings; warnings.simplefilter('ignore')\nfrom distlab import layouts\n"
    with contextlib.closing(Interpreter(head + code, KERAS_BACKEND=backend)) as python:
        yield python


KERAS = """
import distlab
distlab.virtual_devices(8, "jax")
import keras
from keras import layers as L
D = keras.distribution

def mlp(kind="functional"):
    d1, d2 = L.Dense(512, activation="relu", name="d1"), L.Dense(10, name="d2")
    if kind == "sequential":
        return keras.Sequential([keras.Input((784,)), d1, d2], name="mlp")
    x = keras.Input((784,))
    return keras.Model(x, d2(d1(x)), name="mlp")

class Subclassed(keras.Model):
    def __init__(self):
        super().__init__(name="mine")
        self.d1, self.d2 = L.Dense(512, name="d1"), L.Dense(10, name="d2")
    def call(self, x):
        return self.d2(self.d1(x))

def subclassed():
    model = Subclassed()
    model(keras.ops.zeros((8, 784)))
    return model

def cnn():
    x = keras.Input((28, 28, 1))
    y = L.Conv2D(32, 3, name="c1")(x)
    y = L.BatchNormalization(name="bn")(y)
    y = L.SeparableConv2D(64, 3, name="c2")(L.MaxPooling2D()(y))
    y = L.Dropout(0.1)(L.Flatten()(y))
    return keras.Model(x, L.Dense(10, name="head")(L.Dense(128, name="fc")(y)))

class Block(L.Layer):
    def __init__(self, heads, width, **kwargs):
        super().__init__(**kwargs)
        self.norm = L.LayerNormalization(name="norm")
        self.attention = L.MultiHeadAttention(heads, width // heads, name="attention")
        self.up = L.Dense(4 * width, activation="gelu", name="up")
        self.down = L.Dense(width, name="down")
    def build(self, shape):
        self.norm.build(shape)
        self.attention.build(shape, shape)
        self.up.build(shape)
        self.down.build((*shape[:-1], self.up.units))
    def call(self, x):
        y = self.norm(x)
        x = x + self.attention(y, y)
        return x + self.down(self.up(x))

def transformer(heads=8, width=128):
    x = keras.Input((16,), dtype="int32")
    y = L.Embedding(4096, width, name="tokens")(x)
    for i in range(2):
        y = Block(heads, width, name=f"block{i}")(y)
    return keras.Model(x, L.Dense(4096, name="logits")(y))

def nested():
    x = keras.Input((784,))
    inner = keras.Sequential([keras.Input((784,)), L.Dense(64, name="d1")], name="encoder")
    return keras.Model(x, L.Dense(8, name="d1")(inner(x)))

MEGATRON = {
    "tokens/embeddings": ("model", None),
    ".*attention/(query|key|value)/kernel": (None, "model", None),
    ".*attention/(query|key|value)/bias": ("model", None),
    ".*attention/attention_output/kernel": ("model", None, None),
    ".*up/kernel": (None, "model"),
    ".*up/bias": ("model",),
    ".*down/kernel": ("model", None),
    "logits/kernel": (None, "model"),
    "logits/bias": ("model",),
    "block[01]/output": ("data", None, None),
}
CNN = {
    "c1/kernel": (None, None, None, "model"),
    "c1/bias": ("model",),
    "c2/pointwise_kernel": (None, None, None, "model"),
    "fc/kernel": (None, "model"),
    "fc/bias": ("model",),
    "head/kernel": ("model", None),
}
MLP = {"d1/kernel": (None, "model"), "d1/bias": ("model",), "d2/output": ("data", None)}
ANY = {".*d1/kernel": (None, "model"), ".*d1/bias": ("model",), ".*d2/output": ("data", None)}

def layout_map(rules, shape=(2, 4), names=("data", "model")):
    map = D.LayoutMap(D.DeviceMesh(shape, list(names)))
    for key, axes in rules.items():
        map[key] = axes
    return map

def case(name, rules, make, shape=(2, 4), names=("data", "model"), dry=False, **options):
    map = layout_map(rules, shape, names)
    D.set_distribution(None if dry else D.ModelParallel(layout_map=map, batch_dim_name=names[0]))
    model = make()
    found = layouts.lint(model, map, **options)
    out[name] = {
        "kinds": found.kinds(),
        "severities": [f.severity for f in found.findings],
        "messages": [f.message for f in found.findings],
        "paths": [list(f.paths) for f in found.findings],
        "text": repr(found),
        "html": found._repr_html_(),
    }
    return model, map
"""


@pytest.fixture(scope="module")
def jax() -> Iterator[Interpreter]:
    yield from serve("jax", KERAS)


@pytest.fixture(scope="module")
def tensorflow() -> Iterator[Interpreter]:
    yield from serve("tensorflow", 'import distlab\ndistlab.virtual_devices(8, "tensorflow")')


@pytest.fixture(scope="module")
def torch() -> Iterator[Interpreter]:
    yield from serve("torch", "")


@pytest.fixture(scope="module")
def keras(jax) -> dict:
    return jax.run("""
for shape in (8, 1), (4, 2), (2, 4), (1, 8):
    case(f"fine: mlp {shape}", MLP, mlp, shape)
case("fine: sequential", ANY, lambda: mlp("sequential"))
case("fine: subclassed", ANY, subclassed)
case("fine: cnn", CNN, cnn)
case("fine: transformer", MEGATRON, transformer)
case("fine: transformer (1, 8)", MEGATRON, transformer, (1, 8))
case("fine: tried out", MEGATRON, transformer, dry=True)
case("fine: three axes", ANY | {".*d2/kernel": ("pipe", None)}, mlp, (2, 2, 2),
     ("data", "model", "pipe"))
case("fine: nested", {"encoder/d1/kernel": (None, "model"), "^d1/kernel": (None, "model")},
     nested)
case("fine: meant whole", ANY | {".*d2/kernel": (None, None)}, mlp, large=2**14)
case("not said to be meant", ANY, mlp, large=2**14)

case("trap", MLP, lambda: mlp("sequential"))
case("trap subclassed", MLP, subclassed)
case("trap nested", {"d1/kernel": (None, "model")}, nested)
case("layer only", {"d1": (None, "model")}, mlp, dry=True)
case("anchored", {"^d1/kernel$": (None, "model")}, lambda: mlp("sequential"))
case("typo", {".*d1/kernal": (None, "model")}, mlp)
case("counted on", {"dense/kernel": (None, "model")},
     lambda: (L.Dense(1), keras.Sequential([keras.Input((8,)), L.Dense(8)], name="s"))[1])
case("too long", {"d1/bias": (None, "model")}, mlp, dry=True)
case("too short", {"d1/kernel": ("model",)}, mlp)
case("heads", MEGATRON, lambda: transformer(heads=6, width=96), dry=True)
case("ambiguous", {".*d1/.*": ("model",), ".*kernel": (None, "model")}, mlp, dry=True)
case("big", {".*d2/kernel": ("model", None)}, mlp)
case("no rule", {}, mlp, large=2**30)
case("idle axis", ANY, mlp, (2, 2, 2), ("data", "model", "pipe"))

D.set_distribution(None)
model, map = mlp(), layout_map(MLP)
D.set_distribution(D.ModelParallel(layout_map=map))
out["late"] = layouts.lint(model).kinds()
model = mlp()
out["default map"] = layouts.lint(model).kinds()
map[".*d2/kernel"] = ("model", None)
out["rule added"] = layouts.lint(model).kinds()
out["other mesh"] = layouts.lint(model, layout_map(MLP, (4, 2))).kinds()
out["check"] = []
for strict in (False, True):
    try:
        layouts.check_layouts(model, layout_map({}), strict=strict, large=1)
        out["check"].append("fine")
    except layouts.LayoutError as error:
        out["check"].append(str(error).splitlines()[0])
foreign = layout_map({})
foreign["d1/kernel"] = D.TensorLayout((None, "model"), D.DeviceMesh((4, 2), ["data", "model"]))
out["foreign mesh"] = layouts.lint(model, foreign, large=2**30).kinds()

out["errors"] = {}
def attempt(name, function):
    try:
        out["errors"][name] = repr(function())
    except Exception as error:
        out["errors"][name] = [type(error).__name__, str(error)]
attempt("unbuilt", lambda: layouts.lint(keras.Sequential([L.Dense(3)])))
attempt("not a map", lambda: layouts.lint(model, {"a": 1}))
attempt("not a model", lambda: layouts.lint(3, map))
attempt("batch axis", lambda: layouts.lint(model, map, batch_axis="rows"))
attempt("no mesh", lambda: layouts.lint(model, D.LayoutMap(None)))
D.set_distribution(None)
attempt("no map", lambda: layouts.lint(model))
""")


FINE = [
    *[f"mlp {shape}" for shape in ("(8, 1)", "(4, 2)", "(2, 4)", "(1, 8)")],
    "sequential", "subclassed", "cnn", "transformer", "transformer (1, 8)", "tried out",
    "three axes", "nested", "meant whole",
]  # fmt: skip


def test_correct_maps_raise_no_alarm(keras, subtests):
    for name in FINE:
        with subtests.test(name):
            found = keras[f"fine: {name}"]
            assert found["kinds"] == [], found["text"]
            assert found["text"].startswith("no findings: ")


def test_what_is_wrong_is_found(keras, subtests):
    for name, kinds in [
        ("trap", ["version"] * 3),
        ("trap subclassed", ["version"] * 3),
        ("trap nested", ["version"]),
        ("anchored", ["unmatched", "replicated"]),
        ("typo", ["unmatched", "replicated"]),
        ("counted on", ["unmatched"]),
        ("too long", ["rank", "replicated"]),
        ("too short", ["rank"]),
        ("ambiguous", ["ambiguous", "indivisible", "rank"]),
        ("big", ["replicated"]),
        ("not said to be meant", ["replicated"]),
        ("no rule", ["unused-axis"]),
        ("idle axis", ["unused-axis"]),
    ]:
        with subtests.test(name):
            assert keras[name]["kinds"] == kinds, keras[name]["text"]


def test_the_sequential_trap_is_explained_and_cured(keras):
    found = keras["trap"]
    assert found["severities"] == ["error"] * 3
    assert found["messages"][0] == (
        "'d1/kernel' matches nothing under Keras 3.14 and later (re.fullmatch), but "
        "'mlp/d1/kernel' under Keras up to 3.13 (re.search). Write '.*d1/kernel', which matches "
        "'mlp/d1/kernel' under both."
    )
    assert found["paths"] == [["mlp/d1/kernel"], ["mlp/d1/bias"], ["mlp/d2/output"]]
    assert keras["fine: sequential"]["kinds"] == []  # the cure


def test_a_rule_that_means_more_in_one_version_is_a_warning(keras):
    """`d1/kernel` is a path of its own here, and the end of another one."""
    found = keras["trap nested"]
    assert found["severities"] == ["warning"]
    assert "'d1/kernel' under Keras 3.14" in found["messages"][0]
    assert "Write '^d1/kernel$'" in found["messages"][0]


def test_a_rule_for_a_whole_layer_is_written_out(keras):
    assert keras["layer only"]["kinds"][0] == "version"
    assert "Write 'd1.*'" in keras["layer only"]["messages"][0]


def test_nearest_paths_are_suggested(keras):
    assert "Nearest: 'd1/kernel'" in keras["typo"]["messages"][0]


def test_heads_that_do_not_divide(keras):
    found = keras["heads"]
    assert set(found["kinds"]) == {"indivisible"}
    assert len(found["kinds"]) == 14  # in 2 blocks: 3 kernels, 3 biases, the output's kernel
    assert "dimension 1 has size 6, which does not divide by 4" in found["messages"][0]


def test_a_model_that_is_not_laid_out_as_the_map_says(keras):
    assert keras["late"] == ["not-applied"]
    assert keras["default map"] == []
    assert keras["rule added"] == ["not-applied"]
    assert keras["other mesh"] == ["not-applied"]
    assert "mesh" in keras["foreign mesh"]


def test_check_layouts_raises_with_the_report(keras):
    lenient, strict = keras["check"]
    assert lenient.startswith(strict[:1])
    assert "findings: 4 variables, 0 rules, mesh data=2, model=4" in strict


def test_reports_are_html_too(keras):
    assert keras["trap"]["html"].count("<tr>") == 4
    assert "<table>" not in keras["fine: cnn"]["html"]


def test_bad_input_gets_one_clear_error(keras, subtests):
    for name, kind, words in [
        ("unbuilt", "ValueError", "has no variables yet"),
        ("not a map", "TypeError", "Expected a LayoutMap"),
        ("not a model", "TypeError", "Expected a model"),
        ("batch axis", "ValueError", "Axis 'rows' is not in the mesh"),
        ("no mesh", "TypeError", "no device_mesh"),
        ("no map", "TypeError", "No LayoutMap was given"),
    ]:
        with subtests.test(name):
            assert keras["errors"][name][0] == kind
            assert words in keras["errors"][name][1]


def test_tf_keras(tensorflow):
    out = tensorflow.run("""
import tf_keras as keras
from tensorflow.experimental import dtensor
mesh = dtensor.create_mesh([("batch", 2), ("model", 4)], devices=[f"CPU:{i}" for i in range(8)])
keras.utils.set_random_seed(0)

def layout(*axes):
    return dtensor.Layout([axis or dtensor.UNSHARDED for axis in axes], mesh)

class Mine(keras.Model):
    def __init__(self):
        super().__init__()
        self.d1 = keras.layers.Dense(8)
    def call(self, x):
        return self.d1(x)

def sequential():
    return keras.Sequential([
        keras.layers.Dense(512, name="d1", input_shape=(784,)), keras.layers.Dense(10, name="d2")
    ])

def mine():
    model = Mine()
    model(dtensor.call_with_layout(__import__("tensorflow").ones, layout(None, None), (2, 4)))
    return model

def case(name, rules, make=sequential, dry=False):
    map = keras.dtensor.experimental.LayoutMap(mesh=mesh)
    for key, axes in rules.items():
        map[key] = layout(*axes)
    if dry:
        model = make()
    else:
        with map.scope():
            model = make()
    report = layouts.lint(model, map)
    out[name] = {"kinds": report.kinds(), "text": repr(report)}
    return model, map

model, map = case("fine", {"d1.kernel": (None, "model"), "d1.bias": ("model",)})
table = layouts.table(model, map)
out["paths"] = [row.path for row in table.rows]
out["rules"] = [row.rule for row in table.rows]
out["shard"] = list(table["d1.kernel"].layout.shard_shape)
case("pattern", {".*kernel": (None, None), ".*d1.*bias": ("model",)})
case("subclassed", {"d1.kernel": (None, "model")}, mine)
case("slash", {"d1/kernel_": (None, "model")})
case("shadowed", {"d1.*": ("model",), "d1.kern": (None, "model")}, dry=True)
case("uneven", {"d2.kernel": (None, "model"), "d1.kernel": (None, "model")}, dry=True)
case("rank", {"d1.kernel": ("model",)}, dry=True)
case("tried out", {"d1.kernel": (None, "model")}, dry=True)
""")
    kinds = {name: out[name]["kinds"] for name in out if isinstance(out[name], dict)}
    assert kinds == {
        "fine": [],
        "pattern": [],
        "subclassed": [],
        "slash": ["unmatched", "replicated"],
        "shadowed": ["shadowed", "rank"],
        "uneven": ["indivisible"],
        "rank": ["rank"],
        "tried out": [],
    }, out
    assert "Nearest: 'd1.kernel'" in out["slash"]["text"]
    assert out["paths"] == ["d1.kernel", "d1.bias", "d2.kernel", "d2.bias"]
    assert out["rules"] == ["d1.kernel", "d1.bias", "", ""]
    assert out["shard"] == [784, 128]


NAMES = st.sampled_from(["d1", "d11", "mlp", "kernel", "bias"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
KEYS = st.tuples(
    st.sampled_from(["", ".*", "^", "(.*/)?"]), PATHS, st.sampled_from(["", ".*", "$"])
)


def keras_rule(keys, path, match):
    if path in keys:
        return [path]
    return [key for key in keys if match(key, path)]


VERSIONS = {
    FULLMATCH: lambda keys, path: keras_rule(keys, path, re.fullmatch),
    SEARCH: lambda keys, path: keras_rule(keys, path, re.search),
    MATCH: lambda keys, path: keras_rule(keys, path, re.match)[:1],
}
"""What `re` does with a path, in the words of both Keras' LayoutMap and tf_keras'."""


@settings(max_examples=300, deadline=None)
@given(keys=st.lists(KEYS.map("".join), unique=True, max_size=4), path=PATHS)
def test_rules_match_as_layout_maps_do(keys, path):
    for how, expected in VERSIONS.items():
        rules = Rules(tuple(Rule(key, ()) for key in keys), Mesh((), ("cpu:0",)), how)
        assert [rule.key for rule in rules.matching(path)] == expected(keys, path), how


def test_a_layout_map_is_asked_how_it_matches(jax):
    out = jax.run("""
import re
from distlab.layouts.rules import read_rules
class Anywhere(keras.distribution.LayoutMap):
    def __getitem__(self, path):
        return next((self._layout_map[k] for k in self if k == path or re.search(k, path)), None)
class Entirely(keras.distribution.LayoutMap):
    def __getitem__(self, path):
        return next((self._layout_map[k] for k in self if k == path or re.fullmatch(k, path)), None)
mesh = keras.distribution.DeviceMesh((8,), ["x"])
out["how"] = [read_rules(map(mesh)).how for map in (Anywhere, Entirely)]
""")
    assert out["how"] == [SEARCH, FULLMATCH]


def test_this_kerass_layout_map_is_read_as_it_behaves(jax):
    """Random rules and paths, looked up in the installed Keras' own LayoutMap."""
    out = jax.run("""
import itertools, random
from distlab.layouts.rules import read_rules
random.seed(0)
mesh = keras.distribution.DeviceMesh((8,), ["x"])
names = ["d1", "d11", "mlp", "kernel"]
paths = ["/".join(p) for n in (1, 2, 3) for p in itertools.product(names, repeat=n)]
wrong = []
for _ in range(150):
    map = keras.distribution.LayoutMap(mesh)
    for path in random.sample(paths, random.randint(0, 4)):
        key = random.choice(["", ".*", "^", "(.*/)?"]) + path + random.choice(["", ".*", "$"])
        if key not in list(map):
            map[key] = ("x",)
    rules = read_rules(map)
    for path in paths:
        try:
            theirs = 1 if map[path] is not None else 0
        except ValueError:
            theirs = 2
        if min(len(rules.matching(path)), 2) != theirs:
            wrong.append([list(map), path])
out["wrong"] = wrong
""")
    assert out["wrong"] == []


def test_ten_times_the_variables_take_about_ten_times_as_long(jax):
    out = jax.run("""
import time
map = layout_map({f"block/d{i}/kernel": (None, "model") for i in range(0, 500, 50)}
                 | {".*[1-9]/kernel": (None, "model"), ".*[1-9]/bias": ("model",)}, (2, 4))
D.set_distribution(D.ModelParallel(layout_map=map, batch_dim_name="data"))
def make(layers):
    x = y = keras.Input((8,))
    for i in range(layers):
        y = L.Dense(8, name=f"d{i}")(y)
    return keras.Model(x, y)
def seconds(look, model):
    start = time.thread_time()  # of the processor, for others may use it, too
    look(model)
    return time.thread_time() - start
few, many = make(50), make(500)
looks = {
    "table": lambda model: repr(layouts.table(model)),
    "html": lambda model: layouts.table(model)._repr_html_(),
    "lint": lambda model: repr(layouts.lint(model)),
}
out["ratios"] = {
    name: min(seconds(look, many) for _ in range(3)) / min(seconds(look, few) for _ in range(3))
    for name, look in looks.items()
}
out["variables"] = [len(few.variables), len(many.variables)]
D.set_distribution(None)
""")
    assert out["variables"] == [100, 1000]
    assert max(out["ratios"].values()) < 30, out  # with the square of their number: 100


@pytest.mark.parametrize("backend", ["tensorflow", "torch"])
def test_a_model_that_keras_does_not_distribute_has_a_table_all_the_same(backend, request):
    require(backend)
    out = request.getfixturevalue(backend).run("""
import keras
out["backend"] = keras.backend.backend()
x = keras.Input((4,))
table = layouts.table(keras.Model(x, keras.layers.Dense(3, name="d")(x)))
out["rows"] = [row.cells() for row in table.rows]
out["lines"] = len(repr(table).splitlines())
""")
    assert out["backend"] == backend
    assert out["rows"] == [
        ["d/kernel", "[4, 3]", "not distributed", "", "", ""],
        ["d/bias", "[3]", "not distributed", "", "", ""],
    ]
    assert out["lines"] == 3


def test_a_report_without_findings_is_false():
    assert not layouts.Report((), "nothing")
    finding = layouts.Finding("error", "rank", "Too long.")
    assert layouts.Report((finding,), "one")
    assert repr(layouts.Report((finding,), "one")) == "1 finding: one\nerror  rank  Too long."
