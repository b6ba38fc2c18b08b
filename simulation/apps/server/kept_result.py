"""Result of a run in its run folder: its model, and the metrics of its rounds, which a run that goes on has too.

The file result.jsonl has a line for each round, and in it the metrics by the names of `KINDS`. Round 0 is the initial
model.
"""

import json
import math
from pathlib import Path
from typing import Any

from flwr.app import MetricRecord
from flwr.serverapp.strategy import Result

from fedsel_app.config import ConfigError
from fedsel_app.records.files import append_rows, json_value, read_arrays, write_text
from fedsel_app.records.reading import read_rows
from fedsel_app.records.run_folder import Model
from fedsel_app.records.schema import Row, with_version
from simulation.apps.server.client_metrics import plain_metrics

FILE = "result.jsonl"
KINDS = ("train_metrics_clientapp", "evaluate_metrics_clientapp", "evaluate_metrics_serverapp")


def keep(result: Result, number: int, folder: Path) -> None:
    """Append the metrics of round `number` to the file. Raises RecordError if that cannot be written."""
    row: Row = {"round": number}
    for kind in KINDS:
        metrics = plain_metrics(getattr(result, kind).get(number, {}))
        row[kind] = {name: value for name, value in metrics.items() if isinstance(value, int | float | list)}
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


def _check(row: Row) -> None:
    """Raise ValueError if a row has no round, or other metrics than numbers and lists of them."""
    try:
        row["round"] = int(row["round"])
        _records(row)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"its round or its metrics are damaged: {error}") from error


def _records(row: Row) -> dict[str, MetricRecord]:
    """The metrics of each kind that has some."""
    return {
        kind: MetricRecord({name: _read(value) for name, value in row[kind].items()}) for kind in KINDS if row[kind]
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
