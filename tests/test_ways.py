"""Reports of programs that train one model in different ways, and ways written by hand."""

import numpy as np
import pytest

from distlab.lessons import by_hand, ways
from distlab.lessons.groups import on_ranks

RANKS, SGD = 2, {"lr": 0.1, "momentum": 0.9}


def report(weights, sent=0, losses=(1.0,)):
    return {"losses": losses, "weights": weights, "sent": sent, "stored": 8}


def test_reports_of_ranks_are_joined():
    kernel, bias = np.arange(8.0).reshape(2, 4), np.arange(4.0)
    columns = [
        report([part, half]) for part, half in zip(np.hsplit(kernel, 2), (bias, bias), strict=True)
    ]
    stages = [report([kernel], 3, (np.nan,)), report([bias], 5, (2.0,))]
    ranks = [{"columns": a, "stages": b} for a, b in zip(columns, stages, strict=True)]
    found = ways.together([None, *ranks], [kernel, bias])
    for result in found.values():
        assert np.array_equal(result.weights[0], kernel)
        assert np.array_equal(result.weights[1], bias)
    assert (found["stages"].sent, found["stages"].losses.tolist()) == (5, [2.0])


def trained(way):
    """Train on one batch, twice; return a report."""
    import torch  # here: every worker imports what a module imports

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    x, y = torch.randn(8, 4), torch.arange(8) % 4
    model, data, backward, optimizer = (*way(model), None, None)[:4]
    if data:
        x, y = (t.chunk(RANKS)[data.get_rank()] for t in (x, y))
    optimizer = optimizer or torch.optim.SGD(model.parameters(), **SGD)

    def step():
        optimizer.zero_grad()
        if backward:
            loss = backward(x, y)
        else:
            mean = torch.nn.functional.cross_entropy(model(x), y)
            mean.backward()
            loss = mean.item()
        optimizer.step()
        return loss

    losses = [step(), step()]
    return {"it": ways.torch_report(model, optimizer, losses, step, count_calls=False)}


@pytest.mark.parametrize("name", by_hand.__all__)
def test_a_way_by_hand_trains_like_one_process(name):
    options = SGD if name == "zero_1" else {}

    def way(model):
        from torch.distributed.device_mesh import init_device_mesh

        return getattr(by_hand, name)(model, init_device_mesh("cpu", (RANKS,)), **options)

    serial = trained(lambda model: (model, None))["it"]
    found = ways.together(on_ranks(trained, way, nprocs=RANKS), serial["weights"])["it"]
    for mine, its in zip(found.weights, serial["weights"], strict=True):
        np.testing.assert_allclose(mine, its, atol=1e-6)
    np.testing.assert_allclose(found.losses, serial["losses"], atol=1e-6)
    weights = 4 * (4 * 8 + 8 + 8 * 4 + 4)
    assert found.sent == {"pipeline": 4 * 8 * 8, "tensor": 4 * 8 * 4}.get(name, weights)
