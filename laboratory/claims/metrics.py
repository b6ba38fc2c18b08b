"""Metrics of claims. Each is a number of a run, and gives the advantage of a run over another with the same seed.

An accuracy at a budget is that of the last evaluation within it, or the mean of the last ten, which varies less.
"""

from dataclasses import dataclass, replace
from math import isfinite, log1p

import numpy as np
from numpy.typing import ArrayLike

from fedsel_app.records.summary import MB
from fedsel_app.wiring.configuration import AppConfig
from simulation.workbench.comparison.runs import TRAFFIC, RecordedRun
from simulation.workbench.comparison.statistics import Floats, worst_tenth
from simulation.workbench.report.data_description import client_label_counts


@dataclass(frozen=True)
class ClaimMeasure:
    """Measure of a claim: its key and title, and how it compares two runs.

    Attributes
    ----------
    ratio : True for a cost, whose advantage is the share saved; False for a difference
    higher_wins : True if a higher value is better
    whole : measure of the whole run; a run that never reached its target has spent at least this
    cost : entries of a round that are summed up to the budget; None without a budget
    budget : how much of the cost may be spent
    evaluations : last evaluations within the budget whose mean is the score
    """

    key: str
    title: str
    ratio: bool = False
    higher_wins: bool = False
    whole: str = ""
    cost: tuple[str, ...] | None = None
    unit: float = 1.0
    budget: float | None = None
    evaluations: int = 1

    @property
    def budgeted(self) -> bool:
        """True for a score at a budget."""
        return self.cost is not None

    @property
    def column(self) -> str:
        """Key of the metric in a measured run, with its budget if it has one."""
        return f"{self.key}={self.budget:g}" if self.budgeted else self.key

    @property
    def name(self) -> str:
        """Title, with the budget if there is one."""
        return self.title.format(self.budget) if self.budgeted else self.title

    def within(self, budget: float | None) -> "ClaimMeasure":
        """The same metric with a budget."""
        return replace(self, budget=budget) if self.budgeted else self

    @property
    def currency(self) -> str:
        """What the budget counts, such as rounds or traffic_mb: a key of a history."""
        return self.key.rpartition("_at_")[2]

    def at_budget(self, spent: ArrayLike, scores: ArrayLike) -> float:
        """Score at the budget from the `scores` (T,) of evaluations, each after `spent` (T,); NaN if none is within."""
        within = np.asarray(scores, np.float64)[np.asarray(spent, np.float64) <= (self.budget or 0.0)]
        return float(within[-self.evaluations :].mean()) if within.size else np.nan

    def advantage(self, stated: float) -> float:
        """Convert an advantage to the scale of the tests: a share saved becomes the log of the ratio of both costs."""
        return -log1p(-stated) if self.ratio else stated

    def limit(self, margin: float) -> float:
        """Convert a margin to the scale of the tests: a share of additional cost, or a difference."""
        return log1p(margin) if self.ratio else margin

    def stated(self, advantage: float) -> float:
        """The advantage as pages state it: a logarithm of a ratio becomes the share saved; a difference stays."""
        return float(-np.expm1(-advantage)) if self.ratio else advantage

    def of_pair(self, claimed: float, other: float) -> float:
        """Advantage of the claimed side over the other on one seed; NaN if a value is NaN or a cost is 0."""
        if not self.ratio:
            return claimed - other if self.higher_wins else other - claimed
        return float(np.log(other / claimed)) if claimed > 0 and other > 0 else np.nan


