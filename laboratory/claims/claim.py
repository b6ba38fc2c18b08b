"""Claims: one TOML file each, in one folder per paper. It has the source, both sides of the comparison, and the rule.

A claim says that one side, `claimed`, is ahead of the other, `other`, in every metric of its rule. Both sides run on
the same seeds, which decide partitions, links and initial models, so that the differences are paired.

Stages: the first stage ran on seeds from 1 on. A second stage, stated in the file before any of its runs, has fresh
seeds, from 2001 on. Its verdict uses only these and replaces the first verdict. A decided claim without a
second stage is repeated on ten fresh seeds (`again`), and keeps its verdict.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from fedsel_app.config import ConfigError
from fedsel_app.config.plugins import unknown_name
from fedsel_app.presets.preset import flatten, load_preset
from laboratory.claims.metrics import MEASURES, ClaimMeasure
from laboratory.claims.statistics import (
    MOST_PAIRS,
    equivalence_power,
    one_sided_power,
    seeds_for,
    seeds_for_equivalence,
)
from laboratory.claims.study import Side, Study, build
from laboratory.presets import named
from simulation.workbench.comparison.statistics import LEVEL

Scale = Literal["protocol", "reduced"]
FEWEST_SEEDS = 5
FRESH = 2001
"""First of the seeds on which no claim was run before."""
STAGES = "first_stage", "second_stage", "again"


@dataclass(frozen=True)
class Rule:
    """Rule that decides a claim, fixed before its runs.

    An advantage is the paired difference in favour of the claimed side. For a cost it is the share saved (0.1: a tenth
    less than the other side), and for a score the difference.

    Attributes
    ----------
    metrics : names in `MEASURES` that the sentence claims; the claim holds if it holds in each of them
    margin : advantages within plus or minus this are called small
    power : probability that the claim holds in the test if the advantage is the expected one
    uncounted : metrics that the rule named before the runs, but that the paper does not count, such as downloads: they
        are tested and adjusted with `metrics`, and stand beside the verdict
    beside : further metrics, which are reported too and do not affect the verdict
    budget : for the metrics "accuracy_at_...": how much of the cost may be spent
    equal : False if the claim is that the claimed side is ahead; True if it is that the advantage is small
    """

    metrics: tuple[str, ...]
    margin: float
    power: float
    uncounted: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    budget: float | None = None
    equal: bool = False

    def __post_init__(self) -> None:
        named = *self.tested, *self.beside
        for name in named:
            if name not in MEASURES:
                raise unknown_name("metric", name, MEASURES)
        _require(bool(self.metrics), "'metrics' must name one metric at least")
        kinds = {MEASURES[name].ratio for name in named}
        _require(len(kinds) == 1, "'metrics' must be costs, or scores, not both: their differences have other units")
        needs_budget = any(MEASURES[name].budgeted for name in named)
        _require(needs_budget == (self.budget is not None), "only the metrics 'accuracy_at_...' have a 'budget'")
        _require(self.margin > 0, "'margin' must be above 0")
        _require(0.5 <= self.power < 1, "'power' must be in [0.5, 1)")

    @property
    def tested(self) -> tuple[str, ...]:
        """Metrics that are tested and adjusted with the other claims of the paper; the first ones decide."""
        return *self.metrics, *self.uncounted

    def metric(self, name: str) -> ClaimMeasure:
        """Metric `name`, with the budget of this rule."""
        return MEASURES[name].within(self.budget)

    def needed(self, metric: ClaimMeasure, advantage: float, deviation: float, comparisons: int) -> float:
        """Fewest seeds that would give a verdict in a metric, for or against the claim; infinite beyond a thousand.

        The `advantage` and its `deviation` over the seeds are on the scale of the tests, and are assumed to be true.
        The number includes the first and strictest step of Holm's adjustment over `comparisons` tests.
        """
        level = LEVEL / comparisons
        alike = seeds_for_equivalence(advantage, metric.limit(self.margin), deviation, self.power, level)
        if self.equal:
            return alike
        shifts = self._shifts(metric, advantage)
        return min(alike, *(seeds_for(shift, deviation, self.power, level) for shift in shifts))

    def suffice(self, seeds: int, metric: ClaimMeasure, advantage: float, deviation: float, comparisons: int) -> bool:
        """True if `seeds` are not fewer than `needed`, which is costlier to find: the power grows with the seeds."""
        level, seeds = LEVEL / comparisons, min(seeds, MOST_PAIRS)
        if equivalence_power(advantage, metric.limit(self.margin), deviation, seeds, level) >= self.power:
            return True
        powers = (one_sided_power(shift, deviation, seeds, level / 2) for shift in self._shifts(metric, advantage))
        return not self.equal and any(power >= self.power for power in powers)

    def threshold(self, metric: ClaimMeasure) -> float:
        """Advantage beyond which one side is ahead, on the scale of the tests: 0, or the margin if `equal`."""
        return metric.limit(self.margin) if self.equal else 0.0

    def _shifts(self, metric: ClaimMeasure, advantage: float) -> tuple[float, float]:
        """By how much the claimed side, and the other side, is beyond the threshold."""
        return advantage - self.threshold(metric), -advantage - self.threshold(metric)


@dataclass(frozen=True)
class Stage:
    """Stage of a claim: its seeds, and the power analysis behind their number.

    Attributes
    ----------
    seeds : number of seeds
    first_seed : the first seed; the others follow it
    effect : expected advantage, as a share saved or a difference
    deviation : its standard deviation over the seeds, on the scale of the tests
    comparisons : number of tests in Holm's adjustment
    """

    seeds: int
    first_seed: int = 1
    effect: float | None = None
    deviation: float | None = None
    comparisons: int = 1

    def __post_init__(self) -> None:
        _require(self.seeds >= FEWEST_SEEDS, f"'seeds' must be {FEWEST_SEEDS} at least")
        _require((self.effect is None) == (self.deviation is None), "'effect' and 'deviation' need each other")
        _require(self.deviation is None or self.deviation > 0, "'deviation' must be above 0")
        _require(self.comparisons >= 1, "'comparisons' must be 1 at least")

    @property
    def range(self) -> range:
        """Seeds of the stage."""
        return range(self.first_seed, self.first_seed + self.seeds)

    def check(self, rule: Rule) -> None:
        """Raise ConfigError if there are fewer seeds than the rule's power needs."""
        if self.effect is None or self.deviation is None:
            return
        metric = rule.metric(rule.metrics[0])
        expected = metric, metric.advantage(self.effect), self.deviation, self.comparisons
        if not rule.suffice(self.seeds, *expected):
            needed = rule.needed(*expected)
            raise ConfigError(f"'seeds' must be {needed} at least for the 'power' {rule.power:g}.")


