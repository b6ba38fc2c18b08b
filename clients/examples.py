"""A client's own examples of the data set, and its label counts."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import DataConfig, PartitionConfig
from fedsel_app.data.dataset import Dataset, load
from fedsel_app.data.partition import holdout, label_counts, split
from fedsel_app.seeds import Purpose, stream

Ints = NDArray[np.int64]


@lru_cache(maxsize=4096)
def own_examples(
    data: DataConfig, partition: PartitionConfig, clients: int, seed: int, client: int
) -> tuple[Ints, Ints]:
    """A client's training examples and its own test part, as indices into the data set's training part.

    Under the partition own all of them are the client's.
    """
    own = partition.partition == "own"
    mine = np.arange(len(load(data, seed).y_train)) if own else _split(partition, data, clients, seed)[client]
    # Round 0 of this purpose drew the partition.
    rng = stream(seed, Purpose.PARTITION, 1, client)
    y, fraction = load(data, seed).y_train, partition.holdout_fraction
    return holdout(mine, y, fraction, rng, class_examples=partition.holdout_class_examples)


def label_counts_as_bytes(examples: Ints, dataset: Dataset) -> bytes:
    """Label counts: the number of `examples` of each class or label, as little-endian int64."""
    counts: bytes = label_counts([examples], dataset.y_train, dataset.classes)[0].astype("<i8").tobytes()
    return counts


@lru_cache(maxsize=2)
def _split(partition: PartitionConfig, data: DataConfig, clients: int, seed: int) -> list[Ints]:
    dataset = load(data, seed)
    return split(partition, dataset.y_train, clients, seed, dataset.owners)
