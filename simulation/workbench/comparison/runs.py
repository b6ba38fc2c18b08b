"""Runs, read from their folders: settings, records, and tidy data frames of the records."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedsel_app.config import ConfigError, RunConfig, Value
from fedsel_app.records.reading import check_client, check_round, legible, read_rows
from fedsel_app.records.run_folder import read_config
from fedsel_app.records.schema import ACCURACY, RoundRecord, Row, as_row, schedule_round, score_name
from fedsel_app.records.summary import MB, summarize
from simulation.engines.run_folders import read_summary
from simulation.workbench.comparison.statistics import Floats

SHOWN = ("strategy", "seed", "clients", "cohort", "rounds", "data", "model", "partition", "links", "target")
"""Settings of a run that a report shows or counts with."""
OF_CLIENTS = "client_"
"""Prefix of the scores that are means over the clients' own test parts."""
TRAFFIC = ("uplink_bytes", "downlink_bytes", "probe_bytes", "calibration_bytes")


@dataclass(frozen=True, eq=False, repr=False)
class RecordedRun:
    """Records of one run.

    Attributes
    ----------
    cell : the values of the swept keys
    config : setting key -> value
    rows : rows of rounds.jsonl, by round, without nulls
    client_rows : rows of clients.jsonl, without nulls
    finished : True if summary.json exists
    """

    name: str
    strategy: str
    seed: int
    cell: Mapping[str, Value]
    folder: Path
    config: Mapping[str, Value]
    rows: tuple[Row, ...]
    client_rows: tuple[Row, ...]
    finished: bool

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.folder)!r})"

    @cached_property
    def score(self) -> str:
        """Name of the score, by which models are compared."""
        return next((score_name(row) for row in self.rows if "score" in row), ACCURACY)

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """Rounds, one row each, with the fields of rounds.jsonl as columns: see docs/records.md."""
        return _frame(self.flat_rows, [field.name.replace(ACCURACY, self.score) for field in fields(RoundRecord)])

    @cached_property
    def flat_rows(self) -> list[Row]:
        """Rows of the rounds, with the other scores beside the fields; those of clients begin with `OF_CLIENTS`."""
        return [_flat(_flat(row, "metrics", ""), "client_metrics", OF_CLIENTS) for row in self.rows]

    @cached_property
    def metrics(self) -> list[str]:
        """Names of the scores and losses that the rounds have."""
        first = [self.score, "loss", OF_CLIENTS + self.score, f"{OF_CLIENTS}loss"]
        measured = {name for row in self.flat_rows for name in row}
        others = [
            prefix + name
            for field, prefix in (("metrics", ""), ("client_metrics", OF_CLIENTS))
            for row in self.rows
            for name in row.get(field, {})
        ]
        return list(dict.fromkeys([*(name for name in first if name in measured), *others]))

    @cached_property
    def clients(self) -> pd.DataFrame:
        """Clients, one row each: examples, rounds as selected, aggregated and failed, last test on its own data."""
        enrolled = {row["client"]: row for row in self.client_rows if "examples" in row}
        tested = {row["client"]: row[self.score] for row in self.client_rows if self.score in row}
        aggregated = Counter(client for row in self.rows for client in row.get("aggregated", []))
        failed = Counter(failure["client"] for row in self.rows for failure in row["failures"])
        return _frame(
            {
                "client": client,
                "examples": enrolled.get(client, {}).get("examples"),
                "first_round": enrolled.get(client, {}).get("round"),
                "selected": selected,
                "aggregated": aggregated[client],
                "failed": failed[client],
                self.score: tested.get(client),
            }
            for client, selected in enumerate(self.selection_counts.tolist())
        )

    @cached_property
    def summary(self) -> pd.DataFrame:
        """Summary, one row: scores, costs to target and in total; for an unfinished run up to now."""
        so_far = as_row(summarize(self.rows, self.config, self.selection_counts, 0))
        del so_far["model_parameters"]
        row = _flat(read_summary(self.folder) or so_far, "final_metrics", "final_")
        row = _flat(row, "final_client_metrics", f"final_{OF_CLIENTS}")
        del row["versions"]
        return _frame([row | {"finished": self.finished}])

    @cached_property
    def measures(self) -> dict[str, float]:
        """The numbers of summary.json, and MB in total and to target; NaN if the target was not reached."""
        summary = asdict(summarize(self.rows, self.config, self.selection_counts, 0))
        numbers = {
            key: np.nan if value is None else float(value)
            for key, value in summary.items()
            if value is None or isinstance(value, int | float)
        }
        traffic_mb, reached = self.cumulative(*TRAFFIC) / MB, summary["rounds_to_target"]
        to_target_mb = np.nan if reached is None else float(traffic_mb[self.schedule <= reached][-1])
        return numbers | {"traffic_mb": float(traffic_mb[-1]), "traffic_to_target_mb": to_target_mb}

    @property
    def schedule(self) -> Floats:
        """Number of each round as the setting `rounds` counts, float64 (T,)."""
        return np.array([schedule_round(row) for row in self.rows], np.float64)

    def cumulative(self, *keys: str) -> Floats:
        """Cumulative sum of the entries `keys` over the rounds, after each round, float64 (T,)."""
        return np.cumsum([sum(row.get(key, 0) for key in keys) for row in self.rows], dtype=np.float64)

    @property
    def selection_matrix(self) -> NDArray[np.bool_]:
        """Selections of clients by rounds, bool (K, T)."""
        selected = np.zeros((int(self.config["clients"]), len(self.rows)), np.bool_)
        for position, row in enumerate(self.rows):
            selected[row["selected"], position] = True
        return selected

    @property
    def selection_counts(self) -> NDArray[np.int64]:
        """Selection counts: rounds in which each client was selected, int64 (K,)."""
        counts: NDArray[np.int64] = self.selection_matrix.sum(axis=1, dtype=np.int64)
        return counts

    def client_scores(self, name: str) -> dict[int, Floats]:
        """Values of a score on the clients' own test parts: evaluated round -> float64 (k,); empty without it."""
        rows = [_flat(row, "metrics", "") for row in self.client_rows]
        tests = pd.DataFrame([row for row in rows if name in row], columns=["round", "client", name])
        last = tests.drop_duplicates(["round", "client"], keep="last").sort_values(["round", "client"])
        return {int(number): values.to_numpy(np.float64) for number, values in last.groupby("round")[name]}


