"""Measured runs: one JSON line per finished run, with the numbers that its claims need.

The settings that differ from the defaults and change a number identify a run. So claims share runs. A row with a
history (accuracies, and what was spent until each) has the scores at every budget; older rows those that were asked.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any

from fedsel_app.config import ConfigError, Value, changes_numbers
from fedsel_app.config.data import OF_FILES
from fedsel_app.records.files import write_text
from fedsel_app.records.reading import read_rows
from fedsel_app.wiring.configuration import AppConfig, resolve
from laboratory.claims.metrics import ClaimMeasure
from laboratory.claims.study import Side, Study, configuration_of
from laboratory.data_sets import short_name

SHIPPED = Path(__file__).with_name("measured.jsonl")
"""Measured runs that come with fedsel."""


@dataclass(frozen=True)
class Measured:
    """Measured runs: rows of a file, by the identity of the run."""

    rows: Mapping[str, Mapping[str, Any]]

    def values(self, study: Study, side: Side, seed: int) -> Mapping[str, float | None] | None:
        """Values of a run by metric column; None if it was not measured, or lacks one of the study's metrics."""
        row = self.rows.get(run_of(study, side, seed))
        if row is None or not has_all(row, study.metrics):
            return None
        budgeted = [metric for metric in study.metrics if metric.column not in row["values"]]
        return {**row["values"], **{metric.column: _from_history(row, metric) for metric in budgeted}}

    def seconds(self, study: Study, side: Side) -> list[float]:
        """Wall time in seconds of the measured runs of a side."""
        rows = (self.rows.get(run_of(study, side, seed)) for seed in study.seeds)
        return [float(row["wall_s"]) for row in rows if row is not None]


def has_all(row: Mapping[str, Any], metrics: Iterable[ClaimMeasure]) -> bool:
    """True if a row has a value, or null, for each of the metrics."""
    return all(
        key in row["values"] or (metric.budgeted and metric.currency in row.get("history", {}))
        for metric in metrics
        for key in (metric.column, metric.whole)
        if key
    )


def _from_history(row: Mapping[str, Any], metric: ClaimMeasure) -> float | None:
    value = metric.at_budget(row["history"][metric.currency], row["history"]["accuracy"])
    return value if isfinite(value) else None


def run_of(study: Study, side: Side, seed: int) -> str:
    """Identity of a run of a study."""
    return _run_of(study.values(side), seed)


@cache
def _run_of(values: tuple[tuple[str, Value], ...], seed: int) -> str:
    return identity(configuration_of(values, seed))


def identity(config: AppConfig) -> str:
    """Identity of a run: twelve hexadecimal digits of SHA-256 over the settings that change its numbers."""
    data = short_name(config.data.data)
    by_path = data in OF_FILES or ":" in data
    default = _defaults(config.run.strategy)
    values = {
        key: value
        for key, value in (config.values() | {"data": data}).items()
        if default.get(key) != value and changes_numbers(key) and (by_path or key != "data-path")
    }
    content = json.dumps(values | {"strategy": config.run.strategy}, sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:12]


@cache
def _defaults(strategy: str) -> dict[str, Value]:
    return resolve({"strategy": strategy}).values()


def read_measured(path: Path) -> Measured:
    """Measured runs of a file; empty if there is no file.

    Raises ConfigError if the file is damaged.
    """
    return Measured({row["run"]: row for row in read_rows(path, _check)})


def write_measured(path: Path, rows: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the file atomically: one line per run, in the order of the methods, seeds and identities."""
    ordered = sorted(rows.values(), key=lambda row: (row["strategy"], row["seed"], row["run"]))
    write_text(path, "".join(json.dumps(row) + "\n" for row in ordered))


def _check(row: Mapping[str, Any]) -> None:
    kinds = {"run": str, "strategy": str, "seed": int, "wall_s": float, "values": dict}
    for key, kind in kinds.items():
        if not isinstance(row.get(key), kind):
            raise ConfigError(f"'{key}' must be of the type {kind.__name__}")
