"""Client parts: the training examples of each client, by fedsel's own partitions or a partitioner of flwr-datasets.

A partitioner of flwr-datasets gets the training examples of the run in their order. Its data set has their original
columns of single values and two more: `label`, the target, and `owner`, if the data set names owners.
"""

import inspect
import io
import warnings
from contextlib import redirect_stderr
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import ConfigError, PartitionConfig
from fedsel_app.config.data import SIZE_FUNCTION, UPSTREAM
from fedsel_app.config.plugins import call, described, load_object, unknown_name
from fedsel_app.data.dataset import Dataset
from fedsel_app.data.partition import divide, split, strata
from fedsel_app.seeds import Purpose, stream

Ints = NDArray[np.int64]

INDEX = "index in fedsel"
"""Name of the column with the positions of the examples."""


def client_parts(config: PartitionConfig, dataset: Dataset, clients: int, seed: int) -> list[Ints]:
    """Positions of each client's training examples; the same for the same arguments.

    Returns
    -------
    list of K int64 arrays
        As `partition.split` returns them, without the server's examples (see `partition.divide`); the parts of a
        partitioner of flwr-datasets are in its own order.

    Raises
    ------
    ConfigError
        As in `partition.split` and `partition.divide`, or if a partitioner does not exist or raises for its
        arguments or the data.
    """
    if not len(dataset.y_train):
        raise ConfigError("The data have no training examples for the clients. Add some, such as x_train and y_train.")
    if config.surrogate_examples or config.validation_fraction:
        left = divide(config, dataset.y_train, seed).clients
        of_clients = replace(config, surrogate_examples=0, validation_fraction=0.0)
        return [left[part] for part in client_parts(of_clients, _rows(dataset, left), clients, seed)]
    if not config.partitioner and not config.function:
        return split(config, dataset.y_train, clients, seed, dataset.owners)
    if config.function:
        parts = own_parts(config.function, dataset.y_train, clients, seed)
    else:
        parts = _upstream_parts(config, _columns(dataset), clients, seed)
    held = np.array([part.size for part in parts])
    if held.min() < config.min_examples:
        raise ConfigError(
            f"With 'partition' {config.partition}, client {held.argmin()} would have {held.min()} examples, but "
            f"'min-examples' is {config.min_examples}. Change the partition or its arguments, or lower 'min-examples'."
        )
    return parts


def own_parts(function: str, labels: NDArray[Any], clients: int, seed: int) -> list[Ints]:
    """Parts from a user's function, called with the labels (n,), the number of clients K and a generator.

    Returns K int64 arrays.

    Raises
    ------
    ConfigError
        If the function raises, or does not return K disjoint lists of distinct positions in [0, n).
    """
    made = call(function, "partition", labels.copy(), clients, stream(seed, Purpose.PARTITION))
    must = f"The function '{function}' ('partition') must return {clients} lists of positions in 0 to {len(labels) - 1}"
    if isinstance(made, dict):
        raise ConfigError(f"{must}. Got dict.")
    try:
        parts = [np.asarray(part) for part in made]
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{must}. Got {type(made).__name__}.") from error
    if len(parts) != clients:
        raise ConfigError(f"{must}, one for each client. Got {len(parts)}.")
    for client, part in enumerate(parts):
        whole = part.ndim == 1 and (np.issubdtype(part.dtype, np.integer) or not part.size)
        if not whole or (part.size and (part.min() < 0 or part.max() >= len(labels))):
            raise ConfigError(f"{must}. Client {client} has {part.tolist()[:10] if whole else part.dtype}.")
    positions, counts = np.unique(np.concatenate(parts), return_counts=True)
    if (counts > 1).any():
        raise ConfigError(f"{must}, without repetition. Position {int(positions[counts.argmax()])} is repeated.")
    return [part.astype(np.int64) for part in parts]


def _rows(dataset: Dataset, rows: Ints) -> Dataset:
    """`dataset` with only these training examples."""
    owners = None if dataset.owners is None else dataset.owners[rows]
    columns = {name: values[rows] for name, values in dataset.columns.items()}
    return replace(dataset, y_train=dataset.y_train[rows], owners=owners, columns=columns)