@dataclass(frozen=True, kw_only=True)
class Claim(Study):
    """Claim, as read from its file.

    Attributes
    ----------
    paper : the paper; the tests of its claims are adjusted together
    source : table, figure or section, and page
    sentence : the claim in our own words
    published : the published numbers
    scale : "protocol" for the paper's own protocol, "reduced" for a smaller one
    first_stage, second_stage, again : its stages, at least one of them
    reduced : the reductions, and why the claim should survive them
    hangs_on : the setting on which the outcome depends, if one was found
    known_before : results of these or similar runs that were known when the file was written
    cannot_tell : why the set-up cannot distinguish the sides, if that was found
    superseded : why the claim is no longer valid
    superseded_by : name of the claim that replaces it
    headline : True if it is among the statements that stand for its paper in the ledger; if none is, all are
    ours : why it is no statement of the paper, if it is not; the ledger's counts leave out such a claim
    favoured : what had favoured the claim in this set-up before the set-up was chosen; such a claim is marked
    at_best : tuned rankings and sides that compare the claimed side at its best rate, each as STUDY/SIDE; such a claim
        says that it is untuned
    not_again : what it means that the repetition had another verdict in one of the metrics
    not_before : round before which no run of a pilot reached its target; needed if a method selects uniformly at
        first and a run may end at its target
    """

    kind: ClassVar = "claim"

    paper: str
    source: str
    sentence: str
    published: str
    scale: Scale
    claimed: Side
    other: Side
    rule: Rule
    first_stage: Stage | None = None
    second_stage: Stage | None = None
    again: Stage | None = None
    reduced: str = ""
    hangs_on: str = ""
    known_before: str = ""
    cannot_tell: str = ""
    superseded: str = ""
    superseded_by: str = ""
    headline: bool = False
    ours: str = ""
    favoured: str = ""
    at_best: tuple[str, ...] = ()
    not_again: str = ""
    not_before: int = 0

    def __post_init__(self) -> None:
        _require(self.scale in get_args(Scale), f"'scale' must be one of {', '.join(get_args(Scale))}")
        _require((self.scale == "reduced") == bool(self.reduced), "only the scale reduced has 'reduced', and needs it")
        _require(bool(self.superseded) == bool(self.superseded_by), "'superseded' and 'superseded_by' need each other")
        _require(bool(self.stages), "a claim must have 'seeds' in its rule, or a second stage")
        _require(not (self.second_stage and self.again), "'again' is for claims without a second stage")
        for name, stage in self.stages.items():
            stage.check(self.rule)
            _require(name == "first_stage" or stage.first_seed >= FRESH, f"'first_seed' must be {FRESH} at least")
        if not self.superseded:
            self._check_arms()

    @property
    def sides(self) -> tuple[Side, Side]:
        """The claimed side and the other side."""
        return self.claimed, self.other

    @property
    def stages(self) -> dict[str, Stage]:
        """Stages of the claim by name, in the order of `STAGES`."""
        found: dict[str, Stage | None] = {name: getattr(self, name) for name in STAGES}
        return {name: stage for name, stage in found.items() if stage is not None}

    @property
    def seeds(self) -> list[int]:
        """Seeds of the runs of all stages."""
        return list(dict.fromkeys(seed for stage in self.stages.values() for seed in stage.range))

    @property
    def metrics(self) -> list[ClaimMeasure]:
        """Metrics that are measured for each run: first those that decide, then those that stand beside the verdict."""
        return [self.rule.metric(name) for name in (*self.rule.tested, *self.rule.beside)]

    @classmethod
    def parsed(cls, table: dict[str, Any]) -> dict[str, Any]:
        """Fields of a claim: its sides, rule and stages. The table "rule" of the file has the first stage."""
        sides = {side: dict(table[side]) for side in ("claimed", "other")}
        rule = {key: tuple(value) if isinstance(value, list) else value for key, value in table["rule"].items()}
        first = {key: rule.pop(key) for key in ("seeds", "first_seed", "effect", "deviation") if key in rule}
        stages = {"first_stage": first} if first else {}
        stages |= {name: {"first_seed": FRESH, **table[name]} for name in ("second_stage", "again") if name in table}
        return {
            **table,
            "at_best": tuple(table.get("at_best", ())),
            **{name: Side(side.pop("strategy"), flatten(side)) for name, side in sides.items()},
            "rule": build(Rule, rule),
            **{name: build(Stage, stage) for name, stage in stages.items()},
            "settings": flatten(table.get("settings", {})),
        }

    def _check_arms(self) -> None:
        """Raise ConfigError for weights that differ without a statement, or a run that may only select uniformly."""
        one_method = self.claimed.strategy == self.other.strategy
        for side in self.sides:
            config, uniform = self.configuration(side, 0), self.uniform_rounds(side)
            unsaid = config.aggregation.weighting == "method" and not one_method and not self.own_pipelines
            _require(
                not unsaid or all("weighting" in side.settings for side in self.sides),
                "the sides are different methods, so that 'weighting' = method gives each its own weights: set "
                "'weighting' to uniform or examples for both, or on each side",
            )
            to_target = any("to_target" in metric.key for metric in self.metrics)
            last = self.not_before if to_target else config.run.rounds
            _require(
                not uniform or uniform < last,
                f"{side.strategy} selects uniformly in its first {uniform} rounds, and a run may end by then: shorten "
                "that, or state in 'not_before' the round before which no run reaches the target",
            )

    @property
    def own_pipelines(self) -> bool:
        """True if the preset gives the compared methods the pipelines of their own papers."""
        return bool(self.preset and load_preset(named(self.preset)).methods)


def _require(condition: bool, requirement: str) -> None:
    if not condition:
        raise ConfigError(f"{requirement}.")
