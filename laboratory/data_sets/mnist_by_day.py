"""MNIST whose clients' labels follow the time of day: those of the small digits are there by day, the others by night.

The training images are split over 100 clients (Dirichlet 0.1, always the same split). Clients are numbered by their
mean label, so that most of what clients 0 to 49 hold are the digits 0 to 4. In each half of a day of `DAY_S` seconds, a
client is there with probability `OWN_HALF` in its own half, and otherwise in the other. The halves of `DAYS` days are
drawn once: `python -m laboratory.data_sets.mnist_by_day` writes them to mnist_by_day.csv, the trace of presence.

Cycles of labels are known from Eichner et al., "Semi-Cyclic Stochastic Gradient Descent", ICML 2019. A day is as short
as about ten rounds of ten clients here, so that a mean over ten rounds has both halves.
"""

import csv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import DataConfig, PartitionConfig
from fedsel_app.data.dataset import Dataset, from_arrays
from fedsel_app.data.partition import split
from fedsel_app.data.sources.published import read_torchvision

CLIENTS, ALPHA = 100, 0.1
DAY_S, DAYS = 90.0, 8
OWN_HALF = 0.9


def load(config: DataConfig) -> Dataset:
    """Load MNIST with the client of each training image as its owner."""
    arrays = read_torchvision("mnist", Path(config.data_path), download=config.download)
    labels = arrays["y_train"]
    parts = split(PartitionConfig(partition="dirichlet", alpha=ALPHA), labels, CLIENTS, seed=1)
    owners = np.zeros(len(labels), np.int64)
    for client, part in enumerate(sorted(parts, key=lambda part: float(labels[part].mean()))):
        owners[part] = client
    return from_arrays(arrays | {"owners": owners}, "The data set 'mnist_by_day'")


def stays() -> list[tuple[int, float, float]]:
    """Client, begin and end of each stay in seconds. Halves of days that follow each other are one stay."""
    rng = np.random.default_rng(1)
    by_day = np.arange(CLIENTS) < CLIENTS // 2
    in_half = np.arange(2 * DAYS) % 2 == 0
    present: NDArray[np.bool_] = rng.random((CLIENTS, 2 * DAYS)) < np.where(
        by_day[:, None] == in_half, OWN_HALF, 1.0 - OWN_HALF
    )
    edges = np.diff(np.pad(present, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    return [
        (client, begun * DAY_S / 2.0, end * DAY_S / 2.0)
        for client, of_client in enumerate(edges)
        for begun, end in zip(np.flatnonzero(of_client == 1), np.flatnonzero(of_client == -1), strict=True)
    ]


if __name__ == "__main__":
    with Path(__file__).with_suffix(".csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([("client", "begin_s", "end_s"), *stays()])
