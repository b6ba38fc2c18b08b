"""Rankings: one TOML file each; methods at equal bytes, seconds and rounds, on the same seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from fedsel_app.config import ConfigError, Value
from simulation.claims.measured import Measured
from simulation.claims.metrics import METRICS, Metric
from simulation.claims.study import Side, Study
from simulation.comparison.statistics import LEVEL, Estimate, Floats, holm, paired, t_interval
from simulation.experiments.presets import flatten

RANDOM = "random"
"""Method that every ranking has, so that the others are read beside it."""


@dataclass(frozen=True, kw_only=True)
class Ranking(Study):
    """Ranking, as its file has it.

    Attributes
    ----------
    title : the workload
    strategies : methods that are ranked
    budgets : metric "accuracy_at_..." -> how much of it each method may spend
    seed_count : seeds, 1 to this
    note : what a reader of its table must know
    variants : name -> settings of a further side, its `strategy` among them
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
        """A side for each method, without settings of its own, and then the variants."""
        further = (
            Side(str(settings["strategy"]), {key: value for key, value in settings.items() if key != "strategy"}, name)
            for name, settings in self.variants.items()
        )
        return (*(Side(strategy) for strategy in self.strategies), *further)

    @property
    def seeds(self) -> range:
        """Seeds of its runs."""
        return range(1, self.seed_count + 1)

    @property
    def metrics(self) -> list[Metric]:
        """Its currencies."""
        return [METRICS[key].within(budget) for key, budget in self.budgets.items()]

    def __post_init__(self) -> None:
        if RANDOM not in self.strategies:
            raise ConfigError(f"'strategies' lacks {RANDOM}, beside which the others are read.")
        for key in self.budgets:
            if key not in METRICS or not METRICS[key].budgeted:
                raise ConfigError(f"'{key}' is no metric with a budget.")

    @classmethod
    def parsed(cls, table: dict[str, Any]) -> dict[str, Any]:
        """Fields of a ranking: its settings and those of its variants by their keys."""
        variants = {name: flatten(own) for name, own in table.get("variants", {}).items()}
        return {**table, "settings": flatten(table.get("settings", {})), "variants": variants}


@dataclass(frozen=True)
class Place:
    """Place of a method in a currency.

    Attributes
    ----------
    strategy : the method, or the name of a variant
    behind : True if it is significantly behind the first (paired t tests, Holm over the methods)
    """

    strategy: str
    accuracy: Estimate
    behind: bool


def places(ranking: Ranking, metric: Metric, measured: Measured) -> list[Place]:
    """Methods from the best mean to the worst, on the seeds that all have; none where fewer than two seeds are.

    A variant that was not run on all seeds is left out.
    """
    found = {
        side.name: {seed: value for seed in ranking.seeds if (value := _value(ranking, side, seed, metric, measured))}
        for side in ranking.sides
    }
    whole = len(ranking.seeds)
    rows = {name: row for name, row in found.items() if len(row) == whole or name not in ranking.variants}
    common = sorted(set.intersection(*(set(row) for row in rows.values())))
    if len(common) < 2:
        return []
    scores: dict[str, Floats] = {name: np.array([row[seed] for seed in common]) for name, row in rows.items()}
    order = sorted(scores, key=lambda name: (-scores[name].mean(), name))
    first, *others = order
    adjusted = holm([paired(scores[name], scores[first]).p for name in others])
    behind = {first: False, **{name: p < LEVEL for name, p in zip(others, adjusted, strict=True)}}
    return [Place(name, t_interval(scores[name]), behind[name]) for name in order]


def _value(ranking: Ranking, side: Side, seed: int, metric: Metric, measured: Measured) -> float | None:
    values = measured.values(ranking, side, seed)
    return None if values is None else values.get(metric.column)
