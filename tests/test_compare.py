"""`distlab.compare`: what several ranks, or devices, return beside what one returns."""

import math
import os

import numpy as np
import pytest
from _ranks import rank

import distlab


def size():
    return int(os.environ["WORLD_SIZE"])


def compared(function, nprocs=(1, 2), **options):
    return distlab.compare(function, nprocs, timeout=120, **options)


def gradient_added_up():
    """A sum where a mean should be."""
    return {"loss": 2.0, "layers": [{"kernel": size() * np.array([[1.0, -3.0], [0.0, 2.0]])}]}


def test_a_sum_for_a_mean_is_named_by_path_rank_and_ratio():
    found = compared(gradient_added_up, (1, 2, 4))
    assert not found.same
    two, four = found.wrong()
    assert two[:4] == ("['layers'][0]['kernel']", "2 ranks", -6.0, -3.0)
    assert (two.absolute, two.scale, two.words) == (3.0, 3.0, "2 times as large")
    assert (four.where, four.words) == ("4 ranks", "4 times as large")
    head, titles, *rows = repr(found).splitlines()
    path = "['layers'][0]['kernel']"
    assert head == f"Not the same as on 1 rank: {path} on 2 ranks, 2 times as large."
    assert titles.split() == ["what", "on", "seen", "right", "off", "by", "relative"]
    assert len(rows) == 2
    with pytest.raises(AssertionError, match="2 times as large"):
        found.raise_if_different()
    found.raise_if_different(rtol=3.0)


def test_a_ratio_of_single_numbers_is_said_where_it_is_a_plain_one():
    found = compared(lambda: {"loss": 1.0 + 0.3 * size(), "w": np.arange(1.0, 3.0) / size()})
    assert [each.words for each in found.wrong()] == ["", "0.5 times as large"]
    assert repr(found).startswith("Not the same as on 1 rank: ['loss'] on 2 ranks.\n")


def test_what_is_the_same_is_said_to_be_so():
    found = compared(lambda: {"a": np.arange(3), "b": (1.0 + 1e-7 * rank(), None)})
    assert found.same
    found.raise_if_different()
    assert repr(found).startswith("The same as on 1 rank.\n")
    with pytest.raises(AssertionError, match=r"\['b'\]\[0\] on rank 1 of 2"):
        found.raise_if_different(rtol=0, atol=0)


def parts_of_a_batch():
    """A rank's own share of a mean and of a sum, and an array that is wrong in one place."""
    own = np.arange(8.0)[rank() :: size()]
    w = np.eye(3) + (size() > 1) * np.eye(3, k=2)
    part = np.split(np.arange(8.0), size())[rank()]
    return {"mean": own.mean(), "sum": own.sum(), "part": part, "w": w}


def test_ranks_that_are_right_together_and_the_place_in_an_array_are_said():
    found = compared(parts_of_a_batch)
    told = ["mean is right", "sum is right", "parts, joined, are right"]
    told = [*(f"the ranks' {words}" for words in told), ""]
    assert [each.words for each in found.wrong()] == told
    assert repr(found).startswith("Not the same as on 1 rank: ['w'] on 2 ranks.\n")
    assert repr(found).endswith("1  at [0, 2]")

    head, but, titles, *rows = repr(compared(lambda: parts_of_a_batch()["part"])).splitlines()
    assert head == "Not the same as on 1 rank: result on 2 ranks."
    assert but.startswith("But the ranks' parts, joined, are right: gather them, if every rank")
    assert titles.split() == ["what", "on"]
    assert rows == ["result  2 ranks  the ranks' parts, joined, are right"]
    in_turns = compared(lambda: np.arange(7.0)[rank() :: size()], (1, 3))
    assert [each.words for each in in_turns.wrong()] == ["the ranks' parts, joined, are right"]


def test_what_all_ranks_have_alike_is_named_before_what_each_has_of_its_own():
    found = compared(lambda: {"loss": rank() / 3, "weights": np.array([1.0, size() ** 2])})
    assert repr(found).startswith("Not the same as on 1 rank: ['weights'] on 2 ranks.\n")


def test_a_number_alone_is_compared_with_one():
    (found,) = compared(size, 3).wrong()
    assert found[1:4] == ("3 ranks", 3.0, 1.0)


