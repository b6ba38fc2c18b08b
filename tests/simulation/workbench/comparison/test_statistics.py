"""Statistics. Expected values are computed by hand, by brute force, or from the source that the test names."""

import numpy as np
import pytest

from simulation.workbench.comparison import statistics
from simulation.workbench.comparison.statistics import paired, t_interval

SLEEP = ([0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0], [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4])
"""Student's sleep data (1908), as R's `sleep` has them: t.test(paired) gives the numbers below."""


def test_the_interval_and_the_paired_test_are_student_s():
    result = paired(SLEEP[1], SLEEP[0])
    assert result.difference.mean == pytest.approx(1.58)
    assert result.difference.low == pytest.approx(0.7001142)
    assert result.difference.high == pytest.approx(2.4598858)
    assert result.p == pytest.approx(0.002833, abs=5e-7)
    assert result.other_mean == pytest.approx(0.75)
    assert result.more_than_noise(result.p)
    assert t_interval(np.subtract(*SLEEP[::-1])) == result.difference
    assert paired([1.0, 3.0], [1.0, 1.0]).deviation == pytest.approx(2**0.5)


def test_an_interval_needs_two_values():
    """t(0.975, 1) = 12.7062: 1 +- 12.7062 sqrt(2) / sqrt(2)."""
    two = t_interval([0.0, 2.0])
    assert (two.mean, two.low, two.high) == pytest.approx((1.0, 1.0 - 12.7062, 1.0 + 12.7062), abs=1e-4)
    one, none = t_interval([3.0]), t_interval([])
    assert (one.mean, one.n) == (3.0, 1)
    assert np.isnan([one.low, one.high, none.mean, none.low]).all()


def test_a_pair_with_a_missing_number_is_left_out():
    result = paired([1.0, np.nan, 3.0, 4.0], [0.0, 5.0, np.nan, 1.0])
    assert (result.difference.n, result.difference.mean, result.other_mean) == (2, 2.0, 0.5)
    assert not result.more_than_noise(0.0)
    nothing = paired([np.nan], [1.0])
    assert (nothing.difference.n, nothing.p) == (0, 1.0)
    assert np.isnan(nothing.other_mean)


@pytest.mark.parametrize(("by", "p"), [(0.0, 1.0), (-2.0, 0.0), (0.1, 0.0)])
def test_differences_that_are_all_alike_have_no_width(by, p):
    result = paired([5.0 + by, 7.0 + by, 1.0 + by], [5.0, 7.0, 1.0])
    found = result.difference
    assert [found.low, found.mean, found.high] == pytest.approx([by] * 3, abs=1e-14)
    assert result.p == p
    assert result.more_than_noise(p) == (by != 0.0)


def test_holm_against_the_textbook_example():
    """Wikipedia, "Holm-Bonferroni method": 0.01, 0.04, 0.03, 0.005 become 0.03, 0.06, 0.06, 0.02."""
    assert statistics.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert statistics.holm([0.7, 0.6]) == [1.0, 1.0]
    assert statistics.holm([]) == []


@pytest.mark.parametrize(("counts", "jain"), [([3, 3, 3], 1.0), ([0, 0, 0, 8], 0.25), ([1, 2], 0.9), ([0, 0], 1.0)])
def test_evenness_by_hand(counts, jain):
    assert statistics.jain(counts) == pytest.approx(jain)


def test_step_values_are_the_last_known():
    rng = np.random.default_rng(5)
    x, y = np.sort(rng.integers(0, 50, 12)).astype(float), rng.random(12)
    grid = np.append(rng.uniform(-5, 60, 40), x)
    for point, value in zip(grid, statistics.step_values(x, y, grid), strict=True):
        known = [height for at, height in zip(x, y, strict=True) if at <= point]
        assert value == known[-1] if known else np.isnan(value)


@pytest.mark.parametrize(("count", "expected"), [(3, 0.0), (10, 0.0), (11, 0.5), (20, 0.5), (21, 1.0)])
def test_the_worst_tenth_is_rounded_up(count, expected):
    assert statistics.worst_tenth(np.arange(count)[::-1]) == expected
