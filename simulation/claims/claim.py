"""Claims: one TOML file each, in a folder a paper; the source, both sides of the comparison, and the rule that decides.

A claim says that one side, `claimed`, is ahead of the other, `other`, in every metric of its rule. Both sides run on
the same seeds, which decide partitions, links and initial models, so that the differences are paired.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from fedsel_app.config import ConfigError
from fedsel_app.config.plugins import unknown_name
from simulation.claims.metrics import METRICS, Metric
from simulation.claims.study import Side, Study, build, chosen, reading
from simulation.comparison.power import seeds_for, seeds_for_equivalence
from simulation.experiments.presets import flatten

FOLDER = Path(__file__).parent
Scale = Literal["protocol", "reduced"]
FEWEST_SEEDS = 5
RANKINGS = "rankings"
"""Name of the folder whose files are no claims."""


@dataclass(frozen=True)
class Rule:
    """Rule that decides a claim, fixed before its runs.

    An advantage is the paired difference in favour of the claimed side: for a cost the share saved (0.1: a tenth less
    than the other side), for a score the difference.

    Attributes
    ----------
    metrics : names in `METRICS`, those that the sentence claims; it holds if it holds in each
    beside : further metrics, which are told beside and decide nothing
    confirm : advantage above which the claim holds
    refute : advantage below which it does not
    margin : advantages within plus or minus this are no difference
    effect, deviation : advantage that is expected, and its standard deviation over the seeds
    power : probability to confirm an advantage of `effect`
    seeds : number of seeds, at least as many as `power` asks for
    first_seed : the first of them; the others follow it
    budget : for the metrics "accuracy_at_...": how much of it may be spent
    equal : True for a claim that there is no difference, which then is what holds; `effect` is 0
    """

    metrics: tuple[str, ...]
    confirm: float
    refute: float
    margin: float
    effect: float
    deviation: float
    power: float
    seeds: int
    first_seed: int = 1
    beside: tuple[str, ...] = ()
    budget: float | None = None
    equal: bool = False

    def __post_init__(self) -> None:
        for name in (*self.metrics, *self.beside):
            if name not in METRICS:
                raise unknown_name("metric", name, METRICS)
        _require(bool(self.metrics), "'metrics' must name one metric at least")
        kinds = {METRICS[name].ratio for name in (*self.metrics, *self.beside)}
        _require(len(kinds) == 1, "'metrics' must be costs, or scores, not both: their differences have other units")
        needs_budget = any(METRICS[name].budgeted for name in self.metrics)
        _require(needs_budget == (self.budget is not None), "'budget' goes with the metrics 'accuracy_at_...' only")
        _require(self.refute <= self.confirm, "'refute' <= 'confirm' must hold")
        _require(self.equal or self.confirm < self.effect, "'confirm' < 'effect' must hold")
        _require(self.margin > 0 and self.deviation > 0, "'margin' and 'deviation' must be above 0")
        _require(0.5 <= self.power < 1, "'power' must be in [0.5, 1)")
        _require(self.seeds >= FEWEST_SEEDS, f"'seeds' must be {FEWEST_SEEDS} at least")
        needed = self._needed()
        _require(self.seeds >= needed, f"'seeds' must be {needed} at least for the 'power' {self.power:g}")

    def _needed(self) -> float:
        """Seeds that the power asks for, if effect and deviation are as expected."""
        scale = METRICS[self.metrics[0]]
        effect = scale.advantage(self.effect)
        if self.equal:
            return seeds_for_equivalence(effect, scale.limit(self.margin), self.deviation, self.power)
        return seeds_for(effect - scale.advantage(self.confirm), self.deviation, self.power)

    def metric(self, name: str) -> Metric:
        """Metric of the name `name`, with the budget of this rule."""
        return METRICS[name].within(self.budget)


@dataclass(frozen=True, kw_only=True)
class Claim(Study):
    """Claim, as its file has it.

    Attributes
    ----------
    paper : the paper; the tests of its claims are adjusted together
    source : table, figure or section, and page
    sentence : the claim in one's own words
    published : the published numbers
    scale : "protocol" for the paper's own protocol, "reduced" for a smaller one
    reduced : the reductions, and why the claim should survive them
    hangs_on : the setting on which the outcome depends, where one was found
    """

    paper: str
    source: str
    sentence: str
    published: str
    scale: Scale
    claimed: Side
    other: Side
    rule: Rule
    reduced: str = ""
    hangs_on: str = ""

    def __post_init__(self) -> None:
        _require(self.scale in get_args(Scale), f"'scale' must be one of {', '.join(get_args(Scale))}")
        _require((self.scale == "reduced") == bool(self.reduced), "'reduced' goes with the scale reduced, and only it")

    @property
    def sides(self) -> tuple[Side, Side]:
        """The claimed side and the other."""
        return self.claimed, self.other

    @property
    def seeds(self) -> range:
        """Seeds of its runs."""
        return range(self.rule.first_seed, self.rule.first_seed + self.rule.seeds)

    @property
    def metrics(self) -> list[Metric]:
        """Metrics that are measured of each run: those that its rule decides by, then those told beside."""
        return [self.rule.metric(name) for name in (*self.rule.metrics, *self.rule.beside)]


@cache
def claim_files() -> dict[str, Path]:
    """Claim name -> file, by paper and name."""
    return {path.stem: path for path in sorted(FOLDER.glob("*/*.toml")) if path.parent.name != RANKINGS}


def load_claims(names: tuple[str, ...] = ()) -> list[Claim]:
    """Claims of the given names, or all of them.

    Raises
    ------
    ConfigError
        For a name that no claim has, or a file that is no claim.
    """
    return [read_claim(path) for path in chosen("claim", claim_files(), names)]


def read_claim(path: Path) -> Claim:
    """Claim in a file. Raises ConfigError, which names the file, if it is none."""
    with reading("claim", path) as table:
        for side in ("claimed", "other"):
            own = dict(table[side])
            table[side] = Side(own.pop("strategy"), flatten(own))
        table["rule"] = build(Rule, _tuples(table["rule"]))
        table["settings"] = flatten(table.get("settings", {}))
        claim: Claim = build(Claim, table | {"name": path.stem})
    return claim


def _tuples(table: Mapping[str, Any]) -> dict[str, Any]:
    """Entries of a table, its lists as tuples."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}


def _require(condition: bool, requirement: str) -> None:
    if not condition:
        raise ConfigError(f"{requirement}.")