def test_a_count_of_what_each_rank_has_had_is_no_cause():
    found = compared(lambda: {"n": 8 // size(), "w": 1.5 * rank()}, (1, 4))
    assert [each.words for each in found.wrong()] == ["the ranks' sum is right", ""]
    assert repr(found).startswith("Not the same as on 1 rank: ['w'] on rank 3 of 4.\n")
    assert "\nThe ranks differ from each other: average what should be equal" in repr(found)


def test_ranks_that_differ_among_themselves_in_the_first_size():
    (found,) = compared(lambda: rank() % 2, (2, 3)).wrong()[:1]
    assert found[:4] == ("result", "rank 1 of 2", 1.0, 0.0)


def not_numbers(case):
    """What two ranks return, and one does not."""
    alone = size() == 1
    return {
        "nan": {"x": [math.nan, 1.0 if alone else math.nan]},
        "infinite": {"x": np.array([math.inf, 1.0]) if alone else np.array([math.inf, -math.inf])},
        "shape": {"x": np.ones(2 if alone else 3)},
        "missing": {"x": 1.0} if alone else {},
        "new": {} if alone else {"x": 1.0},
        "complex": {"x": 1.0 if alone else 1.0 + 2.0j},
        "whole": {"x": 2**40 if alone else 2**40 + 2**30},
        "bool": {"x": alone},
        "sign": {"x": 1.0 if alone else -1.0},
        "by chance": {"x": np.array([1.0, 2.0]) * (1.0 if alone else -3.286)},
    }[case]


def test_what_is_not_a_number_of_the_same_shape(subtests):
    words = {
        "nan": ("['x'][1]", math.inf, ""),
        "infinite": ("['x']", math.inf, ""),
        "shape": ("['x']", math.inf, "(3,) instead of (2,)"),
        "missing": ("['x']", math.inf, "missing"),
        "new": ("['x']", math.inf, "new"),
        "complex": ("['x']", 2.0, ""),
        "whole": ("['x']", 2.0**30, ""),
        "bool": ("['x']", 1.0, "0 times as large"),
        "sign": ("['x']", 2.0, "-1 times as large"),
        "by chance": ("['x']", 2 * 4.286, ""),
    }
    for case, (leaf, absolute, said) in words.items():
        with subtests.test(case):
            (found,) = compared(not_numbers, args=[case]).wrong()
            assert (found.leaf, found.absolute, found.words) == (leaf, absolute, said)


def test_many_differences_are_counted():
    text = repr(compared(lambda: list(range(size(), size() + 20))))
    assert text.splitlines()[-1] == "and 8 more"


def test_what_cannot_be_compared(subtests):
    with subtests.test("no function"), pytest.raises(TypeError, match="give a function"):
        distlab.compare("train.py")
    with subtests.test("words"), pytest.raises(TypeError, match=r"such as \(1, 4\)"):
        distlab.compare(size, "4")
    with subtests.test("one alone"), pytest.raises(ValueError, match="give two sizes or more"):
        distlab.compare(size, 1)
    with subtests.test("one size"), pytest.raises(ValueError, match="give two sizes or more"):
        distlab.compare(size, (2,))
    with subtests.test("a size that is none"), pytest.raises(ValueError, match="nprocs"):
        distlab.compare(size, (0, 2))
    with subtests.test("a tree of words"), pytest.raises(distlab.RankError, match="of type str"):
        compared(lambda: {"loss": "low"})
    with subtests.test("a generator"), pytest.raises(distlab.RankError, match="type generator"):
        compared(lambda: {"losses": (each for each in [1.0])})
    with subtests.test("nothing"), pytest.raises(ValueError, match="returns nothing to compare"):
        compared(lambda: {"gradient": None})
    with subtests.test("an argument"), pytest.raises(TypeError, match="size"):
        compared(size, args=[3])


def of_torch():
    """The same DTensor on any number of ranks, a bfloat16, and a rank's own gradient."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    whole = torch.nn.Parameter(torch.arange(10.0).reshape(5, 2))
    sharded = distribute_tensor(whole, init_device_mesh("cpu", (size(),)), [Shard(0)])
    own = torch.full((2,), rank() + 1.0, dtype=torch.bfloat16)
    return {"sharded": sharded, "steps": torch.tensor(3), "own": own}


def test_tensors_of_pytorch_are_gathered():
    found = compared(of_torch, framework="torch")
    assert [each.leaf for each in found.differences] == ["['sharded']", "['steps']", "['own']"]
    (own,) = found.wrong()
    assert own[:4] == ("['own']", "rank 1 of 2", 2.0, 1.0)


def of_rank_0():
    """What a rank leaves behind that has nothing to tell."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    return {"x": 1.0} if rank() == 0 else None


def test_a_rank_that_returns_nothing_does_not_disturb_the_others():
    found = compared(of_rank_0, (1, 4), framework="torch")
    assert repr(found).splitlines()[2].split() == ["['x']", "rank", "1", "of", "4", "missing"]


def without_a_group():
    """A DTensor that nobody can gather any more."""
    import torch.distributed as dist

    returned = of_torch()
    dist.destroy_process_group()
    return returned


def test_a_group_that_was_destroyed_is_said_to_be_missed():
    with pytest.raises(distlab.RankError, match=r"\['sharded'\] is .* destroy_process_group"):
        compared(without_a_group, framework="torch")


def of_jax():
    """Arrays over all devices: sharded; and replicated, but with other values on each."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as P

    if size() > 1:
        jax.distributed.initialize()
    mesh = jax.sharding.Mesh(jax.devices(), ("data",))
    part = np.split(np.arange(8.0, dtype="float32"), size())[rank()]
    sharded = jax.make_array_from_process_local_data(NamedSharding(mesh, P("data")), part)
    each = jax.shard_map(
        lambda: jnp.float32(jax.lax.axis_index("data")),
        mesh=mesh, in_specs=(), out_specs=P(), check_vma=False,
    )  # fmt: skip
    return {"sharded": sharded, "copies": jax.jit(each)(), "half": jnp.bfloat16(0.5)}


def test_arrays_of_jax_are_gathered_and_their_copies_compared(subtests):
    for sizes, where in ({"nprocs": (1, 2)}, "rank 1 of 2"), ({"devices": (1, 4)}, "copy 3 on 4"):
        with subtests.test(where):
            found = distlab.compare(of_jax, framework="jax", timeout=120, **sizes)
            (copies,) = found.wrong()
            assert copies.leaf == "['copies']"
            assert copies.where.startswith(where)
