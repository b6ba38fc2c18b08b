"""Verdicts: a claim is decided by one-sided paired tests, adjusted within its paper.

Order: the test of which side is ahead comes first. Only if it does not decide, two one-sided tests (Schuirmann 1987)
may show that the advantage is smaller than the margin. If both succeed, the side that is ahead gives the verdict, and
`small` says the rest. A claim that both sides are alike is the exception: it holds if the advantage is smaller than the
margin, and does not hold if a side is ahead by more than the margin.

Tests: t tests. Signed-rank tests (Wilcoxon) decide if a run missed its target or the advantages have heavy tails. The
advantage of a run that missed is known from one side only, so each test takes the worst that it can be.

Family: for each kind of test, Holm's adjustment bounds the family-wise error over all tests of a paper's claims, in
both stages and with the superseded claims. The p-value adjusted over all papers is reported too. Repetitions are apart.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np

from laboratory.claims.claim import STAGES, Claim
from laboratory.claims.measured import Measured
from laboratory.claims.metrics import ClaimMeasure
from laboratory.claims.statistics import heavy_tails, p_above
from simulation.workbench.comparison.statistics import LEVEL, Estimate, Floats, holm, t_interval

HOLDS, DOES_NOT, SMALL, UNDECIDED = "holds", "does not hold", "smaller than the margin", "undecided"
NOT_RUN = "not run"
DECIDED = (HOLDS, DOES_NOT, SMALL)
AGAIN = "again"


@dataclass(frozen=True)
class Pairs:
    """Paired values of a claim in one metric.

    Attributes
    ----------
    claimed, other : float64 (n,), values on the seeds that both sides have
    advantages : float64 (n,), in favour of the claimed side; a run that missed its target counts with its whole cost
    lowest, highest : float64 (n,), bounds of the advantages; infinite where a run missed its target
    missed : number of runs of the claimed side, and of the other, that never reached their target
    both : number of seeds on which both sides missed it, which are left out
    """

    metric: ClaimMeasure
    claimed: Floats
    other: Floats
    advantages: Floats
    lowest: Floats
    highest: Floats
    missed: tuple[int, int] = (0, 0)
    both: int = 0

    @property
    def by_ranks(self) -> bool:
        """True if signed-rank tests decide: a run missed its target, or the advantages have heavy tails."""
        return any(self.missed) or heavy_tails(self.advantages)

    def interval(self) -> Estimate:
        """Mean advantage and its 95% t interval, unadjusted, as a share saved or a difference."""
        found, stated = t_interval(self.advantages), self.metric.stated
        return Estimate(stated(found.mean), stated(found.low), stated(found.high), found.n)


@dataclass(frozen=True)
class Verdict:
    """Verdict on a claim in one metric, from the seeds of one stage.

    Attributes
    ----------
    p : p-value of the test that decided, or of the best one, adjusted within the paper
    seeds_needed : seeds with which t tests would give a verdict within its paper's family, if the measured advantage is
        the true one; infinite: more than a thousand, or ranks decide
    ledger_p : the same as `p`, adjusted over the claims of all papers
    small : True if a side is ahead by less than the margin
    """

    word: str
    pairs: Pairs
    p: float = 1.0
    seeds_needed: float = inf
    ledger_p: float = 1.0
    small: bool = False

    @property
    def advantage(self) -> Estimate:
        """Mean advantage and its 95% interval."""
        return self.pairs.interval()


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
        return next(word for word in (NOT_RUN, DOES_NOT, SMALL, UNDECIDED, HOLDS) if word in words)


def decide(claims: Sequence[Claim], measured: Measured) -> dict[str, Standing]:
    """Standing of each claim, by name."""
    found: dict[str, dict[str, list[Verdict]]] = {claim.name: {} for claim in claims}
    tests: list[Tested] = []
    for claim in claims:
        for stage in claim.stages:
            every = [paired_values(claim, metric, measured, stage) for metric in claim.metrics]
            found[claim.name][stage] = [Verdict(UNDECIDED if any(pairs.missed) else NOT_RUN, pairs) for pairs in every]
            tests += [Tested.of(claim, stage, i, pairs) for i, pairs in enumerate(every) if pairs.advantages.size > 1]
    for again in (False, True):
        ledger = [test for test in tests if test.adjusted and (test.stage == AGAIN) == again]
        over_all = dict(zip(map(id, ledger), _adjusted(ledger), strict=True))
        papers = dict.fromkeys(test.claim.paper for test in ledger)
        families = [[test for test in ledger if test.claim.paper == paper] for paper in papers]
        for family in families + [[test] for test in tests if not again and not test.adjusted]:
            for test, adjusted in zip(family, _adjusted(family), strict=True):
                verdict = test.verdict(*adjusted, len(family), over_all.get(id(test), adjusted))
                found[test.claim.name][test.stage][test.index] = verdict
    return {claim.name: Standing(len(claim.rule.metrics), found[claim.name]) for claim in claims}


def paired_values(claim: Claim, metric: ClaimMeasure, measured: Measured, stage: str) -> Pairs:
    """Values of both sides on the seeds of a stage that both have.

    A stage of fresh seeds has no values until all of them were run, because the claim states this number. A seed on
    which both sides missed the target is left out.
    """
    every = [[measured.values(claim, side, seed) for side in claim.sides] for seed in claim.stages[stage].range]
    pairs = [[values for values in both if values is not None] for both in every if None not in both]
    if stage != STAGES[0] and len(pairs) < len(every):
        pairs = []

    def numbers(key: str) -> Floats:
        return np.array([[values.get(key) for values in both] for both in pairs], np.float64).reshape(-1, 2)

    found = numbers(metric.column)
    absent = ~np.isfinite(found)
    if metric.whole:
        found = np.where(absent & ~absent.all(axis=1, keepdims=True), numbers(metric.whole), found)
    advantages = np.array([metric.of_pair(*row) for row in found.tolist()], np.float64)
    kept = np.isfinite(advantages)
    lowest, highest = np.where(absent[:, 0], -inf, advantages), np.where(absent[:, 1], inf, advantages)
    claimed, other = found[kept].T
    first, second = absent.sum(axis=0).tolist()
    both = int(absent.all(axis=1).sum())
    return Pairs(metric, claimed, other, advantages[kept], lowest[kept], highest[kept], (first, second), both)


@dataclass(frozen=True)
class Tested:
    """Tests of a claim in the metric at position `index`, with n >= 2 pairs, in one stage.

    Attributes
    ----------
    directed : unadjusted p-value of the test that the claimed side, or the other, is ahead, whichever is smaller
    ahead : True if the claimed side is the one that is tested to be ahead
    alike : unadjusted p-value of the test that the advantage is smaller than the margin
    """

    claim: Claim
    stage: str
    index: int
    pairs: Pairs
    directed: float
    ahead: bool
    alike: float

    @classmethod
    def of(cls, claim: Claim, stage: str, index: int, pairs: Pairs) -> "Tested":
        """Carry out the tests."""
        threshold, limit = claim.rule.threshold(pairs.metric), pairs.metric.limit(claim.rule.margin)
        sides, ranks = (pairs.lowest, -pairs.highest), pairs.by_ranks
        above, below = (p_above(side, threshold, ranks=ranks) for side in sides)
        alike = max(p_above(side, -limit, ranks=ranks) for side in sides)
        return cls(claim, stage, index, pairs, min(1.0, 2.0 * min(above, below)), above < below, alike)

    @property
    def adjusted(self) -> bool:
        """True if the test is adjusted with the others of its paper."""
        return self.index < len(self.claim.rule.tested)

    def verdict(self, p: float, alike: float, comparisons: int, over_all: tuple[float, float]) -> Verdict:
        """Verdict from the adjusted p-values of both tests: among `comparisons` of the paper, and over all papers."""
        rule, pairs = self.claim.rule, self.pairs
        kinds = {HOLDS if self.ahead else DOES_NOT: 0, SMALL: 1}
        if rule.equal:
            kinds = {HOLDS: 1, DOES_NOT: 0}
        word = next((word for word, kind in kinds.items() if (p, alike)[kind] < LEVEL), UNDECIDED)
        shown, shown_over_all = (min(of) if word == UNDECIDED else of[kinds[word]] for of in ((p, alike), over_all))
        needed = inf
        if not pairs.by_ranks:
            mean, deviation = float(pairs.advantages.mean()), float(pairs.advantages.std(ddof=1))
            needed = rule.needed(pairs.metric, mean, deviation, comparisons)
        small = word in (HOLDS, DOES_NOT) and not rule.equal and alike < LEVEL
        return Verdict(word, pairs, shown, needed, shown_over_all, small)


def _adjusted(tests: Sequence[Tested]) -> list[tuple[float, float]]:
    """P-values `directed` and `alike` of the tests, each kind adjusted (Holm)."""
    return list(zip(*(holm([getattr(test, kind) for test in tests]) for kind in ("directed", "alike")), strict=True))
