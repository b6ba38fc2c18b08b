"""Result of a run in its run folder: its model, and the metrics of its rounds, which a run that goes on has too.

The file result.jsonl has a line for each round, and in it the metrics by the names of `KINDS`. Round 0 is the initial
model; its line has the types and shapes of the arrays.
"""

import json
import math
from collections.abc import Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp.strategy import Result

from fedsel_app.config import ConfigError
from fedsel_app.npz import read_arrays
from fedsel_app.records.files import append_rows, json_value, write_text
from fedsel_app.records.reading import read_rows
from fedsel_app.records.run_folder import Model
from fedsel_app.records.schema import Row, with_version
from simulation.apps.server.client_metrics import plain_metrics

FILE = "result.jsonl"
KINDS = ("train_metrics_clientapp", "evaluate_metrics_clientapp", "evaluate_metrics_serverapp")


def described(arrays: ArrayRecord) -> dict[str, str]:
    """Name -> type and shape of each array."""
    return {name: f"{array.dtype} {tuple(array.shape)}" for name, array in arrays.items()}


def refuse_other_arrays(folder: Path, arrays: ArrayRecord) -> None:
    """Raise ConfigError for a model with other arrays than the run in the folder; it names the first."""
    rows = read_rows(folder / FILE, _check)
    before, now = rows[0].get("arrays", {}) if rows else {}, described(arrays)
    for name in before and [*before, *now]:
        if before.get(name) != now.get(name):
            raise ConfigError(
                f"The run in {folder} has the array {name} as {before.get(name, 'none')}, and now it would be "
                f"{now.get(name, 'none')}. Resume it with its own model, or choose another 'out'."
            )


def keep(result: Result, number: int, folder: Path, arrays: Mapping[str, str]) -> None:
    """Append the metrics of round `number`, and the `arrays` if there are any, to the file.

    Raises RecordError if that cannot be written.
    """
    kinds = {kind: getattr(result, kind).get(number) for kind in KINDS}
    row = {"round": number, **{kind: _plain(metrics) for kind, metrics in kinds.items() if metrics is not None}}
    row |= {"arrays": arrays} if arrays else {}
    with (folder / FILE).open("ab", buffering=0) as file:
        append_rows(file, [with_version(row)])


def recall(folder: Path, completed: int) -> Result:
    """Result with the metrics of the rounds up to `completed`; those of later rounds leave the file.

    Raises ConfigError if the file is damaged.
    """
    result = Result()
    rows = [row for row in read_rows(folder / FILE, _check) if row["round"] <= completed]
    for row in rows:
        for kind, metrics in _records(row).items():
            getattr(result, kind)[row["round"]] = metrics
    write_text(folder / FILE, "".join(json.dumps(json_value(with_version(row))) + "\n" for row in rows))
    return result


def _plain(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers and lists of numbers among the metrics."""
    return {name: _number(value) for name, value in plain_metrics(metrics).items() if isinstance(value, Real | list)}


def _number(value: Any) -> Any:
    if isinstance(value, list):
        return [_number(entry) for entry in value]
    return int(value) if isinstance(value, Integral) else float(value)


def _check(row: Row) -> None:
    """Raise ValueError if a row has no round, or other metrics than numbers and lists of them."""
    if type(row.get("round")) is not int:
        raise ValueError("'round' is missing")
    try:
        _records(row)
    except (AttributeError, TypeError) as error:
        raise ValueError(f"the metrics are not numbers: {error}") from error


def _records(row: Row) -> dict[str, MetricRecord]:
    return {
        kind: MetricRecord({name: _read(value) for name, value in row[kind].items()}) for kind in KINDS if kind in row
    }


def _read(value: Any) -> Any:
    """A value of JSON, in which null is NaN."""
    if isinstance(value, list):
        return [_read(entry) for entry in value]
    return math.nan if value is None else value


def read_model(path: Path) -> Model:
    """The last model of the finished run in the folder at `path`. Raises ConfigError if it cannot be read."""
    try:
        with (path / "model.npz").open("rb") as file:
            arrays = read_arrays(file)
        return arrays["parameters"], arrays["buffers"]
    except (KeyError, ValueError, OSError) as error:
        raise ConfigError(f"The model {path / 'model.npz'} cannot be read: {error}.") from error
