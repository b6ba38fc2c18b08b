"""Rankings of methods at equal bytes, seconds and rounds on the same seeds (one TOML file each).

Every method is compared with uniform draws and equal weights, paired by seed. It is ahead or behind (t test), or else
within the margin (two one-sided t tests), or else not resolved. If both tests succeed, it is ahead or behind by less
than the margin. Both kinds of tests are adjusted over the methods (Holm). The tests of a currency are adjusted over all
workloads too, and the leads of a method are pooled over them (random effects).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import scipy

from fedsel_app.config import ConfigError, Value
from fedsel_app.presets.preset import flatten
from laboratory.claims.measured import Measured
from laboratory.claims.metrics import MEASURES, ClaimMeasure
from laboratory.claims.statistics import p_above, p_within, pooled, seeds_for
from laboratory.claims.study import Side, Study
from simulation.workbench.comparison.statistics import LEVEL, Estimate, holm, paired, t_interval

BASELINE = "random (equal weights)"
"""Variant in every ranking, to compare the methods with."""
PIPELINE = "HeteRo-Select's (top-k 20%, FedProx)"
MARGIN = 0.015
"""Differences in accuracy within plus or minus this are called small."""
POINT, POWER = 0.01, 0.8
"""Lead, and power of the first step of Holm's adjustment, for which the seeds needed are told."""
AHEAD, BEHIND, WITHIN, OPEN = "ahead", "behind", f"within {100 * MARGIN:g} points", "not resolved"


@dataclass(frozen=True, kw_only=True)
class Ranking(Study):
    """Ranking, as read from its file.

    Attributes
    ----------
    title : the workload
    strategies : methods that are ranked
    budgets : metric "accuracy_at_..." or "stable_accuracy_at_..." -> how much of its cost each method may spend
    factors : multiples of each budget at which it is measured
    pipeline : what all sides share in training, compression and aggregation, in words
    measures : further scores, names in `MEASURES`
    first_seed, seed_count : seeds
    baseline : variant that the others are compared with
    note : note for the reader of the file
    variants : name -> settings of a further side, including its `strategy`
    """

    kind: ClassVar = "ranking"

    title: str
    strategies: Sequence[str]
    budgets: Mapping[str, float]
    seed_count: int
    first_seed: int = 1
    factors: Sequence[float] = (1.0,)
    pipeline: str = PIPELINE
    measures: Sequence[str] = ()
    baseline: str = BASELINE
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
        return range(self.first_seed, self.first_seed + self.seed_count)

    @property
    def metrics(self) -> list[ClaimMeasure]:
        """Metrics of the budgets: accuracy at equal bytes, seconds or rounds. Then the further scores."""
        budgeted = [
            MEASURES[key].within(budget * factor) for key, budget in self.budgets.items() for factor in self.factors
        ]
        return [*budgeted, *(MEASURES[key] for key in self.measures)]

    def __post_init__(self) -> None:
        if self.baseline not in self.variants:
            raise ConfigError(f"'variants' lacks '{self.baseline}', with which the others are compared.")
        for key in self.budgets:
            if key not in MEASURES or not MEASURES[key].budgeted:
                raise ConfigError(f"'{key}' is no metric with a budget.")

    @classmethod
    def parsed(cls, table: dict[str, Any]) -> dict[str, Any]:
        """Fields of a ranking, with its settings and those of its variants by key."""
        variants = {name: flatten(own) for name, own in table.get("variants", {}).items()}
        return {**table, "settings": flatten(table.get("settings", {})), "variants": variants}


@dataclass(frozen=True)
class RankedMethod:
    """Method in a ranking, in one metric.

    Attributes
    ----------
    name : the method, or the name of a variant
    lead : its accuracy minus that of the baseline, with a 95% interval (unadjusted)
    p : unadjusted two-sided p-value of the lead; 1 for the baseline
    word : AHEAD, BEHIND, WITHIN or OPEN; empty for the baseline
    small : True if it is ahead or behind, and also shown to be within the margin
    deviation : standard deviation of the paired differences; NaN for the baseline
    p_ranks : unadjusted two-sided p-value of the signed-rank test; 1 for the baseline
    hangs_on : number of seeds, without any one of which it would be neither ahead nor behind
    needed : seeds that a lead of `POINT` would need with this deviation
    """

    name: str
    accuracy: Estimate
    lead: Estimate
    p: float
    word: str
    small: bool
    deviation: float
    p_ranks: float
    hangs_on: int
    needed: float

    @property
    def decided(self) -> bool:
        """True if it is ahead or behind."""
        return self.word in (AHEAD, BEHIND)

    @property
    def said(self) -> str:
        """The word, and whether the lead is smaller than the margin."""
        return f"{self.word}, by less than the margin" if self.small else self.word


