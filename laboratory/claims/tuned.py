"""Tuned rankings: each side searches for its settings before it is compared on fresh seeds (one TOML file each).

The search has seeds of its own, and ranks the settings by a score on a validation set, which is a share of the training
examples. So neither the test set nor the seeds of the comparison have a part in it. The file states the grid, the seeds
and the share before any run. A run that fails counts as the worst.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

from fedsel_app.config import ConfigError, Value
from fedsel_app.presets.preset import flatten
from laboratory.claims.claim import Claim
from laboratory.claims.measured import Measured
from laboratory.claims.metrics import MEASURES, ClaimMeasure
from laboratory.claims.ranking import PIPELINE, Ranking, ranked_methods
from laboratory.claims.study import Side, Study

FRACTION, RATE, MOMENTUM = "validation-fraction", "lr", "momentum"
METRIC = MEASURES["stable_validation_accuracy"]
Cell = Mapping[str, Value]


@dataclass(frozen=True, kw_only=True)
class Search(Study):
    """Search of some sides, each over its cells of settings.

    Attributes
    ----------
    arms : the sides
    cells : settings that each of them tries
    search_seeds : seeds of the search
    """

    kind: ClassVar = "search"

    arms: tuple[Side, ...]
    cells: tuple[Cell, ...]
    search_seeds: tuple[int, ...]

    @property
    def sides(self) -> tuple[Side, ...]:
        """Each arm with each cell."""
        return tuple(self.tried(arm, cell) for arm in self.arms for cell in self.cells)

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of the search."""
        return self.search_seeds

    @property
    def metrics(self) -> list[ClaimMeasure]:
        """The score on the validation set."""
        return [METRIC]

    @classmethod
    def parsed(cls, table: dict[str, Any]) -> dict[str, Any]:
        """Not read from a file of its own: see `Tuned`."""
        return table

    def on_edge(self, cell: Cell) -> list[str]:
        """Settings of a cell whose value is the least or the largest of several numbers in the grid."""
        tried = {key: sorted({each[key] for each in self.cells}) for key in cell}
        return [key for key, values in tried.items() if len(values) > 2 and cell[key] in (values[0], values[-1])]

    def tried(self, arm: Side, cell: Cell) -> Side:
        """`arm` with the settings of a cell."""
        return replace(arm, settings={**arm.settings, **cell})

    def best(self, arm: Side, measured: Measured) -> Cell | None:
        """The cell with the best mean score, the first of equals; None until all runs of the arm are measured."""
        means: list[float] = []
        for cell in self.cells:
            found = [measured.values(self, self.tried(arm, cell), seed) for seed in self.seeds]
            if None in found:
                return None
            scores = [values[METRIC.column] for values in found if values is not None]
            means.append(float("-inf") if None in scores else sum(map(float, filter(None, scores))) / len(scores))
        return self.cells[means.index(max(means))]


