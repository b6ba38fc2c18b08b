"""Claims: reads and decides fedsel's claims once, and makes values of methods that replace measured runs."""

from dataclasses import dataclass
from functools import cache

from laboratory.claims import tuned
from laboratory.claims.claim import Claim, Rule, Stage
from laboratory.claims.measured import SHIPPED, read_measured
from laboratory.claims.ranking import Ranking
from laboratory.claims.study import Side
from laboratory.claims.verdict import decide

SEEDS = 10
HONEST, TWIN, CHEAT = "random", "random-weighted", "oort"


@cache
def shipped():
    """Measured runs that fedsel includes."""
    return read_measured(SHIPPED)


@cache
def claims():
    return Claim.load()


@cache
def rankings():
    return Ranking.load()


@cache
def standing_rankings():
    """The rankings on the pages: the tuned ones that were run, and the untuned ones of the other workloads."""
    return tuned.standing_rankings(rankings(), tuned.Tuned.load(), shipped())


@cache
def verdicts():
    """Verdicts of all claims, from the included runs."""
    return decide(claims(), shipped())


@dataclass
class Runs:
    """Values of each method by seed, which replace measured runs."""

    of: dict

    def values(self, study, side, seed):
        found = self.of.get(side.strategy, {}).get(seed)
        return None if found is None else found if isinstance(found, dict) else {study.metrics[0].column: found}


def claim(name, claimed, other, metric="stable_accuracy", paper="P", effect=0.03, deviation=0.02, stages=None, **rule):
    stages = stages or {}
    rule = {"margin": 0.02, "power": 0.8} | rule
    return Claim(
        name=name,
        paper=paper,
        source="Table 1",
        sentence="S.",
        published="1",
        scale="protocol",
        settings={"weighting": "uniform", "rounds": 40},
        claimed=Side(claimed),
        other=Side(other),
        rule=Rule(metrics=metric if isinstance(metric, tuple) else (metric,), **rule),
        first_stage=Stage(SEEDS, effect=effect, deviation=deviation),
        **stages,
    )
