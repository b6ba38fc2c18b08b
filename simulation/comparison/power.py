"""Power of paired t tests: seeds that a difference needs to be told from seed noise.

References
----------
Cohen, "Statistical Power Analysis for the Behavioral Sciences", 1988 (the noncentral t distribution). Schuirmann, "A
Comparison of the Two One-Sided Tests Procedure and the Power Approach for Assessing the Equivalence of Average
Bioavailability", J. Pharmacokinetics and Biopharmaceutics 1987.
"""

from collections.abc import Callable
from math import inf

import numpy as np
import scipy

from simulation.comparison.statistics import FEWEST_PAIRS, LEVEL, Paired

POWER = 0.8
"""Probability with which a difference that is there should be found."""
MOST_PAIRS = 1000
"""More pairs of seeds than these are not counted."""
SURE = 100.0
"""Mean of differences in their deviations with which few pairs are enough; no larger one is told apart from it."""


def one_sided_power(shift: float, deviation: float, seeds: int, level: float) -> float:
    """Power of a one-sided paired t test for a true mean `shift` above its threshold, with n = `seeds` >= 2 pairs."""
    if deviation == 0.0:
        return float(shift > 0.0)
    critical = scipy.stats.t.ppf(1.0 - level, seeds - 1)
    effect = min(shift / deviation, SURE)
    return float(scipy.stats.nct.sf(critical, seeds - 1, effect * np.sqrt(seeds)))


def seeds_for(shift: float, deviation: float, power: float, level: float = LEVEL) -> float:
    """Fewest seeds with which a difference `shift` beyond its threshold is found; infinite beyond `MOST_PAIRS`."""
    return _fewest(lambda seeds: one_sided_power(shift, deviation, seeds, level / 2), power)


def pairs_needed(result: Paired, comparisons: int) -> int | None:
    """Pairs of seeds with which a paired t test finds a difference like this one with probability `POWER`.

    The true mean and deviation of the differences are taken to be those of `result`, and of Holm's adjustment over
    `comparisons` differences its first and strictest step. None where that cannot be told: with fewer than two pairs,
    a mean of 0, or more than `MOST_PAIRS`.
    """
    if result.difference.n < 2:
        return None
    needed = seeds_for(abs(result.difference.mean), result.deviation, POWER, LEVEL / comparisons)
    return max(int(needed), FEWEST_PAIRS) if needed < inf else None


def seeds_for_equivalence(mean: float, margin: float, deviation: float, power: float, level: float = LEVEL) -> float:
    """Fewest seeds with which two one-sided tests find a true difference `mean` within plus or minus `margin`."""

    def equivalence_power(seeds: int) -> float:
        sides = (one_sided_power(margin - sign * mean, deviation, seeds, level) for sign in (1.0, -1.0))
        return max(0.0, sum(sides) - 1.0)

    return _fewest(equivalence_power, power) if abs(mean) < margin else inf


def _fewest(power_of: Callable[[int], float], power: float) -> float:
    if power_of(MOST_PAIRS) < power:
        return inf
    low, high = 2, MOST_PAIRS
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if power_of(middle) >= power else (middle + 1, high)
    return low
