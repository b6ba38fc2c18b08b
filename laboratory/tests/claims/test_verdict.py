"""Verdicts: computed by hand, in limiting cases, and their error rates."""

from dataclasses import replace
from itertools import product
from math import inf, log

import numpy as np
import pytest
import scipy

from laboratory.claims.claim import FRESH, Stage
from laboratory.claims.statistics import heavy_tails
from laboratory.claims.verdict import DOES_NOT, HOLDS, NOT_RUN, SMALL, UNDECIDED, decide
from laboratory.tests.claims.fakes import CHEAT, HONEST, SEEDS, TWIN, Runs, claim


def word(claims, runs, name):
    return decide(claims, runs)[name].word


def test_error_rates_of_the_verdicts():
    """In 95% of 40 repetitions a claim that is true by construction holds, its opposite does not hold, and equal sides
    show no difference.
    """
    claims = [claim("true", CHEAT, HONEST), claim("false", HONEST, CHEAT), claim("twins", TWIN, HONEST)]
    rng, right = np.random.default_rng(0), dict.fromkeys(("true", "false", "twins"), 0)
    for _ in range(40):
        shared = rng.normal(0.8, 0.05, SEEDS)
        noise = {name: rng.normal(0.0, 0.01, SEEDS) for name in (HONEST, TWIN, CHEAT)}
        scores = {name: shared + noise[name] + 0.04 * (name == CHEAT) for name in noise}
        runs = Runs({name: dict(enumerate(values, start=1)) for name, values in scores.items()})
        expected = {"true": HOLDS, "false": DOES_NOT, "twins": SMALL}
        for name, found in decide(claims, runs).items():
            right[name] += found.word == expected[name]
    assert min(right.values()) >= 38, right


def test_error_rates_of_costs():
    claims = [claim("true", CHEAT, HONEST, "time_s", effect=0.2, deviation=0.1, margin=0.1)]
    claims += [claim("twins", TWIN, HONEST, "time_s", effect=0.2, deviation=0.1, margin=0.1)]
    rng, right = np.random.default_rng(3), 0
    for _ in range(40):
        shared = rng.lognormal(5.0, 0.5, SEEDS)
        noise = {name: rng.lognormal(0.0, 0.05, SEEDS) for name in (HONEST, TWIN, CHEAT)}
        costs = {name: shared * noise[name] * (0.75 if name == CHEAT else 1.0) for name in noise}
        found = decide(claims, Runs({name: dict(enumerate(values, start=1)) for name, values in costs.items()}))
        right += (found["true"].word, found["twins"].word) == (HOLDS, SMALL)
    assert right >= 38


def test_share_saved_is_of_geometric_means():
    """Costs of 50 and 100 on one seed, 80 and 100 on the other: ratio sqrt(0.4)."""
    runs = Runs({CHEAT: {1: 50.0, 2: 80.0}, HONEST: {1: 100.0, 2: 100.0}})
    (verdict,) = decide([claim("c", CHEAT, HONEST, "time_s", effect=0.5, deviation=0.3)], runs)["c"].verdicts
    assert verdict.advantage.mean == pytest.approx(1.0 - 0.4**0.5)
    assert verdict.pairs.advantages == pytest.approx([log(2.0), log(1.25)])


def missed(cost, whole):
    return {"time_to_target_s": cost, "time_s": whole}


def test_a_target_missed_by_the_claimed_side_confirms_nothing():
    """The cost of such a run is at least that of the whole run. This can refute a claim, but never confirm it."""
    rule = {"metric": "time_to_target_s", "effect": 0.5, "deviation": 0.4}
    claims = [claim("c", CHEAT, HONEST, **rule), claim("d", HONEST, CHEAT, **rule)]
    near = {seed: missed(100.0 + seed, 500.0) for seed in range(1, SEEDS + 1)}
    never = {seed: missed(None, 500.0) for seed in range(1, SEEDS + 1)}
    found = decide(claims, Runs({CHEAT: never, HONEST: near}))
    assert (found["c"].word, found["d"].word) == (DOES_NOT, HOLDS)
    assert found["c"].verdicts[0].pairs.missed == (SEEDS, 0)
    cheap = {seed: missed(None, 20.0) for seed in range(1, SEEDS + 1)}
    found = decide(claims, Runs({CHEAT: cheap, HONEST: near}))
    assert (found["c"].word, found["d"].word) == (UNDECIDED, UNDECIDED)


