"""Statistics of claims, by hand; the power of paired t tests, compared with printed tables and with simulation."""

import numpy as np
import pytest
import scipy

from laboratory.claims import statistics
from laboratory.claims.statistics import pooled, seeds_for, seeds_for_equivalence


@pytest.mark.parametrize(("d", "n"), [(0.2, 199), (0.5, 34), (0.8, 15), (1.0, 10), (1.2, 8)])
def test_seeds_are_those_of_cohens_tables(d, n):
    """Pairs for a two-sided paired t test at 0.05 with power 0.80 (Cohen 1988; G*Power 3.1)."""
    assert seeds_for(d, 1.0, 0.8) == n
    assert seeds_for(3.0 * d, 3.0, 0.8) == n


@pytest.mark.parametrize(
    ("means", "errors", "mean", "half"),
    [
        # Q = 2 with one degree of freedom: 1 between the studies, so weights of 1/2, and t = 12.706.
        ([1.0, 3.0], [1.0, 1.0], 2.0, 12.706),
        # Q = 0.2 is below 1: nothing between them; weights 1 and 4; 1 / sqrt(5) is not narrowed.
        ([1.0, 1.5], [1.0, 0.5], 1.4, 12.706 / 5**0.5),
    ],
)
def test_random_effects_by_hand(means, errors, mean, half):
    found = pooled(means, errors)
    assert (found.mean, found.high - mean, found.n) == (pytest.approx(mean), pytest.approx(half, abs=1e-3), 2)


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
    ("values", "threshold", "ranks", "p"),
    [
        # t = 2 sqrt(3) with 2 degrees of freedom: (1 - t / sqrt(t^2 + 2)) / 2; and t = sqrt(3) above 1.
        ([1.0, 2.0, 3.0], 0.0, False, 0.037090),
        ([1.0, 2.0, 3.0], 1.0, False, 0.112702),
        ([0.5, 0.5], 0.5, False, 1.0),
        ([0.5, 0.5], 0.4, False, 0.0),
        # All n signs are positive once in 2^n; a difference of 0 is left out.
        ([1.0, 2.0, 3.0], 0.0, True, 1 / 8),
        ([1.0, 2.0, np.inf], 1.0, True, 1 / 4),
        ([1.0, 1.0], 1.0, True, 1.0),
        # Ranks 1.5, 1.5, 3.5, 3.5, 5: of the 32 choices of signs, 3 have a sum of at least 13.5.
        ([1.0, -1.0, 2.0, 2.0, 3.0], 0.0, True, 3 / 32),
        # 0.9 - 0.8, 0.8 - 0.7 and 0.7 - 0.6 differ in their last bits.
        ([0.9 - 0.8, 0.8 - 0.7, 0.7 - 0.6], 0.1, False, 1.0),
        ([0.9 - 0.8, 0.8 - 0.7, 0.7 - 0.6], 0.0, False, 0.0),
    ],
)
def test_the_one_sided_test(values, threshold, ranks, p):
    assert statistics.p_above(values, threshold, ranks=ranks) == pytest.approx(p, abs=1e-6)


@pytest.mark.parametrize(("values", "p"), [([-1.0, 0.0, 1.0], 0.017549), ([0.0, 1.0, 2.0], 0.037090)])
def test_values_are_within_a_limit_if_both_sides_are(values, p):
    """t = 3 sqrt(3) and 2 sqrt(3) to the nearer limit of 3."""
    assert statistics.p_within(values, 3.0) == pytest.approx(p, abs=1e-6)
    assert statistics.p_within(np.negative(values), 3.0) == pytest.approx(p, abs=1e-6)
