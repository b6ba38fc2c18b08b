"""Rankings of methods at equal bytes, seconds and rounds on the same seeds (one TOML file each), and advice from them.

The advice states which method to use for which cost, and where random selection is as good.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from fedsel_app.config import ConfigError, Value
from fedsel_app.presets.preset import flatten
from simulation.comparison.statistics import LEVEL, Estimate, Floats, holm, paired, t_interval
from simulation.laboratory.claims.measured import Measured
from simulation.laboratory.claims.metrics import METRICS, Metric
from simulation.laboratory.claims.study import Side, Study
from simulation.report.tables import capital

RANDOM = "random"
"""Method in every ranking, to compare the others with."""
EXPLAINED = {
    "full": "full (all clients train)",
    RANDOM: "random (uniform draws)",
    "random-weighted": "random-weighted (draws by number of examples)",
}
"""Names of methods that the advice explains."""
CURRENCIES = {
    "accuracy_at_traffic_mb": "Where every byte counts",
    "accuracy_at_time_s": "Where simulated seconds count (all uplinks send at once, downloads take no time)",
    "accuracy_at_rounds": "Where only rounds count",
}
"""Metric of a ranking -> heading of its currency, the cost of which every method may spend the same amount."""


@dataclass(frozen=True, kw_only=True)
class Ranking(Study):
    """Ranking, as read from its file.

    Attributes
    ----------
    title : the workload
    strategies : methods that are ranked
    budgets : metric "accuracy_at_..." -> how much of its cost each method may spend
    seed_count : number of seeds, from 1 on
    note : note for the reader of the table
    variants : name -> settings of a further side, including its `strategy`
    """

    kind: ClassVar = "ranking"

    title: str
    strategies: Sequence[str]
    budgets: Mapping[str, float]
    seed_count: int
    note: str = ""
    variants: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)

    @property
    def sides(self) -> tuple[Side, ...]:
        """One side per method, without settings of its own, and then the variants."""
        further = (
            Side(str(settings["strategy"]), {key: value for key, value in settings.items() if key != "strategy"}, name)
            for name, settings in self.variants.items()
        )
        return (*(Side(strategy) for strategy in self.strategies), *further)

    @property
    def seeds(self) -> range:
        """Seeds of the runs."""
        return range(1, self.seed_count + 1)

    @property
    def metrics(self) -> list[Metric]:
        """Metrics of the budgets: accuracy at equal bytes, seconds or rounds."""
        return [METRICS[key].within(budget) for key, budget in self.budgets.items()]

    def __post_init__(self) -> None:
        if RANDOM not in self.strategies:
            raise ConfigError(f"'strategies' lacks {RANDOM}, beside which the others are read.")
        for key in self.budgets:
            if key not in METRICS or not METRICS[key].budgeted:
                raise ConfigError(f"'{key}' is no metric with a budget.")

    @classmethod
    def parsed(cls, table: dict[str, Any]) -> dict[str, Any]:
        """Fields of a ranking, with its settings and those of its variants by key."""
        variants = {name: flatten(own) for name, own in table.get("variants", {}).items()}
        return {**table, "settings": flatten(table.get("settings", {})), "variants": variants}


@dataclass(frozen=True)
class Place:
    """Place of a method in a currency.

    Attributes
    ----------
    strategy : the method, or the name of a variant
    behind : True if it is significantly behind the first (paired t tests, Holm over the methods)
    beats_random : True if it is significantly ahead of random selection (the same tests)
    """

    strategy: str
    accuracy: Estimate
    behind: bool
    beats_random: bool


def places(ranking: Ranking, metric: Metric, measured: Measured) -> list[Place]:
    """Methods from the best mean to the worst, over the seeds that all have; empty with fewer than two seeds.

    A variant that was not run on all seeds is left out.
    """
    every = {
        side.name: [(measured.values(ranking, side, seed) or {}).get(metric.column) for seed in ranking.seeds]
        for side in ranking.sides
    }
    shown = {name: values for name, values in every.items() if None not in values or name not in ranking.variants}
    common = pd.DataFrame(shown, dtype=np.float64).dropna()
    if len(common) < 2:
        return []
    scores: dict[str, Floats] = {name: common[name].to_numpy() for name in shown}
    order = sorted(scores, key=lambda name: (-scores[name].mean(), name))
    behind = _differing(scores, order[0])
    beating = _differing(scores, RANDOM).intersection(order[: order.index(RANDOM)])
    return [Place(name, t_interval(scores[name]), name in behind, name in beating) for name in order]


def _differing(scores: Mapping[str, Floats], reference: str) -> set[str]:
    """Methods whose scores differ significantly from those of the `reference`."""
    others = [name for name in scores if name != reference]
    adjusted = holm([paired(scores[name], scores[reference]).p for name in others])
    return {name for name, p in zip(others, adjusted, strict=True) if p < LEVEL}


def ranking_advice(ranking: Ranking, measured: Measured) -> str:
    """Sentences on the first method in each currency, with the mean of random selection; empty without runs."""
    sentences = []
    for metric in ranking.metrics:
        order = places(ranking, metric, measured)
        if order:
            first, random = order[0], next(place for place in order if place.strategy == RANDOM)
            noise = "" if random.behind else ", tied"
            where = capital(metric.name.removeprefix("accuracy "))
            means = f"{first.accuracy.mean:.3f}; random {random.accuracy.mean:.3f}{noise}"
            sentences.append(f"{where}, {first.strategy} is first ({means}).")
    return " ".join(sentences)


def advice(rankings: Sequence[Ranking], measured: Measured) -> list[str]:
    """Two sentences per currency: the methods that are first or tied in most rankings, and how random selection does.

    Rankings without runs are left out. The methods stand in the order of their mean places.
    """
    sentences = []
    for key, currency in CURRENCIES.items():
        orders = {
            ranking.name: order
            for ranking in rankings
            for metric in ranking.metrics
            if metric.key == key and (order := places(ranking, metric, measured))
        }
        if orders:
            sentences.append(f"{currency}, {_sentences(orders)}")
    return sentences


def _sentences(orders: dict[str, list[Place]]) -> str:
    tied = Counter(place.strategy for order in orders.values() for place in order if not place.behind)
    mean_place = {
        name: np.mean([[place.strategy for place in order].index(name) for order in orders.values()])
        for name in set.intersection(*({place.strategy for place in order} for order in orders.values()))
    }
    most = max(tied[name] for name in mean_place)
    best = sorted((name for name in mean_place if tied[name] == most), key=lambda name: (mean_place[name], name))
    best = [EXPLAINED.get(name, name) for name in best]
    names = " or ".join([", ".join(best[:-1]), best[-1]] if len(best) > 1 else best)
    random = {name: place for name, order in orders.items() for place in order if place.strategy == RANDOM}
    beaten = [
        name for name, order in orders.items() if random[name].behind or any(place.beats_random for place in order)
    ]
    points = 100 * np.mean([orders[name][0].accuracy.mean - place.accuracy.mean for name, place in random.items()])
    return (
        f"use {names}: first, or not significantly behind the first, in {most} of {len(orders)} workloads. A method is "
        f"significantly more accurate than random selection in {_listed(beaten, orders)}, and the first is "
        f"{points:.1f} points ahead of it on average."
    )


def _listed(names: Sequence[str], every: Collection[str]) -> str:
    """Count of `names` out of `every` workload, with the names; if these are the majority, those left out."""
    others = [name for name in every if name not in names]
    count = f"{len(names)} of {len(every)} workloads"
    if not names or not others:
        return count
    return f"{count} (not in {', '.join(others)})" if len(others) < len(names) else f"{count} ({', '.join(names)})"