def signed_rank_p(values):
    """One-sided p of the signed-rank test by counting: the share of all signs with a sum of positive ranks as large."""
    ranks = scipy.stats.rankdata(np.abs(values))
    sums = [sum(ranks[np.array(signs)]) for signs in product((False, True), repeat=len(values))]
    return np.mean(np.array(sums) >= ranks[np.array(values) > 0].sum())


@pytest.mark.parametrize(("lost", "expected"), [(1, DOES_NOT), (2, UNDECIDED)])
def test_a_missed_run_of_the_side_that_is_ahead_counts_as_its_worst(lost, expected):
    """The other side is ahead on 11 or 10 of 12 seeds. Elsewhere its cost is unknown: the largest ranks against it."""
    seeds = range(FRESH, FRESH + 12)
    slow = {seed: missed(200.0 + seed - FRESH, 500.0) for seed in seeds}
    fast = {seed: missed(100.0, 500.0) if seed >= FRESH + lost else missed(None, 150.0) for seed in seeds}
    stages = {"second_stage": Stage(12, FRESH)}
    stated = claim("c", CHEAT, HONEST, "time_to_target_s", effect=0.5, deviation=0.4, stages=stages)
    (verdict,) = decide([stated], Runs({CHEAT: slow, HONEST: fast}))["c"].verdicts
    assert verdict.word == expected
    against = [log((200.0 + n) / 100.0) for n in range(lost, 12)] + [-inf] * lost
    assert verdict.p == pytest.approx(2.0 * signed_rank_p(against))
    assert verdict.pairs.by_ranks


def test_ranks_decide_where_tails_are_heavy():
    """Of 40 advantages 39 are small and alternate, and one is huge: the kurtosis of a normal sample is far below."""
    values = (0.01 + 1e-4 * np.arange(40)) * np.array([1.0, -1.0] * 20)
    heavy = values.copy()
    heavy[0] = 5.0
    assert (heavy_tails(values), heavy_tails(heavy), heavy_tails(heavy[:19])) == (False, True, False)
    stated = claim("c", CHEAT, HONEST, margin=1e-5, stages={"second_stage": Stage(40, FRESH)})
    base = dict.fromkeys(stated.second_stage.range, 0.0)
    runs = {CHEAT: dict(zip(base, heavy, strict=True)), HONEST: base}
    (verdict,) = decide([stated], Runs(runs))["c"].verdicts
    assert (verdict.word, verdict.pairs.by_ranks) == (UNDECIDED, True)


def test_all_claims_and_stages_of_a_paper_are_adjusted_together():
    """p = 0.03: the claim holds alone, and is undecided among four tests, be they superseded or of another stage.

    Claims of another paper, and repetitions, do not count.
    """
    values = np.array([0.002, 0.004, 0.010, 0.001, -0.001, 0.003, 0.009, -0.002, 0.012, 0.000]) * 10.0
    values = values - values.mean() + 2.55 * values.std(ddof=1) / 10**0.5
    noisy = dict(enumerate([1.0, -1.0] * 5, start=1)) | dict(enumerate([1.0, -1.0] * 5, start=FRESH))
    runs = Runs({CHEAT: dict(enumerate(values, start=1)), TWIN: noisy, HONEST: dict.fromkeys(noisy, 0.0)})
    rule = {"margin": 1e-6, "effect": 0.05, "deviation": 0.05}
    one = claim("one", CHEAT, HONEST, **rule)

    def beside(paper="P", superseded="", **stages):
        made = [claim(f"other-{index}", TWIN, HONEST, paper=paper, stages=stages, **rule) for index in range(3)]
        return [replace(other, superseded=superseded, superseded_by=superseded) for other in made]

    assert word([one], runs, "one") == HOLDS
    assert word([one, *beside()], runs, "one") == UNDECIDED
    assert word([one, *beside(superseded="one")], runs, "one") == UNDECIDED
    assert word([one, *beside(second_stage=Stage(SEEDS, FRESH))[:1]], runs, "one") == UNDECIDED
    assert word([one, *beside(paper="Q")], runs, "one") == HOLDS
    again = replace(one, again=Stage(SEEDS, FRESH))
    assert word([again, *beside(paper="Q")], runs, "one") == HOLDS


