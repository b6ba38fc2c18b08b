"""Description of a data set, before anything trains: its columns, its classes, its owners, and what each client has."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from fedsel_app.caches import kept
from fedsel_app.config import ConfigError, DataConfig, PartitionConfig
from fedsel_app.data.client_parts import client_examples
from fedsel_app.data.dataset import Dataset, load
from fedsel_app.data.tables import Column, Encoding
from fedsel_app.wiring.configuration import AppConfig
from simulation.operations.deployment.leaks import leaks, listed
from simulation.workbench.terminal import whole_table


def describe(config: AppConfig) -> list[Table | str]:
    """Sentences and tables about the data of a run, in their order.

    Raises ConfigError if the data are absent, or cannot be read.
    """
    dataset = load(config.data, config.run.seed)
    parts: list[Table | str] = [f"Data: {dataset.description}"]
    parts += [_columns(dataset.table)] if dataset.table else [_samples(dataset)]
    if dataset.task not in ("regression", "next-token"):
        parts.append(_classes(dataset))
    if dataset.owners is not None:
        parts.append(_owners(dataset.owner_names, dataset.owners))
    parts += leaks(dataset)
    if dataset.task in ("regression", "next-token"):
        return parts
    arguments = config.data, config.partition, config.run.clients, config.run.seed
    try:
        counts = client_label_counts(*arguments)
    except ConfigError as error:
        return [*parts, f"Clients: {error}"]
    title = f"Training examples of each client by {label_words(dataset)[0]} (partition {config.partition.partition})"
    sizes = [client_examples(*arguments, client)[0].size for client in range(config.run.clients)]
    rows = {str(client): [size, *row] for client, (size, row) in enumerate(zip(sizes, counts, strict=True))}
    return [*parts, _table(title, "client", ["examples", *_names(dataset)], rows)]


def _columns(table: Encoding) -> Table:
    rows = whole_table("column", "kind", "type", "becomes", numbers=("missing", "unknown"), title="Inputs")
    for column, missing, unknown in zip(table.columns, table.missing, table.unknown, strict=True):
        becomes = _becomes(column, gaps=missing > 0)
        rows.add_row(column.name, column.kind, column.type, becomes, str(missing), str(unknown))
    return rows


def _becomes(column: Column, *, gaps: bool) -> str:
    meaning = {"number": "a number", "date": "days since 1970"}.get(column.kind)
    meaning = meaning or f"one feature for each of {len(column.categories)} values: {listed(column.categories)}"
    fill = f"{column.fill:g}" if isinstance(column.fill, float) else column.fill
    tells = ", and a feature that tells" if column.indicator else ""
    return f"{meaning}; a missing value becomes {fill}{tells}" if gaps else meaning


def _samples(dataset: Dataset) -> str:
    low, high = dataset.samples.min(), dataset.samples.max()
    return f"Samples: {dataset.samples.dtype} of shape {dataset.sample_shape}, from {low:g} to {high:g}"


def _classes(dataset: Dataset) -> Table:
    parts = (dataset.y_train, dataset.y_test)
    if dataset.task == "classification":
        counts = [np.bincount(y, minlength=dataset.classes) for y in parts]
    else:
        counts = [y.sum(axis=0).astype(int) for y in parts]
    rows = dict(zip(_names(dataset), np.transpose(counts).tolist(), strict=True))
    word, several = label_words(dataset)
    return _table(several.capitalize(), word, ["training examples", "test examples"], rows)


def _owners(names: Sequence[str], owners: NDArray[np.int64]) -> str:
    held = np.bincount(owners, minlength=len(names))
    owner_texts = [f"{name} ({count:,})" for name, count in zip(names, held, strict=True)]
    return f"Owners: {len(owner_texts)} with {held.min():,} to {held.max():,} training examples: {listed(owner_texts)}"


def _names(dataset: Dataset) -> Sequence[str]:
    return dataset.names or [str(label) for label in range(dataset.classes)]


def _table(title: str, names: str, columns: Sequence[str], rows: Mapping[str, Iterable[int]]) -> Table:
    table = whole_table(names, numbers=tuple(columns), title=title)
    for name, counts in rows.items():
        table.add_row(name, *(f"{count:,}" for count in counts))
    return table


def label_words(dataset: Dataset) -> tuple[str, str]:
    """What one and several of the outputs are called."""
    return ("label", "labels") if dataset.task == "multi-label" else ("class", "classes")


@partial(kept, results=16)
def client_label_counts(data: DataConfig, partition: PartitionConfig, clients: int, seed: int) -> NDArray[np.int64]:
    """Number of training examples of each client and label, int64 (K, L).

    Raises ConfigError if the data are not available, or have no classes.
    """
    if partition.partition == "own":
        raise ConfigError("only the clients know their data")
    dataset = load(data, seed)
    if dataset.task in ("regression", "next-token"):
        raise ConfigError(f"a {dataset.task} data set has no classes")
    y = np.eye(dataset.classes, dtype=np.bool_)[dataset.y_train] if dataset.y_train.ndim == 1 else dataset.y_train > 0
    mine = (client_examples(data, partition, clients, seed, client)[0] for client in range(clients))
    return np.stack([y[examples].sum(axis=0, dtype=np.int64) for examples in mine])
