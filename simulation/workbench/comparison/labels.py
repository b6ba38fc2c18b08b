"""Labels and number of the clients' examples, from the data and partition of a run."""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedsel_app.caches import kept
from fedsel_app.config import ConfigError, DataConfig, PartitionConfig
from fedsel_app.data.client_parts import client_examples
from fedsel_app.data.dataset import load

UNKNOWN_LABELS = "only the clients know their data"


@partial(kept, results=16)
def client_label_counts(data: DataConfig, partition: PartitionConfig, clients: int, seed: int) -> NDArray[np.int64]:
    """Number of training examples of each client and label, int64 (K, L).

    Raises ConfigError if the data are not available, or have no classes.
    """
    if partition.partition == "own":
        raise ConfigError(UNKNOWN_LABELS)
    dataset = load(data, seed)
    if dataset.task in ("regression", "next-token"):
        raise ConfigError(f"a {dataset.task} data set has no classes")
    y = np.eye(dataset.classes, dtype=np.bool_)[dataset.y_train] if dataset.y_train.ndim == 1 else dataset.y_train > 0
    mine = (client_examples(data, partition, clients, seed, client)[0] for client in range(clients))
    return np.stack([y[examples].sum(axis=0, dtype=np.int64) for examples in mine])


def client_sizes(data: DataConfig, partition: PartitionConfig, clients: int, seed: int) -> NDArray[np.int64]:
    """Number of training examples of each client, int64 (K,). Raises ConfigError if the data are not available."""
    mine = (client_examples(data, partition, clients, seed, client)[0] for client in range(clients))
    return np.array([examples.size for examples in mine], np.int64)
