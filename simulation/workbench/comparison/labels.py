"""Labels of the clients' examples, from the data and partition of a run."""

from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from clients.examples import client_examples
from fedsel_app.caches import kept
from fedsel_app.config import ConfigError, DataConfig, PartitionConfig
from fedsel_app.data.dataset import load
from fedsel_app.wiring.configuration import AppConfig
from simulation.workbench.comparison.runs import RecordedRun
from simulation.workbench.comparison.statistics import Floats, coverage

UNKNOWN_LABELS = "only the clients know their data"


def label_coverage(run: RecordedRun) -> Floats:
    """Share of the labels in the training examples of each round's cohort, float64 (T,); NaN without a cohort.

    Raises ConfigError if the run's data or partition are not available, or the data have no labels.
    """
    if run.config["partition"] == "own":
        raise ConfigError(UNKNOWN_LABELS)
    config = AppConfig.from_values(run.config)
    counts = client_label_counts(replace(config.data, download=False), config.partition, config.run.clients, run.seed)
    return np.array([coverage(row["selected"], counts) if row["selected"] else np.nan for row in run.rows])


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
