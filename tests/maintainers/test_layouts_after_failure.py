"""The layout tools after a training step has failed, which is when people reach for them."""

import contextlib
from collections.abc import Iterator

import pytest
from _interpreter import Interpreter
from _processes import require

MODELS = """
import warnings; warnings.simplefilter("ignore")
import distlab
distlab.virtual_devices(8, "jax")
import keras, numpy as np
from keras import layers as L
from distlab import collectives, layouts
D = keras.distribution
x, y = np.ones((64, 16), "float32"), np.zeros(64, "int32")

def backbone():
    inputs = keras.Input((16,))
    return keras.Model(inputs, L.Dense(32, activation="relu", name="d1")(inputs), name="backbone")

def head(body):
    model = keras.Model(body.input, L.Dense(8, name="d2")(body.output))
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model

def mlp():
    return head(backbone())

map = D.LayoutMap(D.DeviceMesh((2, 4), ["data", "model"]))
map["d1/kernel"] = (None, "model")
map["d2/kernel"] = ("model", None)
SHARDED = D.ModelParallel(layout_map=map, batch_dim_name="data")
COPIES = D.DataParallel(devices=D.list_devices())

def said(act):
    try:
        return [type(act()).__name__, ""]
    except Exception as error:
        return [type(error).__name__, str(error)]

def all_tools(model):
    variable = model.get_layer("d1").kernel
    tools = {
        "table": lambda: layouts.table(model),
        "check": lambda: layouts.check_layouts(model, map),
        "draw": lambda: layouts.draw(variable),
        "layout_of": lambda: layouts.layout_of(variable),
        "count": lambda: collectives.count_train_step(model, x, y),
    }
    return {name: said(act) for name, act in tools.items()} | {
        "lint": ["", repr(layouts.lint(model, map))]
    }
"""


@pytest.fixture(scope="module")
def keras() -> Iterator[Interpreter]:
    require("jax")
    with contextlib.closing(Interpreter(MODELS, KERAS_BACKEND="jax")) as python:
        yield python


def test_a_model_built_before_the_distribution_says_so_after_fit_has_failed(keras):
    out = keras.run("""
D.set_distribution(None)
model = mlp()
D.set_distribution(SHARDED)
out["fit"] = said(lambda: model.fit(x, y, verbose=0))
out["tools"] = all_tools(model)
out["cause"] = repr(layouts.lint(model))
""")
    assert out["fit"][0] == "ValueError"
    for name, (_, text) in out["tools"].items():
        assert "'d1/kernel'" in text, name
        assert "NoneType" not in text
        assert "model.jax_state_sync()" in text
        assert "The model has lost values: build it anew" in text
        if name not in ("draw", "layout_of"):
            assert all(path in text for path in ("'d1/bias'", "'d2/kernel'", "'d2/bias'")), name
    assert "built before set_distribution" in out["cause"]


def test_what_brings_the_weights_back_is_what_is_said(keras):
    """Each way to fail, whether the call helps, and that the weights are the trained ones then."""
    out = keras.run("""
D.set_distribution(COPIES)
ways = {
    "fit, first batch": lambda model: model.fit(x[:12], y[:12], verbose=0),
    "fit, last batch": lambda model: model.fit(x[:44], y[:44], batch_size=16, verbose=0),
    "evaluate, first batch": lambda model: model.evaluate(x[:12], y[:12], verbose=0),
    "evaluate, last batch": lambda model: model.evaluate(x[:44], y[:44], batch_size=16, verbose=0),
    "predict, first batch": lambda model: model.predict(x[:12], verbose=0),
    "predict, last batch": lambda model: model.predict(x[:44], batch_size=16, verbose=0),
}
for name, act in ways.items():
    model = mlp()
    model.fit(x, y, verbose=0)
    trained = np.asarray(model.get_layer("d1").kernel.value)
    failed = said(lambda: act(model))[0] == "IndivisibleError"
    lost = said(lambda: layouts.table(model))[0] == "LostValueError"
    model.jax_state_sync()
    back = said(lambda: layouts.table(model))[0] == "Table"
    same = back and bool((np.asarray(model.get_layer("d1").kernel.value) == trained).all())
    out[name] = [failed, lost, back, same]
""")
    assert out == {
        "fit, first batch": [True, True, False, False],
        "fit, last batch": [True, False, True, False],  # it has trained on, and lost nothing
        "evaluate, first batch": [True, True, False, False],
        "evaluate, last batch": [True, True, True, True],
        "predict, first batch": [True, True, False, False],
        "predict, last batch": [True, True, True, True],
    }


def test_a_backbone_built_before_the_scope_is_named_and_its_cause(keras):
    out = keras.run("""
D.set_distribution(None)
body = backbone()
other = D.LayoutMap(map.device_mesh)
other["d2/kernel"] = ("model", None)
for name, rules in {"ruled": map, "no rule for it": other}.items():
    D.set_distribution(D.ModelParallel(layout_map=rules, batch_dim_name="data"))
    model = head(body)
    for when in "before", "after":
        found = [f for f in layouts.lint(model).findings if f.kind == "not-applied"]
        out[f"{name}, {when} fit"] = [[f.message for f in found], [f.paths for f in found]]
        if when == "before":
            out[f"{name}, fit"] = said(lambda: model.fit(x, y, verbose=0))[0]
    D.set_distribution(None)
    body = backbone()
""")
    for when in "before", "after":
        (message,), (paths,) = out[f"ruled, {when} fit"]
        assert "'d1/kernel' and 1 variable that no rule matches are on one device" in message
        assert "built before any distribution" in message
        assert paths == ["d1/kernel"]
        (message,), (paths,) = out[f"no rule for it, {when} fit"]
        assert "2 variables that no rule matches are on one device" in message
        assert paths == []
    assert out["ruled, fit"] == out["no rule for it, fit"] == "ValueError"
