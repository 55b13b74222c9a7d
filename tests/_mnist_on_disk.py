"""Write a small data set named mnist where and how TFDS keeps the real one.

Run as a script: `python _mnist_on_disk.py DATA_DIR ARRAYS.npz`. A process of its own, so that the
tests themselves stay free of TensorFlow.
"""

import sys

import numpy as np
import tensorflow_datasets as tfds

data_dir, file = sys.argv[1:]
real = tfds.builder("mnist", data_dir=data_dir)
with np.load(file) as arrays:
    splits = {
        split: [
            (index, {"image": image, "label": label})
            for index, (image, label) in enumerate(
                zip(arrays[f"x_{split}"], arrays[f"y_{split}"], strict=True)
            )
        ]
        for split in ("train", "test")
    }
tfds.dataset_builders.store_as_tfds_dataset(
    name="mnist",
    version=str(real.version),
    features=real.info.features,
    split_datasets=splits,
    data_dir=data_dir,
    disable_shuffling=True,
)
