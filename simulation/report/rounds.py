"""Rounds of a comparison as one tidy table: a line a round, a column a swept key and a number of the round."""

from typing import get_type_hints

from fedsel_app.records.schema import RoundRecord
from simulation.comparison.results import Comparison
from simulation.report.tables import FREE, Column, Table

NUMBERS = tuple(
    name for name, kind in get_type_hints(RoundRecord).items() if kind in (int, float, int | None, float | None)
)
"""Fields of a round that are one number."""


def round_table(comparison: Comparison) -> Table:
    """Table of every round of every run, finished or not; a number that was not measured is empty."""
    runs = list(comparison.runs.values())
    keys = list(dict.fromkeys(key for run in runs for key in run.cell))
    metrics = list(dict.fromkeys(name for run in runs for row in run.rows for name in row.get("metrics", {})))
    columns = [Column(name) for name in ("run", "strategy", "seed", *keys)]
    columns += [Column(name, FREE) for name in (*NUMBERS, "selected_count", "failure_count", *metrics)]
    rows = [
        [run.name, run.strategy, run.seed]
        + [run.cell.get(key) for key in keys]
        + [row.get(name) for name in NUMBERS]
        + [len(row["selected"]), len(row["failures"])]
        + [row.get("metrics", {}).get(name) for name in metrics]
        for run in runs
        for row in run.rows
    ]
    return Table("rounds", "The rounds", "Every round of every run.", columns, rows)
