"""Each silent error of the page is found by `distlab.compare`, and its cure is called the same."""

import os

import pytest
from _tools import tool

import distlab

silent_errors = tool("silent_errors")
ROWS = {
    name: row for each in silent_errors.SECTIONS for name, row in silent_errors.rows(each).items()
}
QUICK = {
    name for name, row in ROWS.items() if row.framework == "torch" and not row.env
}  # the others import Keras or TensorFlow, or compile: some minutes more
ALL = os.environ.get("DISTLAB_SILENT_ERRORS") == "all"


@pytest.mark.parametrize("name", ROWS)
def test_compare_finds_what_people_write_and_calls_the_cure_the_same(name):
    if not (ALL or name in QUICK):
        pytest.skip("takes longer: DISTLAB_SILENT_ERRORS=all, or python tools/silent_errors.py")
    found = silent_errors.look(ROWS[name])
    assert found.get("cured", True), "the cure should be the same as one process"
    runs = silent_errors.stored().values()
    known = [r["rows"] for r in runs if r["versions"] == silent_errors.installed()]
    if not known or name not in known[0]:
        pytest.skip(f"not stored for these versions; here: {found}")
    assert not silent_errors.changed(found, known[0][name]), found


def test_the_page_is_what_was_seen_and_every_row_was_run():
    text = silent_errors.PAGE.read_text()
    assert silent_errors.written(text) == text, "run: python tools/silent_errors.py"
    seen = silent_errors.stored()["pinned"]["rows"]
    assert seen.keys() == ROWS.keys()
    assert {(row["state"], row["cured"]) for row in seen.values()} == {("wrong", True)}


def test_a_row_that_has_changed_is_noticed(subtests):
    row = {"state": "wrong", "leaf": "['loss']", "on": "2 ranks", "cured": True}
    row |= {"seen": "30", "right": "15"}
    assert not silent_errors.changed(row | {"seen": "30.001"}, row)
    for key, value in {"state": "right", "seen": "nan", "right": "7.5", "cured": False}.items():
        with subtests.test(key):
            assert silent_errors.changed(row | {key: value}, row)


def kinds_of_a_mesh(names):
    """What lint says of a Keras mesh over two processes."""
    import keras
    from keras.distribution import DeviceMesh, LayoutMap, ModelParallel, list_devices

    from distlab import layouts

    keras.distribution.initialize()
    layout_map = LayoutMap(DeviceMesh((2, 2), names, list_devices()))
    layout_map[".*kernel"] = (None, "model")
    keras.distribution.set_distribution(
        ModelParallel(layout_map=layout_map, batch_dim_name="batch", auto_shard_dataset=False)
    )
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4)])
    return layouts.lint(model).kinds()


def test_lint_says_when_a_mesh_over_processes_does_not_begin_with_the_batch():
    options = {"framework": "jax", "devices_per_rank": 2, "env": {"KERAS_BACKEND": "jax"}}
    for names, kinds in (["model", "batch"], ["mesh"]), (["batch", "model"], []):
        found = distlab.run(kinds_of_a_mesh, 2, args=[names], quiet=True, timeout=200, **options)
        assert found == [kinds, kinds]


def kinds_of_a_tied_model(tied, parallel):
    """What lint says of an embedding and a head with one weight, after `parallelize_module`."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    from distlab import layouts

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(8, 4), torch.nn.Linear(4, 8, bias=False))
    model[1].weight = model[0].weight
    plan = {"0": RowwiseParallel(input_layouts=Replicate()), "1": ColwiseParallel()}
    mesh = init_device_mesh("cpu", (2,))
    parallelize_module(model, mesh, {name: plan[name] for name in parallel})
    if tied:
        model[1].weight = model[0].weight
    return layouts.lint(model).kinds()


def test_lint_says_when_a_weight_is_tied_no_more(subtests):
    for tied, parallel, kinds in (
        (False, "01", ["untied"]),
        (False, "1", ["untied"]),
        (True, "01", []),
        (False, "", []),
    ):
        with subtests.test(tied=tied, parallel=parallel):
            found = distlab.run(
                kinds_of_a_tied_model, 2, "torch", [tied, parallel], quiet=True, timeout=200
            )
            assert found == [kinds, kinds]
