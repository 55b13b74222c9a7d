"""The lint on real models: what it must find, and correct maps it must leave alone."""

import contextlib
from collections.abc import Iterator

import pytest
from _interpreter import Interpreter
from _processes import require

from distlab import layouts


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

def mlp(kind="functional", classes=10):
    d1, d2 = L.Dense(512, activation="relu", name="d1"), L.Dense(classes, name="d2")
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

def case(name, rules, make, shape=(2, 4), names=("data", "model"), dry=False):
    map = layout_map(rules, shape, names)
    D.set_distribution(None if dry else D.ModelParallel(layout_map=map, batch_dim_name=names[0]))
    note(name, make(), map)

def note(name, *args):
    found = layouts.lint(*args)
    out[name] = {
        "kinds": found.kinds(),
        "severities": [f.severity for f in found.findings],
        "messages": [f.message for f in found.findings],
        "paths": [list(f.paths) for f in found.findings],
        "text": repr(found),
        "html": found._repr_html_(),
    }
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
case("nested", {"encoder/d1/kernel": (None, "model"), "^d1/kernel": (None, "model")},
     nested)
case("fine: meant whole", ANY | {".*d2/kernel": (None, None)}, lambda: mlp(classes=600))
case("fine: a second layer", {k: MEGATRON[k] for k in MEGATRON if "up/" in k}, lambda:
     keras.Sequential([keras.Input((64,)), L.Dense(64, name="up"), L.Dense(64, name="up_2")]))
case("not said to be meant", ANY, lambda: mlp(classes=600))

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
case("no rule", {}, mlp)
case("idle axis", ANY, mlp, (2, 2, 2), ("data", "model", "pipe"))

D.set_distribution(None)
model, map = mlp(), layout_map(MLP)
D.set_distribution(D.ModelParallel(layout_map=map))
note("late", model)
model = mlp()
note("default map", model)
layouts.check_layouts(model)
map[".*d2/kernel"] = ("model", None)
note("rule added", model)
note("other mesh", model, layout_map(MLP, (4, 2)))
foreign = layout_map({})
foreign["d1/kernel"] = D.TensorLayout((None, "model"), D.DeviceMesh((4, 2), ["data", "model"]))
note("foreign mesh", model, foreign)

out["errors"] = {}
def attempt(name, function):
    try:
        out["errors"][name] = repr(function())
    except Exception as error:
        out["errors"][name] = [type(error).__name__, str(error)]
