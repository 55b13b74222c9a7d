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
        return own.name, own != path, own.exists()

    assert distlab.run(save, 4) == [("model.keras", True, False)] * 4
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
