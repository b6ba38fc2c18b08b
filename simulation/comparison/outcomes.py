"""Outcomes of a run: costs by round, measures at the end and to target, selections, and accuracies of its clients."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from clients.examples import client_examples
from fedsel_app.config import ConfigError, DataConfig, PartitionConfig
from fedsel_app.data.dataset import load
from fedsel_app.records.schema import schedule_round
from fedsel_app.records.summary import MB, summarize
from simulation.comparison.measures import TRAFFIC_MB, WHOLE_TRAFFIC_MB, EvaluatedMetric
from simulation.comparison.results import Group, Run
from simulation.comparison.statistics import Floats, coverage
from simulation.experiments.configuration import AppConfig

TRAFFIC = ("uplink_bytes", "downlink_bytes", "probe_bytes", "calibration_bytes")
UNKNOWN_LABELS = "only the clients know what they hold"


def cumulative(run: Run, *keys: str) -> Floats:
    """Cumulative sum of the entries `keys` over the rounds, after each round, float64 (T,)."""
    return np.cumsum([sum(row.get(key, 0) for key in keys) for row in run.rows], dtype=np.float64)


def measures(run: Run) -> dict[str, float]:
    """Measures of a run: the numbers of its summary.json, and MB in all and to target; NaN if it was not reached."""
    summary = asdict(summarize(run.rows, run.config, selection_counts(run), 0))
    numbers = {
        key: np.nan if value is None else float(value)
        for key, value in summary.items()
        if value is None or isinstance(value, int | float)
    }
    last, reached = schedule_round(run.rows[-1]), summary["rounds_to_target"]
    traffic_mb = {number: _traffic_mb(run, number) for number in (last, reached) if number is not None}
    return numbers | {WHOLE_TRAFFIC_MB.key: traffic_mb[last], TRAFFIC_MB.key: traffic_mb.get(reached, np.nan)}


def _traffic_mb(run: Run, until: int) -> float:
    """Traffic up to a round in MB, both ways, probes and calibration included."""
    return float(sum(row.get(key, 0) for row in run.rows for key in TRAFFIC if schedule_round(row) <= until) / MB)


class Numbers:
    """Measures of a group's runs, those of `metric` included, aligned by seed."""

    def __init__(self, group: Group, metric: EvaluatedMetric) -> None:
        self.metric = metric
        self._of = {
            name: {run.seed: measures(run) | metric.of(run) for run in runs} for name, runs in group.runs.items()
        }

    def values(self, variant: str, key: str) -> Floats:
        """Values of a measure over all runs of a variant, float64 (n,), ascending by seed; NaN: target not reached."""
        return np.array([numbers[key] for numbers in self._of[variant].values()])

    def reached(self, variant: str, key: str) -> Floats:
        """Values of a measure without NaN."""
        values = self.values(variant, key)
        return values[np.isfinite(values)]

    def common_seeds(self, variants: Sequence[str], key: str) -> list[int]:
        """Seeds on which all `variants` have a run and a value."""
        seeds = [{seed for seed, numbers in self._of[name].items() if np.isfinite(numbers[key])} for name in variants]
        return sorted(set.intersection(*seeds))

    def mean(self, variant: str, key: str, seeds: Sequence[int]) -> float:
        """Mean of a measure over `seeds`, or over all runs that have a value if there are no seeds."""
        numbers = self._of[variant]
        return float(np.mean([numbers[seed][key] for seed in seeds] or self.reached(variant, key)))

    def pairs(self, variant: str, other: str, key: str) -> tuple[Floats, Floats]:
        """Values of a measure of two variants on the seeds that both have."""
        first, second = self._of[variant], self._of[other]
        both = [seed for seed in first if seed in second]
        return np.array([first[seed][key] for seed in both]), np.array([second[seed][key] for seed in both])


def selection_matrix(run: Run) -> NDArray[np.int8]:
    """Selections of clients by rounds, int8 (K, T): 0 not selected, 1 aggregated, 2 selected but not aggregated."""
    chosen = np.zeros((int(run.config["clients"]), len(run.rows)), np.int8)
    for position, row in enumerate(run.rows):
        chosen[row["selected"], position] = 2
        chosen[row.get("aggregated", []), position] = 1
    return chosen


def selection_counts(run: Run) -> NDArray[np.int64]:
    """Selection counts: rounds in which each client was selected, int64 (K,)."""
    counts: NDArray[np.int64] = (selection_matrix(run) > 0).sum(axis=1, dtype=np.int64)
    return counts


def label_coverage(run: Run) -> Floats:
    """Share of the labels that each round's cohort holds training examples of, float64 (T,); NaN without a cohort.

    Raises
    ------
    ConfigError
        Where the run's data or partition cannot be had again, or it has no labels.
    """
    if run.config["partition"] == "own":
        raise ConfigError(UNKNOWN_LABELS)
    config = AppConfig.from_values(run.config)
    counts = label_counts(replace(config.data, download=False), config.partition, config.run.clients, run.seed)
    return np.array([coverage(row["selected"], counts) if row["selected"] else np.nan for row in run.rows])


@lru_cache(maxsize=16)
def label_counts(data: DataConfig, partition: PartitionConfig, clients: int, seed: int) -> NDArray[np.int64]:
    """Training examples of each label that each client holds, int64 (K, L).

    Raises
    ------
    ConfigError
        Where the data cannot be had, or the targets are numbers.
    """
    if partition.partition == "own":
        raise ConfigError(UNKNOWN_LABELS)
    dataset = load(data, seed)
    if dataset.task == "regression":
        raise ConfigError("a regression has no labels")
    y = np.eye(dataset.classes, dtype=np.bool_)[dataset.y_train] if dataset.y_train.ndim == 1 else dataset.y_train > 0
    mine = (client_examples(data, partition, clients, seed, client)[0] for client in range(clients))
    return np.stack([y[examples].sum(axis=0, dtype=np.int64) for examples in mine])


def client_accuracies(run: Run) -> dict[int, Floats]:
    """Accuracies on the clients' own test parts: evaluated round -> float64 (k,); empty without `client-eval`."""
    accuracies = {(row["round"], row["client"]): row["accuracy"] for row in run.client_rows if "accuracy" in row}
    rounds: dict[int, list[float]] = {}
    for number, client in sorted(accuracies):
        rounds.setdefault(number, []).append(accuracies[number, client])
    return {number: np.array(values) for number, values in rounds.items()}


def component_means(run: Run) -> dict[str, tuple[Floats, Floats]]:
    """Means of the score components over the selected clients: component -> rounds (t,) and means (t,)."""
    series: dict[str, list[tuple[int, float]]] = {}
    for row in run.rows:
        for name, values in row.get("components", {}).items():
            known = [value for value in values if value is not None]
            if known:
                series.setdefault(name, []).append((row["round"], float(np.mean(known))))
    return {name: (np.array(points)[:, 0], np.array(points)[:, 1]) for name, points in series.items()}
