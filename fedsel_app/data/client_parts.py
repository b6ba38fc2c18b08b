"""Client parts: the training examples of each client, without those of the server, and its own test part."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from fedsel_app.caches import kept
from fedsel_app.config import ConfigError, DataConfig, PartitionConfig
from fedsel_app.data.dataset import Dataset, load
from fedsel_app.data.partition import divide, holdout, split
from fedsel_app.seeds import Purpose, stream

Ints = NDArray[np.int64]


@kept
def client_parts(config: PartitionConfig, dataset: Dataset, clients: int, seed: int) -> list[Ints]:
    """Positions of each client's training examples; the same for the same arguments.

    Returns K arrays as `partition.split` does, without the server's examples (see `partition.divide`). Raises
    ConfigError as in `partition.split` and `partition.divide`, or without training examples.
    """
    labels, owners = dataset.y_train, dataset.owners
    if not len(labels):
        raise ConfigError("The data have no training examples for the clients. Add some, such as x_train and y_train.")
    if not config.surrogate_examples and not config.validation_fraction:
        return split(config, labels, clients, seed, owners)
    left = divide(config, labels, seed).clients
    config = replace(config, surrogate_examples=0, validation_fraction=0.0)
    parts = split(config, labels[left], clients, seed, None if owners is None else owners[left])
    return [left[part] for part in parts]


def client_examples(
    data: DataConfig, partition: PartitionConfig, clients: int, seed: int, client: int
) -> tuple[Ints, Ints]:
    """A client's training examples and its own test part, as indices into the data set's training part.

    With the partition own, all examples belong to the client.
    """
    return _examples_of_run(data, partition, clients, seed)(client)


@kept
def _examples_of_run(
    data: DataConfig, partition: PartitionConfig, clients: int, seed: int
) -> Callable[[int], tuple[Ints, Ints]]:
    """Examples of each client of a run; test parts are held out on the first request."""
    dataset = load(data, seed)
    fraction = partition.holdout_fraction
    y = dataset.y_train
    if not y.size:
        raise ConfigError("This client's data have no training examples. Add some, such as x_train and y_train.")
    parts = None if partition.partition == "own" else client_parts(partition, dataset, clients, seed)

    @cache
    def of_client(client: int) -> tuple[Ints, Ints]:
        mine = np.arange(len(y)) if parts is None else parts[client]
        if not fraction:
            return mine, mine[:0]
        # The stream of round 0 of this purpose drew the partition.
        rng = stream(seed, Purpose.PARTITION, 1, client)
        return holdout(mine, y, fraction, rng, class_examples=partition.holdout_class_examples)

    return of_client
