"""Data frames of a run's records: its rounds, its clients, its selections and its summary."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from fedsel_app.config import ConfigError
from fedsel_app.records.run_folder import read_summary
from fedsel_app.records.schema import RoundRecord, Row, as_row
from fedsel_app.records.summary import summarize
from simulation.comparison.outcomes import selection_counts
from simulation.comparison.results import Run

if TYPE_CHECKING:
    import pandas as pd

OF_SELECTED = {
    "kept_fractions": "kept_fraction",
    "scores": "score",
    "probe_losses": "probe_loss",
    "uplink_bits_per_s": "uplink_bits_per_s",
}
"""List of a round, in the order of its selected clients -> column."""
OF_AGGREGATED = {"weights": "weight", "taken": "taken", "fit_losses": "fit_loss"}
"""List of a round, in the order of its aggregated clients -> column."""


def rounds_frame(run: Run) -> "pd.DataFrame":
    """Rounds: a row for each line of rounds.jsonl, its fields as columns, the task's other metrics as more of them."""
    return frame([_flat(row, "metrics", "") for row in run.rows], [field.name for field in fields(RoundRecord)])


def clients_frame(run: Run) -> "pd.DataFrame":
    """Clients: a row each; rounds in which it was selected, aggregated and failed, its last test ('client-eval')."""
    enrolled = {row["client"]: row for row in run.client_rows if "examples" in row}
    tested = {row["client"]: row["accuracy"] for row in run.client_rows if "accuracy" in row}
    selected = Counter(client for row in run.rows for client in row["selected"])
    aggregated = Counter(client for row in run.rows for client in row.get("aggregated", []))
    failed = Counter(failure["client"] for row in run.rows for failure in row["failures"])
    rows = [
        {
            "client": client,
            "examples": enrolled.get(client, {}).get("examples"),
            "first_round": enrolled.get(client, {}).get("round"),
            "selected": selected[client],
            "aggregated": aggregated[client],
            "failed": failed[client],
            "accuracy": tested.get(client),
        }
        for client in range(int(run.config["clients"]))
    ]
    return frame(rows)


def selections_frame(run: Run) -> "pd.DataFrame":
    """Selections: a row for each round and client selected in it; a number that is not on record is missing."""
    return frame([entry for row in run.rows for entry in _selections(row)])


def summary_frame(run: Run) -> "pd.DataFrame":
    """Summary: one row, with the numbers of summary.json; of a run that is unfinished those of its rounds so far."""
    so_far = as_row(summarize(run.rows, run.config, selection_counts(run), 0))
    del so_far["model_parameters"]
    row = _flat(read_summary(run.folder) or so_far, "final_metrics", "final_")
    del row["versions"]
    return frame([row | {"finished": run.finished}])


def frame(rows: Sequence[Row], order: Collection[str] = ()) -> "pd.DataFrame":
    """Data frame of `rows`, with the columns of `order` first, as far as a row has them.

    Raises
    ------
    ConfigError
        If pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise ConfigError(
            "Data frames need the package pandas; install it with `pip install 'fedsel[pandas]'`."
        ) from error
    names = dict.fromkeys(name for row in rows for name in row)
    first = [name for name in order if name in names]
    return pd.DataFrame(rows, columns=[*first, *(name for name in names if name not in first)])


def joined(frames: Iterable[tuple[Row, "pd.DataFrame"]]) -> "pd.DataFrame":
    """Data frames below one another, each led by columns of its own values."""
    import pandas as pd

    parts = []
    for lead, part in frames:
        for position, (name, value) in enumerate(lead.items()):
            if name not in part:
                part.insert(position, name, value)
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def _selections(row: Row) -> list[Row]:
    """Selected clients of one round."""
    aggregated = row.get("aggregated", [])
    failures = {failure["client"]: failure["reason"] for failure in row["failures"]}
    entries: dict[int, Row] = {
        client: {
            "round": row["round"],
            "client": client,
            "aggregated": client in aggregated,
            "failure": failures.get(client),
        }
        for client in row["selected"]
    }
    for clients, columns in ((row["selected"], OF_SELECTED), (aggregated, OF_AGGREGATED)):
        for field, column in columns.items():
            for client, value in zip(clients, row.get(field, []), strict=False):
                entries[client][column] = math.nan if value is None else value
    for name, values in row.get("components", {}).items():
        for client, value in zip(row["selected"], values, strict=False):
            entries[client][name] = math.nan if value is None else value
    return list(entries.values())


def _flat(row: Row, field: str, prefix: str) -> dict[str, Any]:
    """The row with the numbers of its dictionary `field` beside the others, their names after `prefix`."""
    numbers = row.get(field) or {}
    return {name: value for name, value in row.items() if name != field} | {
        f"{prefix}{name}": value for name, value in numbers.items()
    }
