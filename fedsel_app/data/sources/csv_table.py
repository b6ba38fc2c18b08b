"""Tables in CSV files: columns of numbers as inputs, and one column of labels, which are numbers or texts."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import ConfigError, DataConfig
from fedsel_app.data.columns import known_column, label_column, numbered, owners


def read(config: DataConfig) -> tuple[dict[str, Any], int | None]:
    """Read the table of `data-path`, whose first line names the columns.

    Returns
    -------
    arrays
        x_train : float32 (n, columns); y_train; task; owners if `data-arguments` name their column.
    classes
        Number of classes if the labels are texts, which are numbered in alphabetical order; else None.

    Raises
    ------
    ConfigError
        If the file is absent or is not a table, a named column is absent, or a value is not a number.
    """
    path = Path(config.data_path)
    arguments = config.arguments
    source = f"The table '{path.resolve()}'"
    columns = _columns(path, source)
    task = arguments.get("task", "classification")
    label = label_column(arguments.get("label", ""), columns, source)
    owner = arguments.get("owner", "")
    inputs = arguments.get("input") or [name for name in columns if name not in (label, owner)]
    for name in filter(None, [owner, *inputs]):
        known_column(name, columns, source)
    if not inputs:
        raise ConfigError(f"{source} has no column for the inputs, in addition to the labels.")
    samples = np.stack([_numbers(columns[name], name, source) for name in inputs], axis=1).astype(np.float32)
    try:
        labels = _numbers(columns[label], label, source)
    except ConfigError:
        labels = np.array(columns[label], dtype=object)
    targets, classes = numbered({"y_train": labels}, task)
    arrays = {"x_train": samples, "task": np.array(task), **targets}
    if owner:
        arrays["owners"] = owners(np.array(columns[owner]))
    return arrays, classes


def _columns(path: Path, source: str) -> dict[str, list[str]]:
    if not path.is_file():
        kind = "is a folder" if path.is_dir() else "does not exist"
        raise ConfigError(f"{source} {kind}. Set 'data-path' to a .csv file whose first line names the columns.")
    try:
        with path.open(encoding="utf-8", newline="") as file:
            header, *rows = [row for row in csv.reader(file) if row] or [[]]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{source} cannot be read as CSV: {error}.") from error
    if len(header) == 1 and (separators := [mark for mark in ";\t|" if mark in header[0]]):
        raise ConfigError(f"{source} has {separators[0]!r} between its columns. Separate them with commas.")
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise ConfigError(f"{source} has {len(row)} values in row {number}, but {len(header)} columns.")
    if not rows:
        raise ConfigError(f"{source} has no rows below the names of its columns.")
    return {name.strip(): list(values) for name, values in zip(header, zip(*rows, strict=True), strict=True)}


def _numbers(values: list[str], name: str, source: str) -> NDArray[np.float64]:
    try:
        return np.array([float(value) for value in values])
    except ValueError as error:
        raise ConfigError(
            f"{source} has a value in '{name}' that is not a number ({error}). To leave the column out, name the "
            'columns of the inputs, as in data-arguments=input=["NAME"].'
        ) from error