AnyRun = TypeVar("AnyRun", bound=RecordedRun)


def read_recorded_run(folder: Path, name: str, cell: Mapping[str, Value], kind: type[AnyRun]) -> AnyRun | None:
    """The run in `folder`, as an object of `kind`; None if it has not been started.

    Raises ConfigError if a file is damaged, or names a client that the run does not have.
    """
    if not (folder / "config.json").is_file() or not (folder / "rounds.jsonl").is_file():
        return None
    config = legible(read_config(folder, SHOWN), lines=False)
    run = RunConfig.from_values(config)
    rows = {row["round"]: _without_nulls(row) for row in read_rows(folder / "rounds.jsonl", check_round)}
    for client in (client for row in rows.values() for client in row["selected"] + row.get("aggregated", [])):
        if not 0 <= client < run.clients:
            raise ConfigError(f"The records {folder / 'rounds.jsonl'} cannot be read: the run has no client {client}.")
    return kind(
        name=name,
        strategy=run.strategy,
        seed=run.seed,
        cell=cell,
        folder=folder,
        config=config,
        rows=tuple(rows[number] for number in sorted(rows)),
        client_rows=tuple(_without_nulls(row) for row in read_rows(folder / "clients.jsonl", check_client)),
        finished=(folder / "summary.json").is_file(),
    )


def joined(frames: Iterable[tuple[Row, pd.DataFrame]]) -> pd.DataFrame:
    """Concatenated data frames, each with its own values in additional first columns."""
    parts = []
    for lead, frame in frames:
        new = {name: value for name, value in lead.items() if name not in frame}
        parts.append(frame.assign(**new)[[*lead, *frame.columns.difference(list(lead), sort=False)]])
    return pd.concat(parts, ignore_index=True)


def _without_nulls(row: Row) -> Row:
    """The row without nulls. A loss that was not finite is NaN, because the row has an evaluation."""
    fields_of_row = {key: value for key, value in row.items() if value is not None}
    return {"loss": math.nan} | fields_of_row if "loss" in row else fields_of_row


def _frame(rows: Iterable[Row], order: Collection[str] = ()) -> pd.DataFrame:
    """Data frame of `rows`; the columns of `order` that occur come first."""
    frame = pd.DataFrame(list(rows))
    first = [name for name in order if name in frame]
    return frame[[*first, *frame.columns.difference(first, sort=False)]]


def _flat(row: Row, field: str, prefix: str) -> Row:
    """The row, and the entries of its dictionary `field` named with `prefix`, unless the row has such an entry."""
    others = {name: value for name, value in row.items() if name != field}
    return others | {f"{prefix}{name}": value for name, value in (row.get(field) or {}).items()} | others
