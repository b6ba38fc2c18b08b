"""Which examples of the data set are a client's own."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedsel_app.data import DataConfig, load
from fedsel_app.partition import PartitionConfig, holdout, split
from fedsel_app.seeds import Purpose, stream

Integers = NDArray[np.int64]


@lru_cache(maxsize=4096)
def own_examples(
    data: DataConfig, partition: PartitionConfig, clients: int, seed: int, client: int
) -> tuple[Integers, Integers]:
    """A client's training examples and its own test part, as indices into the data set's training part."""
    mine = _split(partition, data, clients, seed)[client]
    # Round 0 of this purpose drew the partition.
    rng = stream(seed, Purpose.PARTITION, 1, client)
    return holdout(mine, load(data, seed).y_train, data.holdout_fraction, rng)


@lru_cache(maxsize=2)
def _split(partition: PartitionConfig, data: DataConfig, clients: int, seed: int) -> list[Integers]:
    dataset = load(data, seed)
    return split(partition, dataset.y_train, clients, seed, dataset.owners)