@dataclass(frozen=True, kw_only=True)
class Tuned(Study):
    """Tuned ranking, as read from its file.

    Attributes
    ----------
    title : the workload
    baseline : side that the others are compared with
    arms : sides, by name, with the settings that they do not search
    grid : setting -> values that are searched
    search_seeds : seeds of the search
    fraction : share of the training examples in the validation set
    first_seed, seed_count : fresh seeds of the comparison
    budgets, factors, pipeline : as in `Ranking`
    measures : names in `MEASURES` of further scores
    core_hours : core hours that the runs are expected to take
    cost : the runs and the seconds of each behind this number, and where it was measured
    note : note for the reader of the file
    replaces : untuned ranking of the same workload, which leaves the pages when this one is measured; empty: none
    """

    kind: ClassVar = "tuned ranking"

    title: str
    baseline: str
    arms: Mapping[str, Mapping[str, Value]]
    grid: Mapping[str, Sequence[Value]]
    search_seeds: tuple[int, ...]
    fraction: float
    first_seed: int
    seed_count: int
    core_hours: float
    cost: str
    budgets: Mapping[str, float] = field(default_factory=dict)
    factors: Sequence[float] = (1.0,)
    pipeline: str = PIPELINE
    measures: Sequence[str] = ()
    note: str = ""
    replaces: str = ""

    def __post_init__(self) -> None:
        if self.baseline not in self.arms:
            raise ConfigError(f"'{self.baseline}' is none of the sides {', '.join(self.arms)}.")
        if set(self.search_seeds) & set(self.seeds):
            raise ConfigError("The seeds of the search must not be those of the comparison.")

    @cached_property
    def sides(self) -> tuple[Side, ...]:
        """The sides before their search."""
        return tuple(
            Side(str(own["strategy"]), {key: value for key, value in own.items() if key != "strategy"}, name)
            for name, own in self.arms.items()
        )

    @property
    def seeds(self) -> range:
        """Fresh seeds of the comparison."""
        return range(self.first_seed, self.first_seed + self.seed_count)

    @property
    def metrics(self) -> list[ClaimMeasure]:
        """Metrics of the comparison."""
        return self._ranking({name: {} for name in self.arms}).metrics

    @property
    def run_count(self) -> int:
        """Number of runs of the search and of the comparison."""
        searched = len(self.search_seeds) * math.prod(map(len, self.grid.values()))
        return (searched + self.seed_count) * len(self.arms)

    @classmethod
    def parsed(cls, table: dict[str, Any]) -> dict[str, Any]:
        """Fields of a tuned ranking. The table "search" of the file has the grid, the seeds and the share."""
        search = dict(table.pop("search"))
        arms = {name: flatten(own) for name, own in table["arms"].items()}
        arms |= {name: {"strategy": name} for name in table.pop("strategies", ())}
        return {
            **table,
            "settings": flatten(table.get("settings", {})),
            "arms": arms,
            "grid": search["grid"],
            "search_seeds": tuple(search["seeds"]),
            "fraction": search[FRACTION],
        }

    @cached_property
    def search(self) -> Search:
        """The search of every side over the whole grid."""
        return Search(
            name=f"{self.name}, search",
            preset=self.preset,
            settings={**self.settings, FRACTION: self.fraction},
            arms=self.sides,
            cells=tuple(dict(zip(self.grid, cell, strict=True)) for cell in itertools.product(*self.grid.values())),
            search_seeds=self.search_seeds,
        )

    def chosen(self, measured: Measured) -> dict[str, Cell] | None:
        """Best settings of each side, by name; None until the search is over."""
        best = {arm.name: self.search.best(arm, measured) for arm in self.sides}
        known = {name: cell for name, cell in best.items() if cell is not None}
        return known if len(known) == len(best) else None

    def ranking(self, measured: Measured) -> Ranking | None:
        """The comparison with the best settings; None until the search is over."""
        chosen = self.chosen(measured)
        return None if chosen is None else self._ranking(chosen)

    def compared(self, measured: Measured) -> Ranking | None:
        """The comparison; None until all its runs are measured, because a part of them ranks nothing."""
        ranking = self.ranking(measured)
        if ranking is None or None in (
            measured.values(ranking, side, seed) for side in ranking.sides for seed in ranking.seeds
        ):
            return None
        return ranking

    def parts(self, measured: Measured) -> list[Study]:
        """The search, and the comparison when it is over."""
        ranking = self.ranking(measured)
        return [self.search, *([] if ranking is None else [ranking])]

    def _ranking(self, chosen: Mapping[str, Cell]) -> Ranking:
        return Ranking(
            name=self.name,
            preset=self.preset,
            settings=self.settings,
            title=self.title,
            strategies=(),
            variants={name: {**own, **chosen[name]} for name, own in self.arms.items()},
            budgets=self.budgets,
            factors=self.factors,
            pipeline=self.pipeline,
            measures=self.measures,
            first_seed=self.first_seed,
            seed_count=self.seed_count,
            baseline=self.baseline,
        )


def standing_rankings(rankings: Sequence[Ranking], tuned: Sequence[Tuned], measured: Measured) -> list[Ranking]:
    """The rankings; a tuned one takes the place of the one that it replaces, as soon as all its runs are measured."""
    found = {one.replaces: ranking for one in tuned if (ranking := one.compared(measured))}
    return [found.get(ranking.name, ranking) for ranking in rankings]


def at_best(claim: Claim, measured: Measured) -> str:
    """Text that a claim is untuned, and what came out at the best rates; empty for a claim that names no tuned side."""
    if not claim.at_best:
        return ""
    values = claim.configuration(claim.claimed, 1).values()
    found = []
    for named in claim.at_best:
        study, _, side = named.partition("/")
        [tuned] = Tuned.load([study])
        ranking = tuned.compared(measured)
        order = ranked_methods(ranking, tuned.metrics[0], measured) if ranking else []
        lead = next((f"{100 * place.lead.mean:+.2f} points, {place.said}" for place in order if place.name == side), "")
        found.append(f"with momentum {tuned.settings[MOMENTUM]} {lead or 'not run yet'}")
    return (
        f"untuned (rate {values[RATE]:g}, momentum {values[MOMENTUM]:g} for both); both at their best rates: "
        f"{', '.join(found)}"
    )