attempt("unbuilt", lambda: layouts.lint(keras.Sequential([L.Dense(3)])))
attempt("not a map", lambda: layouts.lint(model, {"a": 1}))
attempt("swapped", lambda: layouts.lint(D.LayoutMap(None), model))
attempt("not a model", lambda: layouts.lint(3, map))
attempt("check", lambda: layouts.check_layouts(model, layout_map({})))
attempt("no mesh", lambda: layouts.lint(model, D.LayoutMap(None)))
D.set_distribution(None)
attempt("no map", lambda: layouts.lint(model))
""")


def test_correct_maps_raise_no_alarm(keras, subtests):
    fine = [name for name in keras if name.startswith("fine: ")]
    assert len(fine) == 13
    for name in fine:
        with subtests.test(name):
            assert keras[name]["kinds"] == [], keras[name]["text"]
            assert keras[name]["text"].startswith("no findings: ")


def test_what_is_wrong_is_found(keras, subtests):
    for name, kinds, words in [
        ("trap", ["version"] * 3, "Write '.*d1/kernel', which"),  # "fine: sequential" is so cured
        ("trap subclassed", ["version"] * 3, "Write '.*d1/kernel', which"),
        # `d1/kernel` is a path of its own here, and the end of another one.
        ("trap nested", ["version"], "Write '^d1/kernel$', which matches 'd1/kernel'."),
        ("nested", ["model-name"], "No simple rule tells them apart"),
        ("layer only", ["version"], "Write 'd1.*', which"),
        ("anchored", ["unmatched"], "Nearest: 'mlp/d1/kernel'"),
        ("typo", ["unmatched"], "Nearest: 'd1/kernel'"),
        ("counted on", ["unmatched"], "'dense/kernel' matches nothing"),
        ("too long", ["rank", "replicated"], "names 2 dimensions, but 'd1/bias' of shape [512]"),
        ("too short", ["rank"], "The rest are not sharded"),
        # In 2 blocks: 3 kernels, 3 biases, the output's kernel.
        ("heads", ["indivisible"] * 14, "dimension 1 has size 6, which is not divisible by 4"),
        ("ambiguous", ["ambiguous", "indivisible", "rank"], "which Keras refuses"),
        ("big", ["replicated"], "'d1/kernel' (1.53 MiB) is replicated on every device"),
        ("not said to be meant", ["replicated"], "a rule that has None for each dimension"),
        (
            "no rule",
            ["replicated", "unused-axis"],
            "axis 'model': 4 devices along it do the same work",
        ),
        ("idle axis", ["unused-axis"], "axis 'pipe'"),
        ("late", ["not-applied"], "built before set_distribution"),
        ("default map", [], "no findings"),
        ("rule added", ["not-applied"], "'d2/kernel' is laid out otherwise"),
        ("other mesh", ["not-applied"], "built under another map or mesh"),
        ("foreign mesh", ["mesh", "not-applied"], "for another mesh than the map's"),
    ]:
        with subtests.test(name):
            assert keras[name]["kinds"] == kinds, keras[name]["text"]
            assert words in keras[name]["text"]


def test_what_is_found_is_explained(keras):
    found = keras["trap"]
    assert found["severities"] == ["error"] * 3
    assert found["messages"][0] == (
        "'d1/kernel' matches nothing: a key has to match the whole path (re.fullmatch). "
        "Write '.*d1/kernel', which matches 'mlp/d1/kernel'. "
        "It matched 'mlp/d1/kernel' under Keras up to 3.13 (re.search)."
    )
    assert found["paths"] == [["mlp/d1/kernel"], ["mlp/d1/bias"], ["mlp/d2/output"]]
    assert found["html"].count("<tr>") == 4
    assert "<table>" not in keras["fine: cnn"]["html"]
    # A rule that means more in one version is a warning.
    assert keras["trap nested"]["severities"] == ["warning"]


def test_bad_input_gets_one_clear_error(keras, subtests):
    for name, kind, words in [
        ("unbuilt", "ValueError", "has no variables yet"),
        ("not a map", "TypeError", "Expected a LayoutMap"),
        ("swapped", "TypeError", "The model comes first: lint(model, layout_map)"),
        ("not a model", "TypeError", "Expected a model"),
        ("no mesh", "TypeError", "no device_mesh"),
        ("no map", "TypeError", "No LayoutMap was given"),
        ("check", "LayoutError", "findings: 4 variables, 0 rules, mesh data=2, model=4\nerror"),
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
    out[name] = [report.kinds(), repr(report)]
    return model, map

model, map = case("fine", {"d1.kernel": (None, "model"), "d1.bias": ("model",)})
table = layouts.table(model, map)
out["drawn"] = [row.path for row in layouts.draw(model).rows]
out["paths"] = [row.path for row in table.rows]
out["rules"] = [row.rule for row in table.rows]
out["shard"] = list(table["d1.kernel"].layout.shard_shape)
case("pattern", {".*kernel": (None, None), ".*d1.*bias": ("model",)})
case("subclassed", {"d1.kernel": (None, "model")}, mine)
model, map = case("slash", {"d1/kernel_": (None, "model")})
out["idle"] = repr(layouts.table(model, map)).splitlines()[-2].split()
case("shadowed", {"d1.*": ("model",), "d1.kern": (None, "model")}, dry=True)
case("uneven", {"d2.kernel": (None, "model"), "d1.kernel": (None, "model")}, dry=True)
case("rank", {"d1.kernel": ("model",)}, dry=True)
case("tried out", {"d1.kernel": (None, "model")}, dry=True)
""")
    assert out["idle"] == ["nothing:", "see", "layouts.lint", "d1/kernel_"]
    for name, kinds, words in [
        ("fine", [], "no findings"),
        ("pattern", [], "no findings"),
        ("subclassed", [], "no findings"),
        ("slash", ["unmatched", "replicated"], "Nearest: 'd1.kernel'"),
        ("shadowed", ["shadowed", "rank"], "'d1.*' comes before it and matches as well"),
        ("uneven", ["indivisible"], "dimension 1 has size 10, which is not divisible by 4"),
        ("rank", ["rank"], "'d1.kernel' names 1 dimension, but"),
        ("tried out", [], "no findings"),
    ]:
        assert out[name][0] == kinds, out[name]
        assert words in out[name][1]
    assert out["paths"] == out["drawn"] == ["d1.kernel", "d1.bias", "d2.kernel", "d2.bias"]
    assert out["rules"] == ["d1.kernel", "d1.bias", "", ""]
    assert out["shard"] == [784, 128]


