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

LEVEL = 0.05
"""Error rate of a verdict; of the two directions that a difference may have, each has half of it."""
MOST_SEEDS = 1000


def one_sided_power(shift: float, deviation: float, seeds: int, level: float) -> float:
    """Power of a one-sided paired t test for a true mean `shift` above its threshold, with n = `seeds` >= 2 pairs."""
    if deviation == 0.0:
        return float(shift > 0.0)
    critical = scipy.stats.t.ppf(1.0 - level, seeds - 1)
    return float(scipy.stats.nct.sf(critical, seeds - 1, shift / deviation * np.sqrt(seeds)))


def seeds_for(shift: float, deviation: float, power: float) -> float:
    """Fewest seeds with which a difference `shift` beyond its threshold is found; infinite beyond `MOST_SEEDS`."""
    return _fewest(lambda seeds: one_sided_power(shift, deviation, seeds, LEVEL / 2), power)


def seeds_for_equivalence(mean: float, margin: float, deviation: float, power: float) -> float:
    """Fewest seeds with which two one-sided tests find a true difference `mean` within plus or minus `margin`."""

    def equivalence_power(seeds: int) -> float:
        sides = (one_sided_power(margin - sign * mean, deviation, seeds, LEVEL) for sign in (1.0, -1.0))
        return max(0.0, sum(sides) - 1.0)

    return _fewest(equivalence_power, power) if abs(mean) < margin else inf


def _fewest(power_of: Callable[[int], float], power: float) -> float:
    if power_of(MOST_SEEDS) < power:
        return inf
    low, high = 2, MOST_SEEDS
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if power_of(middle) >= power else (middle + 1, high)
    return low