@pytest.mark.parametrize(
    ("shift", "expected", "small"),
    [
        (0.010, HOLDS, True),
        (-0.010, DOES_NOT, True),
        (0.0, SMALL, False),
        (0.1, HOLDS, False),
    ],
)
def test_the_side_that_is_ahead_comes_before_the_margin(shift, expected, small):
    """A side that is ahead on every seed is never said to be as good as the other. The margin is 0.02."""
    rows = {seed: 0.8 + shift + 0.001 * (-1) ** seed for seed in range(1, SEEDS + 1)}
    stated = claim("c", CHEAT, HONEST)
    (verdict,) = decide([stated], Runs({CHEAT: rows, HONEST: dict.fromkeys(rows, 0.8)}))["c"].verdicts
    assert (verdict.word, verdict.small) == (expected, small)


@pytest.mark.parametrize(("shift", "expected"), [(0.0, HOLDS), (0.01, HOLDS), (0.02, UNDECIDED), (0.1, DOES_NOT)])
def test_a_claim_of_equality_goes_by_the_margin(shift, expected):
    """Margin 0.02: it holds within, also if a side is ahead on every seed, and does not hold beyond."""
    rule = {"effect": 0.0, "equal": True, "margin": 0.02, "deviation": 0.01}
    rows = {seed: 0.8 + shift + 0.002 * (-1) ** seed for seed in range(1, SEEDS + 1)}
    runs = Runs({TWIN: rows, HONEST: dict.fromkeys(rows, 0.8)})
    assert word([claim("c", TWIN, HONEST, **rule)], runs, "c") == expected
    assert word([claim("c", HONEST, TWIN, **rule)], runs, "c") == expected


def test_a_claim_holds_if_it_holds_in_every_metric():
    """The claimed side is ahead in accuracy on all seeds, and ahead, behind or neither in the clients' accuracy."""
    both, rng = ("stable_accuracy", "final_client_accuracy"), np.random.default_rng(5)
    noise = rng.normal(0.0, 0.01, SEEDS)
    for second, expected in ((0.1, HOLDS), (-0.1, DOES_NOT), (0.0, SMALL)):
        ahead = {
            seed: {"stable_accuracy": 0.9 + noise[seed - 1], "final_client_accuracy": 0.5 + second + noise[seed - 1]}
            for seed in range(1, SEEDS + 1)
        }
        base = {seed: {"stable_accuracy": 0.8, "final_client_accuracy": 0.5} for seed in ahead}
        (standing,) = decide([claim("c", CHEAT, HONEST, both)], Runs({CHEAT: ahead, HONEST: base})).values()
        assert standing.verdicts[0].word == HOLDS
        assert standing.word == expected


def test_the_second_stage_decides_alone_and_only_when_it_is_whole():
    """The claimed side is behind on the first seeds, and ahead on the fresh ones."""
    first = {seed: 0.7 + 0.001 * seed for seed in range(1, SEEDS + 1)}
    fresh = {seed: 0.9 + 0.001 * (seed - FRESH) for seed in range(FRESH, FRESH + 5)}
    base = dict.fromkeys([*first, *fresh], 0.8)
    stated = claim("c", CHEAT, HONEST, stages={"second_stage": Stage(5, FRESH)})
    assert stated.seeds == [*first, *fresh]
    (whole,) = decide([stated], Runs({CHEAT: first | fresh, HONEST: base})).values()
    assert (whole.word, whole.word_in("first_stage"), whole.verdicts[0].pairs.advantages.size) == (HOLDS, DOES_NOT, 5)
    del fresh[FRESH + 2]
    (part,) = decide([stated], Runs({CHEAT: first | fresh, HONEST: base})).values()
    assert (part.word, part.word_in("second_stage")) == (DOES_NOT, NOT_RUN)


def test_seeds_that_would_decide_count_holm():
    """A mean of half a deviation needs 34 pairs alone (Cohen's table), and more among four tests (level 0.00625)."""
    values = np.array([1.0, -1.0] * 5)
    values = values / values.std(ddof=1) + 0.5
    runs = Runs({CHEAT: dict(enumerate(values, start=1)), HONEST: dict.fromkeys(range(1, SEEDS + 1), 0.0)})
    rule = {"margin": 0.01, "effect": 2.0, "deviation": 1.0}
    four = [claim(f"c{index}", CHEAT, HONEST, **rule) for index in range(4)]
    assert decide(four[:1], runs)["c0"].seeds_needed == 34
    needed = decide(four, runs)["c0"].seeds_needed
    power = [
        scipy.stats.nct.sf(scipy.stats.t.ppf(1.0 - 0.05 / 8, n - 1), n - 1, 0.5 * n**0.5) for n in (needed - 1, needed)
    ]
    assert power[0] < 0.8 <= power[1]
