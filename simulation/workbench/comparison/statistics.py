"""Statistics over seeds, and evenness of the clients' participation: pure functions.

References
----------
Student, "The Probable Error of a Mean", Biometrika 1908 (the interval and the paired test). Holm, "A Simple
Sequentially Rejective Multiple Test Procedure", Scand. J. Statistics 1979. Jain, Chiu, Hawe, "A Quantitative Measure
of Fairness and Discrimination for Resource Allocation in Shared Computer Systems", DEC-TR-301, 1984.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
LEVEL = 0.05
"""Error rate of a verdict. Each of the two directions of a difference has half of it."""
CONFIDENCE = 1.0 - LEVEL
FEWEST_PAIRS = 3
"""With fewer pairs of seeds a difference is never called significant, and with fewer seeds a mean has no interval."""
ROUNDING = 1e-12
"""Share of the values up to which their differences may be rounding errors."""


@dataclass(frozen=True)
class Estimate:
    """Mean over `n` seeds and its 95% t interval. The interval is NaN if n < 2, the mean too if n = 0."""

    mean: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Paired:
    """Paired comparison of two variants on the seeds that both have.

    Attributes
    ----------
    difference : the variant minus the other, over the pairs
    other_mean : mean of the other over the same pairs; NaN without pairs
    p : two-sided p-value of the paired t test; 1 with fewer than two pairs
    deviation : standard deviation (n - 1) of the differences; NaN with fewer than two pairs
    """

    difference: Estimate
    other_mean: float
    p: float
    deviation: float

    def more_than_noise(self, adjusted_p: float) -> bool:
        """True if there are enough pairs and `adjusted_p` is below `LEVEL`."""
        return self.difference.n >= FEWEST_PAIRS and adjusted_p < LEVEL


def t_interval(values: ArrayLike) -> Estimate:
    """Mean and 95% t interval of `values` (n,), which are finite."""
    array = np.asarray(values, np.float64)
    n = array.size
    mean = float(array.mean()) if n else np.nan
    if n < 2:
        return Estimate(mean, np.nan, np.nan, n)
    half = float(scipy.special.stdtrit(n - 1, (1.0 + CONFIDENCE) / 2.0) * array.std(ddof=1) / np.sqrt(n))
    return Estimate(mean, mean - half, mean + half, n)


def paired(values: ArrayLike, others: ArrayLike) -> Paired:
    """Paired t interval and test of `values` - `others`, both (n,), aligned by seed; pairs with a NaN are left out.

    Differences that are identical up to `ROUNDING` have p = 0, and p = 1 if they are 0.
    """
    first, second = np.asarray(values, np.float64), np.asarray(others, np.float64)
    both = np.isfinite(first) & np.isfinite(second)
    differences = first[both] - second[both]
    estimate = t_interval(differences)
    rounding = ROUNDING * np.abs([first[both], second[both]]).max(initial=0.0)
    if estimate.n < 2:
        p = 1.0
    elif np.ptp(differences) <= rounding:
        p = float(abs(estimate.mean) <= rounding)
    else:
        p = float(scipy.stats.ttest_1samp(differences, 0.0).pvalue)
    deviation = float(differences.std(ddof=1)) if estimate.n > 1 else np.nan
    return Paired(estimate, float(second[both].mean()) if both.any() else np.nan, p, deviation)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values by Holm's step-down procedure for their family-wise error; the order is kept."""
    order = np.argsort(p_values, kind="stable")
    scaled = np.asarray(p_values, np.float64)[order] * np.arange(len(p_values), 0, -1)
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return [float(p) for p in adjusted]


def step_values(x: ArrayLike, y: ArrayLike, grid: ArrayLike) -> Floats:
    """The last y (n,) known at each point of `grid`, x (n,) ascending; NaN before the first x."""
    positions = np.searchsorted(np.asarray(x, np.float64), np.asarray(grid, np.float64), side="right") - 1
    return np.append(np.asarray(y, np.float64), np.nan)[positions]


def jain(counts: ArrayLike) -> float:
    """Jain's index of counts >= 0, shape (k,): 1 for equal counts (also all 0), 1 / k if only one is above 0."""
    array = np.asarray(counts, np.float64)
    squares = (array**2).sum()
    return float(array.sum() ** 2 / (array.size * squares)) if squares else 1.0


def worst_tenth(values: ArrayLike) -> float:
    """Mean of the lowest ceil(k / 10) of `values` (k,), k >= 1."""
    ordered = np.sort(np.asarray(values, np.float64))
    return float(ordered[: -(-ordered.size // 10)].mean())
