"""Verdicts: a claim is decided by one-sided paired t tests, adjusted within its paper.

Two one-sided tests (Schuirmann 1987) against the margin can show "no difference". Otherwise one test uses the advantage
that confirms, and one the advantage that refutes. For each kind of test, Holm's adjustment bounds the family-wise error
of a paper's claims. The p-value adjusted over all papers is reported too.

A family has the claims of one stage and never uses the seeds of another. Superseded claims are a family of their own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Self

import numpy as np
import scipy

from simulation.comparison.statistics import LEVEL, Estimate, Floats, holm, t_interval
from simulation.laboratory.claims.claim import STAGES, Claim
from simulation.laboratory.claims.measured import Measured
from simulation.laboratory.claims.metrics import Metric

HOLDS, DOES_NOT, NO_DIFFERENCE, UNDECIDED = "holds", "does not hold", "no difference", "undecided"
NOT_RUN = "not run"
DECIDED = (HOLDS, DOES_NOT, NO_DIFFERENCE)


@dataclass(frozen=True)
class Pairs:
    """Paired values of a claim in one metric.

    Attributes
    ----------
    claimed, other : float64 (n,), values on the seeds that both sides have
    advantages : float64 (n,), in favour of the claimed side
    missed : number of runs of the claimed side, and of the other, that never reached their target
    """

    metric: Metric
    claimed: Floats
    other: Floats
    advantages: Floats
    missed: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Verdict:
    """Verdict on a claim in one metric, from the seeds of one stage.

    Attributes
    ----------
    advantage : mean and 95% interval, as a share saved or a difference; unadjusted
    p : p-value of the test that decided, or of the best one, adjusted within the paper
    ledger_p : the same, adjusted over all claims of the stage
    seeds_needed : seeds that would give a verdict within its paper's family, if the measured advantage is the true
        one; infinite: more than a thousand
    """

    word: str
    pairs: Pairs
    advantage: Estimate
    p: float
    seeds_needed: float
    ledger_p: float = 1.0


@dataclass(frozen=True)
class Standing:
    """Standing of a claim: its verdicts by stage, one per metric; empty for a stage that it does not have.

    Attributes
    ----------
    deciding : number of its metrics that decide; the later ones are only reported
    """

    deciding: int
    stages: Mapping[str, Sequence[Verdict]] = field(default_factory=dict)

    @property
    def stage(self) -> str:
        """Stage that gives the verdict: the second if it was run, else the first."""
        ran = "second_stage" in self.stages and self.word_in("second_stage") != NOT_RUN
        return "second_stage" if ran or "first_stage" not in self.stages else "first_stage"

    @property
    def verdicts(self) -> Sequence[Verdict]:
        """Verdicts of this stage, one per metric."""
        return self.stages[self.stage]

    @property
    def word(self) -> str:
        """Verdict on the claim: it holds if it holds in every metric that its sentence names."""
        return self.word_in(self.stage)

    @property
    def seeds_needed(self) -> float:
        """Seeds that would give a verdict in every undecided metric of the sentence; 0 if none is undecided."""
        found = self.verdicts[: self.deciding]
        return max((verdict.seeds_needed for verdict in found if verdict.word == UNDECIDED), default=0.0)

    def word_in(self, stage: str) -> str:
        """Verdict on the claim from the seeds of a stage."""
        words = {verdict.word for verdict in self.stages[stage][: self.deciding]}
        return next(word for word in (NOT_RUN, DOES_NOT, NO_DIFFERENCE, UNDECIDED, HOLDS) if word in words)


def decide(claims: Sequence[Claim], measured: Measured) -> dict[str, Standing]:
    """Standing of each claim, by name."""
    found: dict[str, dict[str, list[Verdict]]] = {claim.name: {} for claim in claims}
    for stage in STAGES:
        for old in (False, True):
            group = [claim for claim in claims if stage in claim.stages and bool(claim.superseded) == old]
            decided = _decide_stage(group, stage, measured)
            for claim in group:
                found[claim.name][stage] = decided.get(claim.name) or [_not_run(metric) for metric in claim.metrics]
    return {claim.name: Standing(len(claim.rule.metrics), found[claim.name]) for claim in claims}


def _decide_stage(claims: Sequence[Claim], stage: str, measured: Measured) -> dict[str, list[Verdict]]:
    """Verdicts on each claim, one per metric, from the seeds of a stage.

    A stage of fresh seeds has no verdict until all of them were run, because the claim states this number.
    """
    claims = [claim for claim in claims if stage == "first_stage" or _complete(claim, stage, measured)]
    measurements = [
        (claim, paired_values(claim, metric, measured, claim.stages[stage].range))
        for claim in claims
        for metric in claim.metrics
    ]
    tests = [Tested.of(claim, pairs) for claim, pairs in measurements if len(pairs.advantages) > 1]
    deciding = [test for test in tests if test.pairs.metric.key in test.claim.rule.metrics]
    over_all = {test.key: p for test, (_, p) in zip(deciding, _adjusted(deciding), strict=True)}
    judged: dict[tuple[str, str], Verdict] = {}
    for test in tests:
        if test.pairs.metric.key in test.claim.rule.beside:
            judged |= _judge([test])
    for paper in dict.fromkeys(claim.paper for claim in claims):
        judged |= _judge([test for test in deciding if test.claim.paper == paper])
    verdicts: dict[str, list[Verdict]] = {claim.name: [] for claim in claims}
    for claim, pairs in measurements:
        key = claim.name, pairs.metric.key
        unjudged = Verdict(UNDECIDED if any(pairs.missed) else NOT_RUN, pairs, t_interval(pairs.advantages), 1.0, inf)
        verdict = judged.get(key, unjudged)
        verdicts[claim.name].append(replace(verdict, ledger_p=over_all[key]) if key in over_all else verdict)
    return verdicts


def _complete(claim: Claim, stage: str, measured: Measured) -> bool:
    runs = [measured.values(claim, side, seed) for seed in claim.stages[stage].range for side in claim.sides]
    return all(values is not None for values in runs)


def _not_run(metric: Metric) -> Verdict:
    nothing = np.zeros(0)
    return Verdict(NOT_RUN, Pairs(metric, nothing, nothing, nothing), t_interval(nothing), 1.0, inf)


def paired_values(claim: Claim, metric: Metric, measured: Measured, seeds: Sequence[int]) -> Pairs:
    """Values of both sides on the `seeds` that both have.

    The whole cost of a run that missed the target counts as its cost to the target. A seed on which both sides missed
    it is left out.
    """
    every = ([measured.values(claim, side, seed) for side in claim.sides] for seed in seeds)
    pairs = [[values for values in both if values is not None] for both in every if None not in both]

    def numbers(key: str) -> Floats:
        return np.array([[values.get(key) for values in both] for both in pairs], np.float64).reshape(-1, 2)

    found = numbers(metric.column)
    absent = ~np.isfinite(found)
    if metric.whole:
        one_missed = absent.sum(axis=1, keepdims=True) == 1
        found = np.where(absent & one_missed, numbers(metric.whole), found)
    advantages = np.array([metric.of_pair(*row) for row in found.tolist()], np.float64)
    claimed, other = found[np.isfinite(advantages)].T
    first, second = absent.sum(axis=0).tolist()
    return Pairs(metric, claimed, other, advantages[np.isfinite(advantages)], (first, second))


@dataclass(frozen=True)
class Tested:
    """Tests of a claim in one metric, with n >= 2 pairs.

    Attributes
    ----------
    directed : unadjusted p-value of the test that the claim holds or does not, whichever is smaller
    alike : unadjusted p-value of the test that there is no difference
    """

    claim: Claim
    pairs: Pairs
    directed: float
    alike: float

    @classmethod
    def of(cls, claim: Claim, pairs: Pairs) -> Self:
        """Carry out the tests."""
        rule, metric = claim.rule, pairs.metric
        above = p_above(pairs.advantages, metric.advantage(rule.confirm))
        below = p_above(-pairs.advantages, -metric.advantage(rule.refute))
        alike = p_within(pairs.advantages, metric.limit(rule.margin))
        return cls(claim, pairs, min(1.0, 2.0 * min(above, below)), alike)

    @property
    def key(self) -> tuple[str, str]:
        """Names of the claim and of the metric."""
        return self.claim.name, self.pairs.metric.key


def _adjusted(tests: Sequence[Tested]) -> list[tuple[str, float]]:
    """Verdict and p-value of each of the tests that are adjusted together."""
    found = []
    directed, alike = ([getattr(test, kind) for test in tests] for kind in ("directed", "alike"))
    for test, p, p_alike in zip(tests, holm(directed), holm(alike), strict=True):
        rule, pairs = test.claim.rule, test.pairs
        ahead = float(pairs.advantages.mean()) > pairs.metric.advantage(rule.confirm)
        alike_holds = p_alike < LEVEL and pairs.missed[0] == pairs.missed[1]
        if alike_holds:
            word = NO_DIFFERENCE
        elif p < LEVEL and pairs.missed[0 if ahead else 1] == 0:
            word = HOLDS if ahead else DOES_NOT
        else:
            word = UNDECIDED
        if rule.equal:
            word = {NO_DIFFERENCE: HOLDS, HOLDS: DOES_NOT}.get(word, word)
        found.append((word, p_alike if alike_holds else min(p, p_alike) if word == UNDECIDED else p))
    return found


def _judge(tests: Sequence[Tested]) -> dict[tuple[str, str], Verdict]:
    """Verdicts by claim and metric, from tests that are adjusted together."""
    verdicts = {}
    for test, (word, p) in zip(tests, _adjusted(tests), strict=True):
        pairs = test.pairs
        mean, deviation = float(pairs.advantages.mean()), float(pairs.advantages.std(ddof=1))
        needed = test.claim.rule.needed(pairs.metric, mean, deviation, len(tests))
        verdicts[test.key] = Verdict(word, pairs, stated_interval(pairs), p, needed)
    return verdicts


def p_above(values: Floats, threshold: float) -> float:
    """One-sided p-value of the t test that the mean of `values` (n >= 2,) is above `threshold`.

    Identical values have p = 0 above the threshold, and 1 at or below it.
    """
    if np.ptp(values) == 0.0:
        return float(values[0] <= threshold)
    return float(scipy.stats.ttest_1samp(values, threshold, alternative="greater").pvalue)


def p_within(values: Floats, limit: float) -> float:
    """P-value of two one-sided t tests that the mean of `values` is within plus or minus `limit`."""
    return max(p_above(values, -limit), p_above(-values, -limit))


def stated_interval(pairs: Pairs) -> Estimate:
    """Mean advantage and its 95% interval, as a share saved or a difference."""
    found, metric = t_interval(pairs.advantages), pairs.metric
    return Estimate(metric.stated(found.mean), metric.stated(found.low), metric.stated(found.high), found.n)
