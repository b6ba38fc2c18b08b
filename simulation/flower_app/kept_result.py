"""Metrics of a run's `Result` in its run folder, so that a run that goes on has those of its earlier rounds."""

import json
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from flwr.app import MetricRecord
from flwr.serverapp.strategy import Result

from fedsel_app.records.files import append_rows, finite, write_text
from fedsel_app.records.reading import check_fields, read_rows
from fedsel_app.records.schema import Row, with_version

FILE = "result.jsonl"
Metrics = dict[str, float | list[float]]


@dataclass(frozen=True)
class KeptRound:
    """Metrics of one round: a line of result.jsonl. Round 0 is the initial model."""

    round: int
    train_metrics_clientapp: Metrics | None = None
    evaluate_metrics_clientapp: Metrics | None = None
    evaluate_metrics_serverapp: Metrics | None = None


KINDS = [field.name for field in fields(KeptRound) if field.name != "round"]


def keep(result: Result, number: int, folder: Path) -> None:
    """Append the metrics of round `number` to the file. Raises RecordError if that cannot be written."""
    with (folder / FILE).open("ab", buffering=0) as file:
        append_rows(file, [with_version(_row(result, number))])


def recall(folder: Path, completed: int) -> Result:
    """Result with the metrics of the rounds up to `completed`; those of later rounds leave the file.

    Raises ConfigError if the file is damaged.
    """
    result = Result()
    rows = [row for row in read_rows(folder / FILE, _check) if row["round"] <= completed]
    for row in rows:
        for kind in KINDS:
            if row.get(kind) is not None:
                metrics = {name: _number(value) for name, value in row[kind].items()}
                getattr(result, kind)[row["round"]] = MetricRecord(metrics)
    write_text(folder / FILE, "".join(json.dumps(finite(with_version(row))) + "\n" for row in rows))
    return result


def _row(result: Result, number: int) -> Row:
    found = {kind: getattr(result, kind).get(number) for kind in KINDS}
    return {"round": number, **{kind: dict(metrics) for kind, metrics in found.items() if metrics is not None}}


def _check(row: Row) -> None:
    check_fields(row, KeptRound, ("round",))


def _number(value: Any) -> Any:
    """A value of JSON, in which null is NaN."""
    if isinstance(value, list):
        return [_number(entry) for entry in value]
    return math.nan if value is None else value