SPENT: dict[str, tuple[str, tuple[str, ...], float]] = {
    "rounds": ("rounds", (), 1.0),
    "client_updates": ("client updates", ("client_updates",), 1.0),
    "time_s": ("simulated seconds", ("round_s",), 1.0),
    "uplink_mb": ("MB sent up", ("uplink_bytes",), MB),
    "traffic_mb": ("MB of all traffic", TRAFFIC, MB),
}
"""What a budget counts -> its name, the entries of a round that are summed up, and its unit."""
MEASURES = {
    metric.key: metric
    for metric in (
        ClaimMeasure("rounds_to_target", "rounds to the target", ratio=True, whole="rounds"),
        ClaimMeasure("time_to_target_s", "simulated seconds to the target", ratio=True, whole="time_s"),
        ClaimMeasure(
            "uplink_value_to_target_mb", "MB to the target, values sent up", ratio=True, whole="uplink_value_mb"
        ),
        ClaimMeasure("uplink_to_target_mb", "MB to the target, sent up", ratio=True, whole="uplink_mb"),
        ClaimMeasure("traffic_to_target_mb", "MB to the target, all traffic", ratio=True, whole="traffic_mb"),
        ClaimMeasure("client_updates_to_target", "client updates to the target", ratio=True, whole="client_updates"),
        ClaimMeasure("client_updates", "client updates, whole run", ratio=True),
        ClaimMeasure("client_updates_to_best_validation", "client updates to the best validation round", ratio=True),
        ClaimMeasure("time_s", "simulated seconds, whole run", ratio=True),
        ClaimMeasure("stable_accuracy", "accuracy, mean of the last ten evaluations", higher_wins=True),
        ClaimMeasure(
            "stable_validation_accuracy", "validation accuracy, mean of the last ten evaluations", higher_wins=True
        ),
        ClaimMeasure("final_accuracy", "accuracy at the end", higher_wins=True),
        ClaimMeasure("peak_accuracy", "best accuracy", higher_wins=True),
        ClaimMeasure("final_client_accuracy", "mean of the clients' accuracies at the end", higher_wins=True),
        ClaimMeasure(
            "worst_tenth_accuracy", "mean accuracy of the worst tenth of the clients at the end", higher_wins=True
        ),
        ClaimMeasure("final_client_loss", "mean of the clients' losses at the end"),
        ClaimMeasure("stability_drop", "best accuracy minus final accuracy"),
        ClaimMeasure("selection_count_std", "standard deviation of the clients' selection counts"),
        ClaimMeasure("label_coverage", "share of the labels in a cohort, mean over the rounds", higher_wins=True),
        *(
            ClaimMeasure(
                f"{kind}accuracy_at_{currency}",
                f"accuracy after {{:g}} {title}{', mean of the last ten evaluations' if kind else ''}",
                higher_wins=True,
                cost=cost,
                unit=unit,
                evaluations=10 if kind else 1,
            )
            for kind in ("", "stable_")
            for currency, (title, cost, unit) in SPENT.items()
        ),
    )
}
"""Metric key -> metric."""


def measured_values(run: RecordedRun, metrics: list[ClaimMeasure]) -> dict[str, float | None]:
    """Values of `metrics` of a finished run by `column`, and the measures of the whole run that they need.

    A missing value is None, such as the cost to a target that the run did not reach.
    """
    known = run.measures
    values: dict[str, float] = {}
    for metric in metrics:
        if metric.cost is not None and metric.budget is not None:
            values[metric.column] = metric.at_budget(*history(run, metric.currency))
        elif metric.key == "label_coverage":
            values[metric.column] = float(np.nanmean(label_coverage(run)))
        elif metric.key == "worst_tenth_accuracy":
            accuracies_of = run.client_scores(run.score)
            values[metric.column] = worst_tenth(accuracies_of[max(accuracies_of)]) if accuracies_of else np.nan
        else:
            values[metric.column] = known.get(metric.key, np.nan)
        if metric.whole:
            values[metric.whole] = known[metric.whole]
    return {key: value if isfinite(value) else None for key, value in values.items()}


def history(run: RecordedRun, currency: str) -> tuple[Floats, Floats]:
    """What was spent until each evaluation, in a unit of `SPENT`, and its score: float64 (T,) both."""
    _, cost, unit = SPENT[currency]
    spent = run.cumulative(*cost) / unit if cost else run.schedule
    scores = np.array([row.get(run.score, np.nan) for row in run.rows], np.float64)
    evaluated = [run.score in row for row in run.rows]
    return spent[evaluated], scores[evaluated]


def label_coverage(run: RecordedRun) -> Floats:
    """Share of the labels in the training examples of each round's cohort, float64 (T,); NaN without a cohort.

    Raises ConfigError if the run's data or partition are not available, or the data have no labels.
    """
    config = AppConfig.from_values(run.config)
    counts = client_label_counts(replace(config.data, download=False), config.partition, config.run.clients, run.seed)
    held, exist = counts > 0, counts.any(axis=0)
    shares = [held[row["selected"]].any(axis=0).sum() / exist.sum() if row["selected"] else np.nan for row in run.rows]
    return np.array(shares, np.float64)
