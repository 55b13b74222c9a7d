"""What the lesson on failures claims of saving, tried at many random moments of it.

Real processes save real Keras models and checkpoints, one after the other, and are killed. What is
loaded after that has to be one of the saves, whole. The weights of a model all hold the number of
its save, so that a mixture of two would be seen.
"""

import os
import random
import re
import time
from pathlib import Path

import pytest
from _processes import require

import distlab
from distlab import checkpoints

RANKS, ROUNDS = 4, 5
"""So many processes are killed in each round, each at a moment of its own."""


def save_for_ever(way, folder):
    """Load what an earlier attempt left, say its number, and save until killed."""
    os.environ.pop("TF_CONFIG")  # each rank for itself
    place = Path(folder, os.environ.pop("RANK"))
    os.environ.pop("WORLD_SIZE")

    import tensorflow as tf
    import tf_keras

    def build():
        model = tf_keras.Sequential([tf_keras.Input((64,)), tf_keras.layers.Dense(256)])
        model.compile("sgd", "mse")
        return model

    model, weights = build(), None
    path = place / "model.keras"
    checkpoint = tf.train.Checkpoint(model=model)
    manager = tf.train.CheckpointManager(checkpoint, str(place / "checkpoints"), max_to_keep=1)
    if way == "replacing" and path.exists():
        weights = tf_keras.models.load_model(path).get_weights()
    if way == "manager" and manager.latest_checkpoint:
        checkpoint.restore(manager.latest_checkpoint).assert_existing_objects_matched()
        weights = model.get_weights()

    number = 0
    if weights is not None:
        values = {float(value) for array in weights for value in array.ravel()}
        assert len(values) == 1, f"parts of several saves: {sorted(values)}"
        number = int(values.pop())
    print("found", number)
    while True:
        number += 1
        model.set_weights([array * 0 + number for array in model.get_weights()])
        if way == "replacing":
            with checkpoints.replacing(path) as own:
                model.save(own)
        else:
            manager.save()
        print("has saved", number)


def last(job, rank, word):
    """The last number that a rank has printed after a word; 0 if none."""
    found = re.findall(rf"^{word} (\d+)\n", job.log(rank), re.MULTILINE)
    return int(found[-1]) if found else 0


@pytest.mark.parametrize("way", ["replacing", "manager"])
def test_killed_at_any_moment_of_saving(tmp_path, monkeypatch, way):
    require("tf_keras")
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    saved = [0] * RANKS
    with distlab.launch(save_for_ever, RANKS, "tensorflow", args=(way, tmp_path)) as job:
        for _ in range(ROUNDS):
            for rank in random.sample(range(RANKS), RANKS):
                job.wait_for_output(rank, "has saved")
                assert last(job, rank, "found") >= saved[rank], "a save that was done is lost"
                # No event to wait for: the moment is to be random. A save takes milliseconds.
                time.sleep(random.uniform(0, 0.05))
                job.kill(rank)
                saved[rank] = last(job, rank, "has saved")
            job.restart()
        for rank in range(RANKS):
            job.wait_for_output(rank, "has saved")
            assert last(job, rank, "found") >= saved[rank] > 0
    kept = "model.keras" if way == "replacing" else "checkpoints"
    for rank in range(RANKS):
        there = {path.name for path in (tmp_path / str(rank)).iterdir()}
        assert kept in there and there <= {kept, "checkpoints", ".model.keras.saving"}


def test_a_plain_save_is_lost_when_killed_in_the_middle(tmp_path, monkeypatch):
    """The reason for all this: if it ever stops being true, the lesson has to say so."""
    require("tf_keras")
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")

    def save(path):
        import sys
        import threading

        import tf_keras

        if path.exists():
            return tf_keras.models.load_model(path).count_params()
        model = tf_keras.Sequential([tf_keras.Input((4,)), tf_keras.layers.Dense(2)])
        model.save(path)
        before = path.stat().st_size

        def look(*_):
            if path.stat().st_size != before:
                sys.setprofile(None)
                print("in the middle")
                threading.Event().wait()

        sys.setprofile(look)
        return model.save(path)

    with distlab.launch(save, 1, "tensorflow", args=(tmp_path / "model.keras",)) as job:
        job.wait_for_output(0, "in the middle")
        job.kill(0)
        job.restart()
        with pytest.raises(distlab.RankError, match=r"file|File"):
            job.results(timeout=60)
