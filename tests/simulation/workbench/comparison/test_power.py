"""Power of paired t tests, compared with printed tables and with simulation."""

from math import inf

import numpy as np
import pytest
import scipy

from simulation.workbench.comparison.statistics import (
    Estimate,
    Paired,
    one_sided_power,
    pairs_needed,
    seeds_for,
    seeds_for_equivalence,
)


@pytest.mark.parametrize(("d", "n"), [(0.2, 199), (0.5, 34), (0.8, 15), (1.0, 10), (1.2, 8)])
def test_seeds_are_those_of_cohens_tables(d, n):
    """Pairs for a two-sided paired t test at 0.05 with power 0.80 (Cohen 1988; G*Power 3.1)."""
    assert seeds_for(d, 1.0, 0.8) == n
    assert seeds_for(3.0 * d, 3.0, 0.8) == n


def test_power_is_the_share_of_simulated_tests_that_find_it():
    rng = np.random.default_rng(1)
    drawn = rng.normal(0.6, 1.0, (4000, 12))
    p = scipy.stats.ttest_1samp(drawn, 0.0, axis=1, alternative="greater").pvalue
    assert one_sided_power(0.6, 1.0, 12, 0.025) == pytest.approx(np.mean(p < 0.025), abs=0.025)


def test_no_number_of_seeds_finds_nothing():
    assert seeds_for(0.0, 1.0, 0.8) == inf
    assert seeds_for(-1.0, 1.0, 0.8) == inf
    assert seeds_for_equivalence(0.2, 0.1, 1.0, 0.8) == inf


def test_equivalence_needs_the_seeds_of_its_simulation():
    n = int(seeds_for_equivalence(0.0, 0.5, 1.0, 0.8))
    rng = np.random.default_rng(2)
    drawn = rng.normal(0.0, 1.0, (4000, n))
    test = scipy.stats.ttest_1samp
    p = np.maximum(
        test(drawn, -0.5, axis=1, alternative="greater").pvalue, test(drawn, 0.5, axis=1, alternative="less").pvalue
    )
    assert np.mean(p < 0.05) == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize(
    ("mean", "deviation", "comparisons", "pairs"),
    [
        (0.5, 1.0, 1, 34),
        (-1.0, 1.0, 1, 10),
        (1.0, 1.0, 5, 16),
        (2.0, 0.0, 1, 3),
        (0.05, 1.0, 1, None),
        (0, 1.0, 1, None),
    ],
)
def test_the_number_of_seeds_is_that_of_a_power_analysis(mean, deviation, comparisons, pairs):
    """R's power.t.test(delta, sd, power = 0.8, type = "paired") gives 33.37 for half a deviation, and 9.94 for one."""
    result = Paired(Estimate(mean, np.nan, np.nan, 2), 1.0, 0.5, deviation)
    assert pairs_needed(result, comparisons) == pairs
