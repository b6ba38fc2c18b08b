"""Measures for comparing runs: costs to target, and values of the metric of a report."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from fedsel_app.config import ConfigError
from fedsel_app.config.run import lower_wins, score_title
from fedsel_app.records.schema import ACCURACY
from fedsel_app.records.summary import STABLE_ROUNDS
from simulation.workbench.comparison.results import Group
from simulation.workbench.comparison.runs import OF_CLIENTS, RecordedRun
from simulation.workbench.comparison.statistics import Floats, worst_tenth


@dataclass(frozen=True)
class Measure:
    """Measure of a run: key in `RecordedRun.measures`, name, digits after the point, and whether higher is better."""

    key: str
    name: str
    digits: int
    higher_wins: bool = False


ROUNDS = Measure("rounds_to_target", "rounds to target", 1)
SECONDS = Measure("time_to_target_s", "seconds to target", 1)
UPLINK_MB = Measure("uplink_to_target_mb", "MB to target, uplink", 3)
TRAFFIC_MB = Measure("traffic_to_target_mb", "MB to target, all traffic", 3)
CLIENT_UPDATES = Measure("client_updates_to_target", "client updates to target", 0)
WHOLE_TRAFFIC_MB = Measure("traffic_mb", "MB, all traffic", 3)


def averaged_text(evaluations: int) -> str:
    """Text that says which of a run's `evaluations` its stable score averages."""
    if evaluations > STABLE_ROUNDS:
        return f"mean of the last {STABLE_ROUNDS} evaluations"
    return f"mean of all {evaluations} evaluations" if evaluations > 1 else "the one evaluation"


@dataclass(frozen=True)
class EvaluatedMetric:
    """Metric of the evaluated rounds: its key in a row or in the row's metrics, and its name in a report.

    `is_score`: it is the score, to which targets refer.
    """

    key: str
    name: str
    is_score: bool = True
    averaged: str = averaged_text(STABLE_ROUNDS + 1)
    """Text on the evaluations over which `stable` is the mean."""

    @property
    def higher_wins(self) -> bool:
        """True if higher is better."""
        return not lower_wins(self.key)

    @property
    def axis(self) -> str:
        """Name on a figure's axis."""
        return f"test {self.name}" if self.is_score else self.name

    @property
    def final(self) -> Measure:
        """Value of the last evaluation."""
        return Measure(f"final_{self.key}", f"final {self.name}", 4, self.higher_wins)

    @property
    def stable(self) -> Measure:
        """Mean of the last evaluations."""
        return Measure(f"stable_{self.key}", f"{self.name}, {self.averaged}", 4, self.higher_wins)

    @property
    def best(self) -> Measure:
        """Best value of all evaluations."""
        return Measure(f"best_{self.key}", f"best {self.name}", 4, self.higher_wins)

    @property
    def levels(self) -> tuple[Measure, Measure, Measure]:
        """Measures of the metric: the last value, the mean of the last values, and the best."""
        return self.final, self.stable, self.best

    def worst_tenth(self, values: Floats) -> float:
        """Mean over the worst tenth of `values` (k,)."""
        return worst_tenth(values) if self.higher_wins else -worst_tenth(-values)

    def values(self, run: RecordedRun) -> pd.Series:
        """Values of the rounds in which it was measured, by the position of the round."""
        return run.rounds.reindex(columns=[self.key])[self.key].dropna().astype(np.float64)

    def of(self, run: RecordedRun) -> dict[str, float]:
        """Measure key -> value, for its `levels`; NaN if the run never measured it."""
        values = self.values(run).to_numpy()
        if not values.size:
            return {measure.key: np.nan for measure in self.levels}
        best = values.max() if self.higher_wins else values.min()
        numbers = values[-1], values[-STABLE_ROUNDS:].mean(), best
        return {measure.key: float(number) for measure, number in zip(self.levels, numbers, strict=True)}


def metric_of(runs: Collection[RecordedRun], key: str = "") -> EvaluatedMetric:
    """Metric `key` of `runs`; without one, their score.

    Raises ConfigError if no run measured it; the message lists the measured metrics.
    """
    score = next((run.score for run in runs), ACCURACY)
    key = key.replace("-", "_") or score
    measured = dict.fromkeys(name for run in runs for name in run.metrics)
    if key not in (score, *measured):
        raise ConfigError(f"No run measured the --metric {key!r}. These runs have {', '.join(measured) or 'none'}.")
    name = score_title(key.removeprefix(OF_CLIENTS))
    title = f"{name} on the clients' test parts" if key.startswith(OF_CLIENTS) else name
    metric = EvaluatedMetric(key, "test loss" if key == "loss" else title, key == score)
    counts = sorted({len(metric.values(run)) for run in runs} - {0})
    texts = dict.fromkeys(averaged_text(count) for count in counts)
    return replace(metric, averaged=" or ".join(texts)) if texts else metric


def client_metric(runs: Collection[RecordedRun], metric: EvaluatedMetric) -> EvaluatedMetric:
    """The metric of each client on its own test part that belongs to `metric`; the score, if it was not measured."""
    key = metric.key.removeprefix(OF_CLIENTS)
    return metric_of(runs, key if any(key in run.metrics and run.client_scores(key) for run in runs) else "")


class Numbers:
    """Measures of a group's runs, including those of `metric`, aligned by seed.

    Attributes
    ----------
    frame : a row for each variant and seed, a column for each measure; NaN: the target was not reached
    """

    def __init__(self, group: Group, metric: EvaluatedMetric) -> None:
        self.metric = metric
        rows = {(name, run.seed): run.measures | metric.of(run) for name, runs in group.runs.items() for run in runs}
        self.frame = pd.DataFrame(list(rows.values()), index=pd.MultiIndex.from_tuples(rows, names=["variant", "seed"]))

    def values(self, variant: str, key: str) -> Floats:
        """Values of a measure over all runs of a variant, float64 (n,), ascending by seed; NaN: target not reached."""
        values: Floats = self.frame.loc[variant, key].to_numpy(np.float64)
        return values

    def reached(self, variant: str, key: str) -> Floats:
        """Values of a measure that are finite."""
        values = self.values(variant, key)
        return values[np.isfinite(values)]

    def mean(self, variant: str, key: str, seeds: Sequence[int] = ()) -> float:
        """Mean of a measure over `seeds`, or over all runs with a value; NaN if there are none."""
        values = self.frame.loc[variant, key].loc[list(seeds)] if seeds else self.reached(variant, key)
        return float(np.mean(values)) if len(values) else np.nan

    def common_seeds(self, variants: Sequence[str], key: str) -> list[int]:
        """Seeds on which all `variants` have a run and a value."""
        finite = self.frame[key][np.isfinite(self.frame[key])].unstack("variant").reindex(columns=variants)
        return sorted(finite.dropna().index)

    def pairs(self, variant: str, other: str, key: str) -> tuple[Floats, Floats]:
        """Values of a measure of two variants on the seeds that both have."""
        both = pd.merge(self.frame.loc[variant, key], self.frame.loc[other, key], on="seed")
        return both.iloc[:, 0].to_numpy(np.float64), both.iloc[:, 1].to_numpy(np.float64)
