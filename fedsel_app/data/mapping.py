"""Mapping of a client's own data to the schema of its federation (`fedsel_app.messages.schema`).

A client may lack classes and categories, and its columns may stand in another order. Whatever else does not fit is
refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsel_app.config import ConfigError, DataConfig
from fedsel_app.data.arrays import MOST_LISTED
from fedsel_app.messages.schema import Schema

if TYPE_CHECKING:
    from fedsel_app.data.dataset import Dataset

FAR = 10.0
"""Standard deviations from the federation's mean at which a client's mean is that of another unit."""
FEW = 10
"""Examples of which a few odd ones may have any mean."""


def schema_of(data: "Dataset", config: DataConfig) -> Schema:
    """Schema of the server's data, without mean and standard deviation."""
    columns = () if data.table is None else data.table.columns
    stated = tuple({**asdict(column), "categories": list(column.categories)} for column in columns)
    label = str(config.arguments.get("label", "")) if config.takes_columns else ""
    return Schema(data.task, data.classes, _samples(data), data.names, label, stated)


def arguments_in(schema: Schema, of_client: Mapping[str, Any]) -> dict[str, Any]:
    """The `of_client` `data-arguments` of a client, and what the schema says in their place."""
    arguments = ({"label": schema.label} if schema.label else {}) | dict(of_client) | {"task": schema.task}
    if schema.names:
        arguments["classes"] = list(schema.names)
    if schema.columns:
        from fedsel_app.data.tables import Column

        stated = [{**fields, "categories": tuple(fields["categories"])} for fields in schema.columns]
        arguments["columns"] = tuple(Column(**fields) for fields in stated)
    return arguments


def mapped(data: "Dataset", schema: Schema, source: str) -> "Dataset":
    """A client's data in the schema. Raises ConfigError, with the `source`, if they do not fit."""
    if data.task != schema.task:
        raise ConfigError(f"{source} are for {data.task}, but the server's schema is for {schema.task}.")
    if bool(schema.columns) != (data.table is not None):
        kinds = ("a table", "arrays without names of columns")
        ours, theirs = kinds if schema.columns else kinds[::-1]
        raise ConfigError(f"{source} are {theirs}, but the server's schema is of {ours}. Use data of this kind.")
    grey, coloured = (("uint8", channels, *data.x_train.shape[2:]) for channels in (1, 3))
    if _samples(data) == {"": grey} and schema.samples == {"": coloured}:
        data = replace(data, x_train=data.x_train.repeat(3, axis=1), x_test=data.x_test.repeat(3, axis=1))
    if _samples(data) != schema.samples:
        theirs, ours = (_described(samples) for samples in (_samples(data), schema.samples))
        raise ConfigError(f"{source} have samples of {theirs}, but the server's schema has {ours}.")
    if schema.task == "classification":
        made = renumbered(data, schema.names or range(schema.classes), source)
        return made if schema.names else replace(made, names=())
    if schema.task == "next-token" and data.classes < schema.classes:
        return replace(data, classes=schema.classes)
    if data.classes != schema.classes:
        raise ConfigError(f"{source} have {data.classes} labels, but the server's schema has {schema.classes}.")
    return data


def scaled(data: "Dataset", schema: Schema, source: str) -> "Dataset":
    """A client's data with the mean and the standard deviation of the schema.

    Raises ConfigError, with the column of a table, if its mean is so far from the schema's that it must have another
    unit, or be another quantity.
    """
    mean, std = np.array(schema.mean, np.float32), np.array(schema.std, np.float32)
    if data.table is not None and len(data.x_train) >= FEW:
        names = [column.name for column in data.table.columns for _ in range(column.width)]
        means = data.x_train.mean(axis=0, dtype=np.float64)
        for name, average, stated, deviation in zip(names, means, mean, std, strict=True):
            if stated and abs(average - stated) > FAR * deviation:
                raise ConfigError(
                    f"{source} have a mean of {average:.6g} in column '{name}', but the federation's is "
                    f"{stated:.6g}, with a standard deviation of {deviation:.6g}. Convert the column to the "
                    "federation's unit."
                )
    return replace(data, mean=mean, std=std)


def renumbered(data: "Dataset", names: Sequence[Any], source: str) -> "Dataset":
    """The data set with its classes numbered by their places in `names`; classes without a name are called by numbers.

    Raises ConfigError if an example has another class.
    """
    numbers = {str(name): number for number, name in enumerate(names)}
    old_names = data.names or tuple(map(str, range(data.classes)))
    held, counts = np.unique(np.concatenate([data.y_train, data.y_test]), return_counts=True)
    for label, count in zip(held.tolist(), counts.tolist(), strict=True):
        if old_names[label] not in numbers:
            listed = ", ".join(list(numbers)[:MOST_LISTED]) + ", ..." * (len(numbers) > MOST_LISTED)
            raise ConfigError(
                f"Correct the class {old_names[label]!r} ({count} examples), or let the server state all "
                f"classes: 'data-arguments' with classes=[...]. {source} may have only the stated classes {listed}."
            )
    places = np.array([numbers.get(name, -1) for name in old_names], np.int64)
    y_train, y_test = places[data.y_train], places[data.y_test]
    return replace(data, y_train=y_train, y_test=y_test, classes=len(numbers), names=tuple(numbers))


def _samples(data: "Dataset") -> dict[str, tuple[Any, ...]]:
    """Type and shape of a sample, see `Schema`."""
    kinds = data.samples.dtype
    if kinds.names is None:
        return {"": (kinds.name, *data.samples.shape[1:])}
    return {name: (kinds[name].base.name, *kinds[name].shape) for name in kinds.names}


def _described(samples: Mapping[str, Sequence[Any]]) -> str:
    return ", ".join(
        f"{name} shape ({', '.join(map(str, shape))}) and type {kind}".lstrip()
        for name, (kind, *shape) in samples.items()
    )
