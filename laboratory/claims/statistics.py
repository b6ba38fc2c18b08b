"""Statistics of claims: one-sided tests, the test of heavy tails, and the power of tests over paired seeds.

References
----------
Student, "The Probable Error of a Mean", Biometrika 1908 (the t test). Wilcoxon, "Individual Comparisons by Ranking
Methods", Biometrics 1945 (the signed-rank test). Anscombe, Glynn, "Distribution of the Kurtosis Statistic b2 for Normal
Samples", Biometrika 1983 (the test of heavy tails). Schuirmann, "A Comparison of the Two One-Sided Tests Procedure and
the Power Approach for Assessing the Equivalence of Average Bioavailability", J. Pharmacokinetics and Biopharmaceutics
1987. Cohen, "Statistical Power Analysis for the Behavioral Sciences", 1988 (the noncentral t distribution).
DerSimonian, Laird, "Meta-analysis in Clinical Trials", Controlled Clinical Trials 1986 (random effects). Hartung,
Knapp, "A Refined Method for the Meta-analysis of Controlled Clinical Trials with Binary Outcome", Statistics in
Medicine 2001 (its interval).
"""

from collections.abc import Callable
from math import inf

import numpy as np
import scipy
from numpy.typing import ArrayLike

from simulation.workbench.comparison.statistics import LEVEL, ROUNDING, Estimate, Floats

FEWEST_FOR_TAILS = 20
"""With fewer values, the distribution of their kurtosis is not known well enough for a test."""
TAILS_LEVEL = 0.01
"""Error rate of the test of heavy tails."""
MOST_PAIRS = 1000
"""Largest number of pairs of seeds in a power analysis."""
SURE = 100.0
"""Largest effect size (mean / standard deviation) in a power analysis. With it a few pairs are already enough."""


def p_above(values: ArrayLike, threshold: float, *, ranks: bool = False) -> float:
    """One-sided p-value of the t test that the mean of `values` (n >= 2,) is above `threshold`.

    With `ranks` it is the exact signed-rank test (Wilcoxon) of their median, ties included, and values may be infinite.
    Without it, values that are all alike up to `ROUNDING` have p = 0 above the threshold, and 1 at or below it.
    """
    excess = np.asarray(values, np.float64) - threshold
    if ranks:
        excess = excess[excess != 0.0]
        return _p_signed_ranks(excess)
    rounding = ROUNDING * max(np.abs(values).max(), abs(threshold))
    if np.ptp(excess) <= rounding:
        return float(excess[0] <= rounding)
    return float(scipy.stats.ttest_1samp(excess, 0.0, alternative="greater").pvalue)


def _p_signed_ranks(excess: Floats) -> float:
    """Share of all choices of signs with which the positive values (n,) have as large a sum of ranks; ties share ranks.

    scipy counts the signs only without ties.
    """
    doubled = np.rint(2.0 * scipy.stats.rankdata(np.abs(excess))).astype(np.int64)
    share = np.ones(1)  # of the 2^n choices of signs, by twice the sum of the positive ranks
    for rank in doubled:
        share = (np.append(share, np.zeros(rank)) + np.append(np.zeros(rank), share)) / 2.0
    return min(1.0, float(share[doubled[excess > 0.0].sum() :].sum()))


def p_within(values: ArrayLike, limit: float) -> float:
    """P-value of two one-sided tests (`p_above`) that `values` (n >= 2,) are within plus or minus `limit`."""
    array = np.asarray(values, np.float64)
    return max(p_above(array, -limit), p_above(-array, -limit))


def pooled(means: ArrayLike, errors: ArrayLike) -> Estimate:
    """Mean effect over k >= 2 studies with `means` and standard `errors` > 0, both (k,), which differ truly as well.

    Random effects by DerSimonian and Laird; the 95% t interval is Hartung's and Knapp's, never narrowed by agreement.
    """
    y, fixed = np.asarray(means, np.float64), np.asarray(errors, np.float64) ** -2.0
    excess = float((fixed * (y - np.average(y, weights=fixed)) ** 2).sum()) - (y.size - 1)
    between = max(0.0, excess / float(fixed.sum() - (fixed**2).sum() / fixed.sum()))
    weights = 1.0 / (1.0 / fixed + between)
    mean = float(np.average(y, weights=weights))
    scale = max(1.0, float((weights * (y - mean) ** 2).sum()) / (y.size - 1))
    half = float(scipy.special.stdtrit(y.size - 1, 1.0 - LEVEL / 2.0) * np.sqrt(scale / weights.sum()))
    return Estimate(mean, mean - half, mean + half, y.size)


def heavy_tails(values: ArrayLike) -> bool:
    """True if the kurtosis of `values` (n,) is significantly above that of a normal sample; False below 20 values."""
    array = np.asarray(values, np.float64)
    if array.size < FEWEST_FOR_TAILS or np.ptp(array) == 0.0 or scipy.stats.kurtosis(array) <= 0.0:
        return False  # far below 0, the test's statistic has the wrong sign
    return bool(scipy.stats.kurtosistest(array, alternative="greater").pvalue < TAILS_LEVEL)


def one_sided_power(shift: float, deviation: float, seeds: int, level: float) -> float:
    """Power of a one-sided paired t test for a true mean `shift` above its threshold, with n = `seeds` >= 2 pairs."""
    if deviation == 0.0:
        return float(shift > 0.0)
    critical = scipy.stats.t.ppf(1.0 - level, seeds - 1)
    effect = min(shift / deviation, SURE)
    return float(scipy.stats.nct.sf(critical, seeds - 1, effect * np.sqrt(seeds)))


def equivalence_power(mean: float, margin: float, deviation: float, seeds: int, level: float) -> float:
    """Power of two one-sided tests for a true `mean` within plus or minus `margin`; 0 if it is not within."""
    if abs(mean) >= margin:
        return 0.0
    sides = (one_sided_power(margin - sign * mean, deviation, seeds, level) for sign in (1.0, -1.0))
    return max(0.0, sum(sides) - 1.0)


def seeds_for(shift: float, deviation: float, power: float, level: float = LEVEL) -> float:
    """Fewest seeds with which a difference `shift` beyond its threshold is found; infinite beyond `MOST_PAIRS`."""
    return _fewest(lambda seeds: one_sided_power(shift, deviation, seeds, level / 2), power)


def seeds_for_equivalence(mean: float, margin: float, deviation: float, power: float, level: float = LEVEL) -> float:
    """Fewest seeds with which two one-sided tests find a true difference `mean` within plus or minus `margin`."""
    return _fewest(lambda seeds: equivalence_power(mean, margin, deviation, seeds, level), power)


def _fewest(power_of: Callable[[int], float], power: float) -> float:
    if power_of(MOST_PAIRS) < power:
        return inf
    low, high = 2, MOST_PAIRS
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if power_of(middle) >= power else (middle + 1, high)
    return low
