"""The digits of `distlab.datasets` as a TensorFlow Datasets builder.

TFDS knows a builder once its class has been defined, so one import is all it takes:

    import distlab.lessons.datasets.digits_builder
    import tensorflow_datasets as tfds

    train = tfds.load("distlab_digits", split="train", as_supervised=True)

From there on it is TFDS as it always is: the examples are prepared into `data_dir` once and read
from its files after that. Nothing is downloaded.

Importing this module imports `tensorflow_datasets`, which is why nothing in distlab does.
"""

from collections.abc import Iterator
from typing import Any

import tensorflow_datasets as tfds

from distlab.lessons import datasets


class _LocalInfo(tfds.core.DatasetInfo):  # type: ignore[misc]
    def initialize_from_bucket(self) -> None:
        """Look nothing up: no bucket has the digits, and each look leaves a directory behind."""


class DistlabDigits(tfds.core.GeneratorBasedBuilder):  # type: ignore[misc]
    """`datasets.load("digits")`, example by example and in the same order.

    Features: `image`, `(28, 28, 1)` uint8, and `label`, int64 from 0 to 9. Splits: `train` (1,536)
    and `test` (261).
    """

    VERSION = tfds.core.Version("1.0.0")

    def _info(self) -> tfds.core.DatasetInfo:
        return _LocalInfo(
            builder=self,
            description=datasets.__doc__,
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(28, 28, 1)),
                    "label": tfds.features.ClassLabel(num_classes=10),
                }
            ),
            supervised_keys=("image", "label"),
            # Their order is random already; shuffled again, they would no longer match the arrays.
            disable_shuffling=True,
            homepage="https://doi.org/10.24432/C50P49",
            license="CC BY 4.0",
        )

    def download_and_prepare(self, **kwargs: Any) -> None:
        """Prepare the files, or take those that another rank has prepared in the meantime."""
        try:
            super().download_and_prepare(**kwargs)
        except FileExistsError:
            self.info.read_from_directory(self.data_dir)

    def _split_generators(self, _: tfds.download.DownloadManager) -> dict[str, Any]:
        train, test = datasets.load("digits")
        return {"train": self._generate_examples(*train), "test": self._generate_examples(*test)}

    def _generate_examples(self, images: Any, labels: Any) -> Iterator[tuple[int, dict[str, Any]]]:
        for index, (image, label) in enumerate(zip(images, labels, strict=True)):
            yield index, {"image": image, "label": label}
