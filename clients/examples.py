"""Which examples of the data set are a client's own."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import DataConfig, PartitionConfig
from fedsel_app.data.dataset import Dataset, load
from fedsel_app.data.partition import holdout, label_counts, split
from fedsel_app.seeds import Purpose, stream

Integers = NDArray[np.int64]


@lru_cache(maxsize=4096)
def own_examples(
    data: DataConfig, partition: PartitionConfig, clients: int, seed: int, client: int
) -> tuple[Integers, Integers]:
    """A client's training examples and its own test part, as indices into the data set's training part.

    Under the partition own all of them are the client's.
    """
    own = partition.partition == "own"
    mine = np.arange(len(load(data, seed).y_train)) if own else _split(partition, data, clients, seed)[client]
    # Round 0 of this purpose drew the partition.
    rng = stream(seed, Purpose.PARTITION, 1, client)
    return holdout(mine, load(data, seed).y_train, data.holdout_fraction, rng)


def told_counts(examples: Integers, dataset: Dataset) -> bytes:
    """How many of the examples are of each class, or have each label, as little-endian int64."""
    told: bytes = label_counts([examples], dataset.y_train, dataset.classes)[0].astype("<i8").tobytes()
    return told


@lru_cache(maxsize=2)
def _split(partition: PartitionConfig, data: DataConfig, clients: int, seed: int) -> list[Integers]:
    dataset = load(data, seed)
    return split(partition, dataset.y_train, clients, seed, dataset.owners)
