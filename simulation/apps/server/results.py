"""Results of a run in a user's app: the clients' metrics, aggregated as Flower does, and the file that keeps them.

The file result.jsonl has a line for each round, and in it the metrics by the names of `KINDS`. Round 0 is the initial
model. A run that goes on has the metrics of its earlier rounds too.
"""

import json
import logging
import math
from collections import Counter
from collections.abc import Callable, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import MetricRecord, RecordDict
from flwr.serverapp.strategy import Result

from fedsel_app.config import ConfigError
from fedsel_app.messages.answers import MOST_EXAMPLES
from fedsel_app.messages.reported_values import one_line, winsorised
from fedsel_app.records.files import append_rows, json_value, read_arrays, write_text
from fedsel_app.records.reading import read_rows
from fedsel_app.records.run_folder import Model
from fedsel_app.records.schema import Row, with_version

LOGGER = logging.getLogger("fedsel")
Single = float | list[float]
"""A metric: a number, or a list of numbers."""
RecordFunction = Callable[[list[RecordDict], str], MetricRecord]
"""The clients' records and the key of their weights -> the round's metrics."""
FILE = "result.jsonl"
KINDS = ("train_metrics_clientapp", "evaluate_metrics_clientapp", "evaluate_metrics_serverapp")


def numeric_metrics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The numeric values among a user's metrics, also those of NumPy and torch."""
    return {name: float(value) for name, value in plain_metrics(metrics).items() if isinstance(value, int | float)}


def plain_metrics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """A user's metrics, with Python's numbers in place of those of NumPy and torch, also of arrays of one number."""
    return {
        name: value.item() if hasattr(value, "item") and math.prod(getattr(value, "shape", (0,))) == 1 else value
        for name, value in metrics.items()
    }


def bounded_examples(examples: Mapping[int, float], clip: float) -> dict[int, float]:
    """The clients' numbers of examples, at most `clip` times their median; 0 sets no bound."""
    values = winsorised(np.array(list(examples.values()), np.float64), clip)
    return dict(zip(examples, values.tolist(), strict=True))


def finite_metrics(metrics: Mapping[str, Any], client: int, server_round: int) -> dict[str, Any]:
    """The metrics without numbers that are not finite, and without lists that have one. The log names these."""
    odd = [name for name, value in metrics.items() if not _is_finite(value)]
    if odd:
        LOGGER.warning(
            "Round %d: metrics of client %d are left out, because they are not finite: %s",
            *(server_round, client, one_line(", ".join(odd))),
        )
    return {name: value for name, value in metrics.items() if name not in odd}


def note_left_out(client: int, number: int, key: str, examples: object) -> None:
    """Log a client whose evaluation has no usable number of examples."""
    LOGGER.warning(
        "Round %d: the evaluation of client %d is left out: its metric %s must be above 0 and at most %d. "
        "It reports %s.",
        *(number, client, one_line(key), MOST_EXAMPLES, one_line(examples)),
    )


def _is_finite(value: Any) -> bool:
    return (
        all(map(_is_finite, value)) if isinstance(value, list) else not isinstance(value, float) or math.isfinite(value)
    )


def aggregated_records(
    replies: Mapping[int, RecordDict],
    weights: Mapping[int, float],
    key: str,
    function: RecordFunction | None,
    server_round: int,
) -> MetricRecord | None:
    """Metrics of a round from the clients' own records.

    Parameters
    ----------
    replies : partition id -> the client's own records
    weights : partition id -> its weight, above 0, which replaces the one that the client reports
    key : name of the weight among the metrics
    function : the user's own aggregation; None: the means, weighted
    """
    records, means = list[RecordDict](), list[tuple[float, dict[str, Any]]]()
    for client, reply in replies.items():
        content, metrics, weight = RecordDict(dict(reply)), dict[str, Any](), weights[client]
        for name, record in reply.metric_records.items():
            finite = finite_metrics(record, client, server_round)
            if key in finite and finite[key] != weight:
                finite[key] = weight
            content[name] = MetricRecord(finite)
            metrics |= finite
        metrics.pop(key, None)
        records.append(content)
        means.append((weight, metrics))
    if function is None:
        return MetricRecord(dict(mean_metrics(means, server_round)))
    try:
        return function(records, key)
    except Exception as error:  # noqa: BLE001 - a client's reply can make a user's function fail
        LOGGER.warning(
            "Round %d has no metrics of the clients: the function %s failed with %s",
            *(server_round, getattr(function, "__name__", function), one_line(repr(error))),
        )
        return None


def mean_metrics(metrics: list[tuple[float, dict[str, Any]]], server_round: int) -> dict[str, Single]:
    """Weighted mean of each metric over the clients that report it. Lists are averaged place by place.

    Of a metric that has several lengths, only the most frequent length counts, and the log says so.
    """
    reports: dict[str, list[tuple[float, Single]]] = {}
    for weight, reported in metrics:
        for name, value in reported.items():
            reports.setdefault(name, []).append((weight, value))
    means: dict[str, Single] = {}
    for name, values in sorted(reports.items()):
        lengths = Counter(_length(value) for _, value in values)
        length = lengths.most_common(1)[0][0]
        if len(lengths) > 1:
            LOGGER.warning(
                "Round %d: the metric %s has %d lengths. Only the most frequent one counts: %s",
                *(server_round, one_line(name), len(lengths), "a number" if length is None else f"a list of {length}"),
            )
        same = [(weight, value) for weight, value in values if _length(value) == length]
        total = sum(weight for weight, _ in same)
        parts = [weight / total * np.asarray(value, np.float64) for weight, value in same]
        means[name] = reduce(np.add, parts).tolist()
    return means


def _length(value: Single) -> int | None:
    """Length of a list; None for a number."""
    return len(value) if isinstance(value, list) else None


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
