"""Client parts: the training examples of each client, without those of the server."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import ConfigError, PartitionConfig
from fedsel_app.data.dataset import Dataset
from fedsel_app.data.partition import divide, split

Ints = NDArray[np.int64]


def client_parts(config: PartitionConfig, dataset: Dataset, clients: int, seed: int) -> list[Ints]:
    """Positions of each client's training examples; the same for the same arguments.

    Returns
    -------
    list of K int64 arrays
        As `partition.split` returns them, without the server's examples (see `partition.divide`).

    Raises
    ------
    ConfigError
        As in `partition.split` and `partition.divide`, or without training examples.
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
