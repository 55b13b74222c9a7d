"""checkpoints: who is chief, and that nobody ever finds half of a checkpoint."""

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from itertools import product
from pathlib import Path

import pytest
from _processes import require

import distlab
from distlab import checkpoints

LEGACY = {"TF_USE_LEGACY_KERAS": "1"}
"""For all that use TensorFlow here: one supervisor imports it."""


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    for name in ("TF_CONFIG", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


def names(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


def test_it_agrees_with_tensorflow():
    """On every task of a cluster, as TensorFlow itself judges its own resolver."""

    def both():
        import tensorflow as tf
        from tensorflow.python.distribute import multi_worker_util

        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        theirs = multi_worker_util.is_chief(
            resolver.cluster_spec(), resolver.task_type, resolver.task_id
        )
        return bool(theirs), checkpoints.is_chief()

    for roles in ({"worker": 2}, {"chief": 1, "worker": 2}):
        answers = distlab.run(both, framework="tensorflow", roles=roles, env=LEGACY)
        assert [theirs for theirs, _ in answers] == [ours for _, ours in answers]
        assert sum(ours for _, ours in answers) == 1


def test_ranks_may_save_to_one_path_at_once(tmp_path):
    path = tmp_path / "run" / "model.keras"

    def save():
        with checkpoints.replacing(str(path)) as own:
            own.write_text(os.environ["RANK"])
        return own.name, own != path

    assert distlab.run(save, 4) == [("model.keras", True)] * 4
    assert path.read_text() == "0"
    assert names(path.parent) == ["model.keras"]


def write(path: Path, kind: str, word: str) -> None:
    if kind == "file":
        path.write_text(word)
    elif kind == "directory":
        path.mkdir()
        (path / "one").write_text(word)
        (path / "two").write_text(word)


def read(path: Path) -> str:
    if path.is_dir():
        assert (path / "one").read_text() == (path / "two").read_text()
        return (path / "one").read_text()
    return path.read_text()


KINDS = ("file", "directory")


def test_what_was_there_is_replaced(tmp_path, monkeypatch, subtests):
    """By a swap of the two where the system has one, renameat2, and elsewhere in two steps."""
    for swaps, new, old in product((True, False), KINDS, ("nothing", *KINDS)):
        with subtests.test(old=old, new=new, swaps=swaps), monkeypatch.context() as patch:
            if not swaps:
                patch.setattr(sys, "platform", "darwin")
            path = tmp_path / f"{old} {new} {swaps}" / "old"
            path.parent.mkdir()
            write(path, old, "before")
            with checkpoints.replacing(path) as own:
                write(own, new, "after")
                assert not path.exists() if old == "nothing" else read(path) == "before"
            assert read(path) == "after"
            assert names(path.parent) == ["old"]


def test_a_save_that_fails_changes_nothing(tmp_path, subtests):
    for kind in KINDS:
        with subtests.test(kind=kind):
            path = tmp_path / kind / "model"
            path.parent.mkdir()
            write(path, kind, "before")
            with pytest.raises(OSError, match="disk full"), checkpoints.replacing(path) as own:
                write(own, kind, "half")
                raise OSError("disk full")
            assert read(path) == "before"
            assert names(path.parent) == ["model"]


def test_nothing_saved_is_an_error(tmp_path):
    path = tmp_path / "model.keras"
    path.write_text("before")
    wanted = pytest.raises(FileNotFoundError, match=r"Nothing was saved .*that replacing\(\) gives")
    with wanted, checkpoints.replacing(path):
        pass
    assert path.read_text() == "before"


def test_a_save_that_goes_on_after_its_block(tmp_path):
    """As asynchronous ones do, of which there may be a part by then, or nothing."""
    path = tmp_path / "step"
    write(path, "directory", "before")
    with (
        pytest.raises(RuntimeError, match=r"not complete yet.* async_save\(...\).result\(\)"),
        checkpoints.replacing(path) as own,
    ):
        own.mkdir()
        (own / "__0_0.distcp").touch()
    own.mkdir(parents=True)
    (own / "__0_0.distcp").touch()
    assert read(path) == "before"
    with (
        pytest.raises(RuntimeError, match=r"not complete yet.* wait_until_finished\(\)"),
        checkpoints.replacing(path) as own,
    ):
        own.with_name("step.orbax-checkpoint-tmp").mkdir()
    assert read(path) == "before"
    with checkpoints.replacing(path) as own:
        write(own, "directory", "after")
    assert read(path) == "after"
    assert names(tmp_path) == ["step"]


def test_a_path_without_a_name(tmp_path):
    with (
        pytest.raises(ValueError, match="'/' names no file"),
        checkpoints.replacing(Path(tmp_path.anchor)),
    ):
        raise AssertionError("not reached")


SAVER = """
import sys
from pathlib import Path
from distlab import checkpoints
path, kind, number = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
print("saving", flush=True)
while True:
    number += 1
    with checkpoints.replacing(path) as own:
        if kind == "file":
            with own.open("w") as file:
                for _ in range(40):
                    file.write(f"{number}\\n")
                    file.flush()
        else:
            own.mkdir()
            for part in range(40):
                (own / f"part{part}").write_text(f"{number}\\n")
"""


def whole(path: Path) -> int:
    """Return the number of the save found at `path`, having seen that all of it is there."""
    parts = [path.read_text()] if path.is_file() else [p.read_text() for p in path.iterdir()]
    numbers = "".join(parts).split()
    assert len(numbers) == 40, f"{len(numbers)} of 40 parts"
    assert len(set(numbers)) == 1, numbers
    return int(numbers[0])


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere two steps replace a directory")
@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_any_moment_a_save_is_whole(tmp_path, kind):
    path, last, kills = tmp_path / "model", 0, 0
    pick = random.Random(5)
    while kills < 15 or last == 0:  # on a busy machine the first saves take longer
        kills += 1
        assert kills < 200, "no save was ever finished"
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(SAVER), str(path), kind, str(last)],
            stdout=subprocess.PIPE,
        )
        try:
            assert process.stdout.readline() == b"saving\n"
            # No event to wait for: the moment is to be random. A save takes some milliseconds.
            time.sleep(pick.uniform(0, 0.1 * (1 + kills // 15)))
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
            process.stdout.close()
        if path.exists():
            number = whole(path)
            assert number >= last
            last = number
    assert last > 0
    with checkpoints.replacing(path) as own:
        write(own, kind, "after")
    assert names(tmp_path) == ["model"], "what the killed left behind"


def test_a_keras_model_of_two_workers(tmp_path):
    """Every worker saves, the chief's model is the one that stays and it loads."""
    require("tf_keras")
    path = tmp_path / "model.keras"

    def train():
        import numpy as np
        import tensorflow as tf
        import tf_keras

        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        with strategy.scope():
            model = tf_keras.Sequential([tf_keras.layers.Dense(2, input_shape=(3,))])
            model.compile("sgd", "mse")
        x, y = np.ones((8, 3), "float32"), np.zeros((8, 2), "float32")
        model.fit(x, y, batch_size=8, epochs=1, verbose=0)
        with checkpoints.replacing(path) as own:
            model.save(own)
        if not checkpoints.is_chief():  # may be here before the chief's file is in its place
            return None
        loaded = tf_keras.models.load_model(path)
        mine, saved = model.get_weights(), loaded.get_weights()
        return all((a == b).all() for a, b in zip(mine, saved, strict=True))

    results = distlab.run(train, 2, "tensorflow", env=LEGACY, timeout=120, quiet=True)
    assert results == [True, None]
    assert names(tmp_path) == ["model.keras"]


def test_the_shards_of_all_ranks_take_the_place_of_an_older_checkpoint(tmp_path):
    """As PyTorch saves them: each rank writes a file that no other has."""
    path = tmp_path / "step"

    def save(number):
        import torch
        import torch.distributed as dist
        import torch.distributed.checkpoint as dcp
        from torch.distributed.fsdp import fully_shard

        dist.init_process_group("gloo")
        mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
        model = torch.nn.Linear(4, 4, bias=False)
        torch.nn.init.constant_(model.weight, number)
        fully_shard(model, mesh=mesh)
        with checkpoints.replacing(path) as own:
            dcp.save(model.state_dict(), checkpoint_id=str(own))
        dist.barrier()
        torch.nn.init.constant_(model.weight, 0)
        state = model.state_dict()
        dcp.load(state, checkpoint_id=str(path))
        return state["weight"].full_tensor().unique().tolist()

    for number in (1, 2):
        assert distlab.run(save, 2, "torch", args=[number]) == [[number]] * 2
    assert names(tmp_path) == ["step"]
    assert sorted(names(path)) == [".metadata", "__0_0.distcp", "__1_0.distcp"]


def save_by_orbax(path: Path, how: str) -> str | None:
    """Save within `replacing`, which is refused, then as the refusal says."""
    import jax
    import numpy as np
    import orbax.checkpoint as ocp

    jax.distributed.initialize()
    spec = jax.sharding.PartitionSpec("data")
    sharding = jax.sharding.NamedSharding(jax.make_mesh((2,), ("data",)), spec)
    state = {"w": jax.make_array_from_callback((4,), sharding, lambda index: np.arange(4.0)[index])}

    def save(place: Path) -> None:
        if how == "CheckpointManager":
            with ocp.CheckpointManager(place) as manager:
                manager.save(0, args=ocp.args.StandardSave(state))
        elif how == "Checkpointer":
            ocp.Checkpointer(ocp.StandardCheckpointHandler()).save(place, state)
        else:
            with ocp.StandardCheckpointer() as checkpointer:
                checkpointer.save(place, state)

    try:
        with checkpoints.replacing(path) as own:
            save(own)
    except RuntimeError as error:
        save(path.with_name("beside"))
        return str(error)


@pytest.mark.parametrize("how", ["StandardCheckpointer", "CheckpointManager", "Checkpointer"])
def test_orbax_is_refused_on_every_rank(tmp_path, how):
    """Its processes would wait for one another at one path, and each has its own."""
    require("orbax")
    path = tmp_path / "step"
    write(path, "directory", "before")
    words = distlab.run(save_by_orbax, 2, "jax", args=[path, how], timeout=60)
    assert [f"Let all ranks save to {str(path)!r} itself" in each for each in words] == [True] * 2
    assert read(path) == "before"
    assert sorted(names(tmp_path)) == ["beside", "step"]


def meet(place: Path) -> None:
    """Wait for the other of two ranks, as in a collective, which has no event to wait for here."""
    place.mkdir(exist_ok=True)
    (place / os.environ["RANK"]).touch()
    while len(names(place)) < 2:
        time.sleep(0.001)


def shards(path: Path, met: Path, fails: bool) -> None:
    """Save as ranks do that meet while they save; rank 1 perhaps fails after its part."""
    rank = os.environ["RANK"]
    with checkpoints.replacing(path) as own:
        own.mkdir()
        (own / f"__{rank}_0.distcp").write_text("new")
        if rank == "0":
            (own / ".metadata").touch()
        meet(met)
        if fails and rank == "1":
            raise ValueError("lost the rest of it")


def test_shards_that_are_not_complete_replace_nothing(tmp_path):
    path, met = tmp_path / "step", tmp_path / "met"
    write(path, "directory", "before")

    def save():
        try:
            shards(path, met, True)
        except (ValueError, RuntimeError) as error:
            return str(error)

    words = distlab.run(save, 2)
    assert words[0].startswith("Rank 1 saved __1_0.distcp and then failed: nothing was replaced")
    assert words[1] == "lost the rest of it"
    assert read(path) == "before"
    assert sorted(names(tmp_path)) == ["met", "step"]


def test_a_shard_that_the_chief_does_not_see_is_kept(tmp_path):
    met = tmp_path / "met"

    def elsewhere():
        checkpoints.saving._PATIENCE = 1
        here = tmp_path / os.environ["RANK"] / "step"  # as on a disk that each node has of its own
        shards(here, met, False)

    with pytest.raises(
        distlab.RankError, match=r"Rank 1 saved __1_0.distcp, .* all ranks save"
    ) as caught:
        distlab.run(elsewhere, 2)
    (kept,) = (tmp_path / "1").iterdir()
    assert str(kept) in str(caught.value)
    assert (kept / "step" / "__1_0.distcp").read_text() == "new"


@pytest.mark.parametrize("call", ["write", "save"])
def test_several_files_with_the_name_are_kept(tmp_path, call):
    """TensorFlow's checkpoints: an index and parts, all of which begin with the name."""
    path = tmp_path / "weights"
    write(path, "file", "before")

    def save():
        import tensorflow as tf

        with checkpoints.replacing(path) as own:
            getattr(tf.train.Checkpoint(v=tf.Variable(1.0)), call)(str(own))

    with pytest.raises(distlab.RankError, match=r"has other names: .*\.data-0.* own / 'ckpt'"):
        distlab.run(save, 1, "tensorflow", env=LEGACY)
    assert read(path) == "before"
    kept, _ = sorted(tmp_path.iterdir(), key=lambda each: each.is_file())
    assert any(name.endswith(".index") for name in names(kept))


def rank_saves(path: Path, late: int = -1, **more: float) -> None:
    """Save a part without a word to the other ranks; one of them comes late."""
    vars(checkpoints.saving).update(more)
    rank = os.environ["RANK"]
    if rank == str(late):
        time.sleep(1)  # there is no event: nobody can be seen to wait for a rank that may come
    with checkpoints.replacing(path) as own:
        (own / f"part{rank}" / "deep").mkdir(parents=True)
        (own / f"part{rank}" / "weights").write_text("new")
        (own / "same").write_text(rank)


@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize("old", [False, True])
def test_parts_come_together_whoever_is_first(tmp_path, late, old):
    path = tmp_path / "step"
    if old:
        for rank in range(2):
            (path / f"part{rank}").mkdir(parents=True)
            (path / f"part{rank}" / "weights").write_text("old")
    distlab.run(rank_saves, 2, args=[path, late])
    found = {str(each.relative_to(path)) for each in path.rglob("*")}
    assert found == {"same"} | {f"part{r}{n}" for r in "01" for n in ("", "/deep", "/weights")}
    assert [(path / f"part{rank}" / "weights").read_text() for rank in range(2)] == ["new"] * 2
    assert (path / "same").read_text() == "0"
    assert names(tmp_path) == ["step"]


def test_a_part_that_came_too_late_is_kept(tmp_path):
    path = tmp_path / "step"
    wanted = r"Rank 1 saved part1/weights, and the chief had saved .* barrier"
    with pytest.raises(distlab.RankError, match=wanted):
        distlab.run(rank_saves, 2, args=[path, 1], kwargs={"_MEET": 0.1})
    (kept,) = tmp_path.glob("step.kept-*")
    assert (kept / "step" / "part1" / "weights").read_text() == "new"


def test_a_chief_that_saves_alone_waits_once(tmp_path):
    def save():
        waited = []
        for number in range(3):
            began = time.monotonic()
            if checkpoints.is_chief():
                with checkpoints.replacing(tmp_path / f"{number}") as own:
                    write(own, "directory", "alone")
            waited.append(time.monotonic() - began > checkpoints.saving._MEET)
        return waited

    assert distlab.run(save, 2) == [[True, False, False], [False] * 3]
    assert sorted(names(tmp_path)) == ["0", "1", "2"]


def who_saves(path: Path, kinds: list[str]) -> None:
    checkpoints.saving._PATIENCE = 1
    rank = int(os.environ["RANK"])
    kind = kinds[rank]
    if kind == "stays away":
        return
    with checkpoints.replacing(path) as own:
        write(own, kind, str(rank))
        if kind == "beside":
            own.with_name("beside").write_text(str(rank))
        if "stays away" not in kinds:
            meet(path.parents[1] / "-".join(kinds))


def test_what_another_rank_saves_is_put_there_or_kept(tmp_path, subtests):
    for chief, other, message in [
        ("stays away", "file", "Rank 1 saved model, and the chief .* let all ranks save"),
        ("nothing", "file", ""),
        ("nothing", "directory", ""),
        ("file", "directory", "in a directory, and the chief a file"),
        ("file", "beside", "has other names: beside"),
    ]:
        path = tmp_path / f"{chief} {other}" / "model"
        with subtests.test(chief=chief, other=other):
            if not message:
                distlab.run(who_saves, 2, args=[path, [chief, other]])
                assert read(path) == "1"
                assert names(path.parent) == ["model"]
                continue
            with pytest.raises(distlab.RankError, match=message):
                distlab.run(who_saves, 2, args=[path, [chief, other]])
            texts = [each.read_text() for each in path.parent.rglob("*") if each.is_file()]
            assert "1" in texts
            assert not path.exists()


def test_a_chief_that_fails_is_no_success_for_the_parts_of_others(tmp_path):
    def save():
        with checkpoints.replacing(tmp_path / "step") as own:
            write(own, "directory", "half")
            meet(tmp_path / "met")
            if checkpoints.is_chief():
                raise KeyError("mine")

    def both():
        try:
            save()
        except (KeyError, RuntimeError) as error:
            return str(error)

    chief, other = distlab.run(both, 2)
    assert (chief, other[:34]) == ("'mine'", "The chief failed while rank 1 save")
    assert names(tmp_path) == ["met"]


def test_saves_in_a_row_do_not_get_in_each_others_way(tmp_path):
    """A rank that is ahead waits until the chief has fetched what it saved before."""
    path = tmp_path / "model"

    def save():
        for number in range(20):
            with checkpoints.replacing(path) as own:
                write(own, "directory", f"{os.environ['RANK']} {number}")
                (own / os.environ["RANK"]).touch()

    distlab.run(save, 3)
    assert read(path) == "0 19"
    assert names(tmp_path) == ["model"]