def _columns(dataset: Dataset) -> dict[str, NDArray[Any]]:
    labels = dataset.y_train if dataset.y_train.ndim == 1 else strata(dataset.y_train)
    owners = {} if dataset.owners is None else {"owner": dataset.owners}
    return {**dataset.columns, **owners, "label": labels, INDEX: np.arange(len(labels))}


def _upstream_parts(config: PartitionConfig, columns: dict[str, NDArray[Any]], clients: int, seed: int) -> list[Ints]:
    """The first K partitions of a partitioner of flwr-datasets, in its order."""
    try:
        import datasets
        from flwr_datasets import partitioner as upstream
    except ImportError as error:
        raise ConfigError(
            f"The 'partition' parameter {config.partition} needs the package flwr-datasets: "
            "pip install 'fedsel[datasets]'."
        ) from error
    kind = getattr(upstream, _class_name(config.partitioner, upstream.__all__))
    if kind.__name__.startswith("Vertical"):
        raise ConfigError(
            f"The partitioner {kind.__name__} divides the columns, so every client would need its own model. "
            "Choose a partitioner that divides the examples."
        )
    arguments = _arguments(config, inspect.signature(kind).parameters, list(columns), clients, seed)
    with warnings.catch_warnings(record=True) as issued, redirect_stderr(io.StringIO()):  # a progress bar
        warnings.simplefilter("always")
        try:
            partitioner = kind(**arguments)
            partitioner.dataset = datasets.Dataset.from_dict(columns)
            count = partitioner.num_partitions
            parts = [partitioner.load_partition(client) for client in range(min(count, clients))]
        except Exception as error:
            raise ConfigError(f"The partitioner {kind.__name__} failed: {described(error)}.") from error
    for warning in issued:
        if Path(warning.filename).is_relative_to(Path(upstream.__file__).parent):
            warnings.warn(str(warning.message), stacklevel=2)
    if count < clients:
        raise ConfigError(
            f"The partitioner {kind.__name__} makes {count} partitions, but there are {clients} clients. "
            f"Set 'clients' to {count}, or change 'partition-arguments'."
        )
    return [part.with_format("numpy")[:][INDEX].astype(np.int64) for part in parts]


def _class_name(name: str, names: list[str]) -> str:
    """Name of the class for `name`, which may omit the word Partitioner: Dirichlet or dirichlet."""
    classes = [each for each in names if each != "Partitioner"]
    for each in classes:
        if name.replace("-", "").lower() in (each.lower(), each.removesuffix("Partitioner").lower()):
            return each
    raise unknown_name("partition", UPSTREAM + name, [UPSTREAM + each for each in classes], "one of fedsel's own")


def _arguments(config: PartitionConfig, parameters: Any, columns: list[str], clients: int, seed: int) -> dict[str, Any]:
    """Arguments of the partitioner: those in `partition-arguments`, and values of the run for some others."""
    given = config.arguments
    if unknown := [name for name in given if name not in parameters]:
        raise ConfigError(
            f"The partitioner of {config.partition} has no argument {', '.join(unknown)}, as in 'partition-arguments'. "
            f"It takes {', '.join(parameters)}."
        )
    of_run = {"num_partitions": clients, "seed": seed, "partition_by": "label"}
    arguments = {name: value for name, value in of_run.items() if name in parameters} | given
    for name, parameter in parameters.items():
        if parameter.default is inspect.Parameter.empty and name not in arguments:
            raise ConfigError(f"The partitioner of {config.partition} needs '{name}' in 'partition-arguments'.")
    if (column := arguments.get("partition_by", "label")) not in columns:
        names = ", ".join(name for name in columns if name != INDEX)
        raise ConfigError(f"The 'partition_by' in 'partition-arguments' must be one of {names}. Got {column!r}.")
    if SIZE_FUNCTION in arguments:
        arguments[SIZE_FUNCTION] = load_object(str(arguments[SIZE_FUNCTION]), "partition-arguments")
    # A partitioner needs a list of lists as an array.
    nested = {name for name, value in arguments.items() if isinstance(value, list) and value and type(value[0]) is list}
    return {name: np.array(value) if name in nested else value for name, value in arguments.items()}