def ranked_methods(ranking: Ranking, metric: ClaimMeasure, measured: Measured) -> list[RankedMethod]:
    """Methods from the best mean to the worst, over the seeds that all have; empty with fewer than two seeds.

    A variant that was not run on all seeds is left out.
    """
    every = {
        side.name: [(measured.values(ranking, side, seed) or {}).get(metric.column) for seed in ranking.seeds]
        for side in ranking.sides
    }
    shown = {name: values for name, values in every.items() if None not in values or name not in ranking.variants}
    common = pd.DataFrame(shown, dtype=np.float64).dropna()
    if len(common) < 2 or ranking.baseline not in common:
        return []
    leads = {name: paired(common[name], common[ranking.baseline]) for name in common if name != ranking.baseline}
    differs = dict(zip(leads, holm([lead.p for lead in leads.values()]), strict=True))
    alike = dict(
        zip(leads, holm([p_within(common[name] - common[ranking.baseline], MARGIN) for name in leads]), strict=True)
    )
    differences = common[list(leads)].sub(common[ranking.baseline], axis=0)
    hanging = _hanging(differences)
    words = {ranking.baseline: ""}
    for name, lead in leads.items():
        if differs[name] < LEVEL:
            words[name] = AHEAD if lead.difference.mean > 0.0 else BEHIND
        else:
            words[name] = WITHIN if alike[name] < LEVEL else OPEN
    order = sorted(common, key=lambda name: (-common[name].mean(), name))
    return [
        RankedMethod(
            name=name,
            accuracy=t_interval(common[name]),
            lead=leads[name].difference if name in leads else t_interval([]),
            p=leads[name].p if name in leads else 1.0,
            word=words[name],
            small=words[name] in (AHEAD, BEHIND) and alike[name] < LEVEL,
            deviation=leads[name].deviation if name in leads else np.nan,
            p_ranks=_p_ranks(differences[name]) if name in leads else 1.0,
            hangs_on=hanging[name] if words[name] in (AHEAD, BEHIND) else 0,
            needed=seeds_for(POINT, leads[name].deviation, POWER, LEVEL / len(leads)) if name in leads else np.nan,
        )
        for name in order
    ]


def _p_ranks(differences: "pd.Series[float]") -> float:
    return min(1.0, 2.0 * min(p_above(sign * differences, 0.0, ranks=True) for sign in (1.0, -1.0)))


def _hanging(differences: pd.DataFrame) -> dict[str, int]:
    """Number of seeds (rows) without which the t test of a side (column), adjusted over the sides, is not significant.

    Without more than one other seed there is no test.
    """
    counts = dict.fromkeys(differences, 0)
    for seed in differences.index:
        left = differences.drop(index=seed)
        p_values = 2.0 * scipy.special.stdtr(len(left) - 1, -left.mean().abs() / left.sem())
        for name, p in zip(counts, holm(p_values.fillna(1.0)), strict=True):
            counts[name] += p >= LEVEL
    return counts


@dataclass(frozen=True)
class Evidence:
    """Evidence on a method in one currency, over all workloads of a pipeline.

    Attributes
    ----------
    lead : its pooled lead over the baseline; n is the number of workloads
    p : p-values of its leads by workload, adjusted over all methods and workloads (Holm)
    """

    lead: Estimate
    p: Mapping[str, float]


def evidence(places: Mapping[str, Mapping[str, RankedMethod]]) -> dict[str, Evidence]:
    """Evidence by method, from its places by workload; none for a method without two workloads that vary by seed."""
    cells = [(workload, name, place) for workload, of in places.items() for name, place in of.items()]
    adjusted = holm([place.p for *_, place in cells])
    every: dict[str, Evidence] = {}
    for method in dict.fromkeys(name for _, name, _ in cells):
        leads = {workload: of[method] for workload, of in places.items() if method in of}
        errors = [place.deviation / np.sqrt(place.lead.n) for place in leads.values()]
        if len(leads) > 1 and min(errors) > 0.0:
            own = {workload: p for (workload, name, _), p in zip(cells, adjusted, strict=True) if name == method}
            every[method] = Evidence(pooled([place.lead.mean for place in leads.values()], errors), own)
    return every