RANDOM = """
import itertools, random, re
from distlab.layouts.rules import read_rules

def compare(make, value):
    \"""Random rules and paths, looked up in LayoutMaps themselves and in what is read of them.\"""
    random.seed(0)
    names = ["d1", "d11", "mlp", "kernel"]
    paths = ["/".join(p) for n in (1, 2, 3) for p in itertools.product(names, repeat=n)]
    wrong = []
    for _ in range(150):
        map = make()
        for path in random.sample(paths, random.randint(0, 4)):
            key = random.choice(["", ".*", "^", "(.*/)?"]) + path + random.choice(["", ".*", "$"])
            if key not in list(map):
                map[key] = value
        rules = read_rules(map)
        for path in paths:
            try:
                theirs = 1 if map[path] is not None else 0
            except ValueError:
                theirs = 2
            if min(len(rules.matching(path)), 2) != theirs:
                wrong.append([list(map), path])
    return [rules.how, wrong]
"""


def test_layout_maps_of_keras_are_read_as_they_behave(jax):
    """Those of this Keras, and as they were up to 3.13 and are since 3.14."""
    out = jax.run(
        RANDOM
        + """
def behaving(match):
    class Map(D.LayoutMap):
        def __getitem__(self, path):
            keys = [path] if path in self._layout_map else [k for k in self if match(k, path)]
            if len(keys) > 1:
                raise ValueError("several")
            return self._layout_map[keys[0]] if keys else None
    return Map
mesh = D.DeviceMesh((8,), ["x"])
for name, map in [
    ("own", D.LayoutMap), ("3.13", behaving(re.search)), ("3.14", behaving(re.fullmatch))
]:
    out[name] = compare(lambda: map(mesh), ("x",))
out["version"] = keras.__version__
"""
    )
    newer = tuple(map(int, out["version"].split(".")[:2])) >= (3, 14)
    assert out["own"] == ["fullmatch" if newer else "search", []]
    assert out["3.13"] == ["search", []]
    assert out["3.14"] == ["fullmatch", []]


def test_layout_maps_of_tf_keras_are_read_as_they_behave(tensorflow):
    out = tensorflow.run(
        RANDOM
        + """
import tf_keras
from tensorflow.experimental import dtensor
mesh = dtensor.create_mesh([("x", 8)], devices=[f"CPU:{i}" for i in range(8)])
map = tf_keras.dtensor.experimental.LayoutMap
out["found"] = compare(lambda: map(mesh=mesh), dtensor.Layout(["x"], mesh))
"""
    )
    assert out["found"] == ["match", []]


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
looks = {"table": lambda model: repr(layouts.table(model)), "lint": layouts.lint}
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
model = keras.Model(x, keras.layers.Dense(3, name="d")(x))
table = layouts.table(model)
out["drawn"] = repr(layouts.draw(model)) == repr(table)
out["lines"] = [line.split("  ") for line in repr(table).splitlines()]
""")
    assert out["backend"] == backend
    assert out["drawn"], "a model's picture is its table"
    assert [[cell.strip() for cell in line if cell] for line in out["lines"][1:]] == [
        ["d/kernel", "[4, 3]", "not distributed"],
        ["d/bias", "[3]", "not distributed"],
    ]


def test_a_report_without_findings_is_false():
    assert not layouts.Report((), "nothing")
    finding = layouts.Finding("error", "rank", "Too long.")
    assert layouts.Report((finding,), "one")
    assert repr(layouts.Report((finding,), "one")) == "1 finding: one\nerror  rank  Too long."
