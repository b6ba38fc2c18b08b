"""Sampling and scores: draws without replacement, normalisation, and finite losses for ranking."""

import numpy as np
from numpy.typing import NDArray

from strategies.roster import Floats, Ints

LARGEST_LOSS = 1e300
"""Reported losses are clipped to this value, so that their sums and differences stay finite."""


def min_max(values: Floats, *, flat: float) -> Floats:
    """Map finite `values` (n,) to [0, 1]; if all are equal, to `flat`. NaN entries stay NaN."""
    if not np.isfinite(values).any():
        return np.where(np.isnan(values), np.nan, flat)
    low, high = np.nanmin(values), np.nanmax(values)
    if high == low:
        return np.where(np.isnan(values), np.nan, flat)
    return np.asarray((values - low) / (high - low))


def finite(values: Floats) -> Floats:
    """Loss-like `values` for ranking: +inf becomes the largest finite value, NaN the mean of the finite ones.

    So a diverged loss counts as the largest known loss, and a client without a measurement counts as average.
    """
    finite_values = np.clip(values[np.isfinite(values)], -LARGEST_LOSS, LARGEST_LOSS)
    if not finite_values.size:
        return np.zeros_like(values)
    bounded = np.clip(values, finite_values.min(), finite_values.max())
    return np.where(np.isnan(bounded), finite_values.mean(), bounded)


def gumbel_top(logits: Floats, count: int, rng: np.random.Generator) -> Ints:
    """Positions of `count` draws without replacement with probabilities softmax(`logits`), in O(n).

    The `count` largest of logits + Gumbel noise are exactly a sequence of softmax draws, each renormalised over the
    remaining entries (Kool, van Hoof and Welling, ICML 2019). The positions are ascending.
    """
    return np.sort(largest(logits + rng.gumbel(size=logits.size), count))


def shares(examples: Ints) -> Floats:
    """p_k = n_k / sum n, float64 (n,); equal if no client has reported its examples."""
    total = examples.sum()
    return examples / total if total > 0 else np.full(examples.shape, 1.0 / max(examples.size, 1))


def unseen_first(seen: NDArray[np.bool_], count: int, rng: np.random.Generator) -> Ints:
    """Ascending positions of `count` uniform draws without replacement, first from the not `seen`, then from the
    others.
    """
    order = rng.permutation(seen.size)
    return np.sort(order[np.argsort(seen[order], kind="stable")][:count])


def weighted_keys(weights: Floats, rng: np.random.Generator) -> Floats:
    """Keys (n,) whose descending order is that of `weighted_draws`: log weight + Gumbel noise."""
    noise = rng.gumbel(size=weights.size)
    # It is below every key of a positive weight.
    return np.log(weights, out=np.full(weights.size, -800.0), where=weights > 0) + noise


def weighted_draws(weights: Floats, count: int, rng: np.random.Generator) -> Ints:
    """Positions of `count` sequential draws without replacement, with probabilities in proportion to `weights`. O(n).

    They are in the order of the draws, each of which is renormalised over the remaining entries. `weights` (n,) are
    finite and >= 0. Entries of weight 0 come last, in random order.
    """
    return largest(weighted_keys(weights, rng), count)


def largest(values: Floats, count: int) -> Ints:
    """Positions of the `count` largest of `values` (n,), in descending order; ties to the earlier, NaN last. O(n)."""
    descending, reached = -values, np.arange(values.size)
    if count < values.size:
        last = np.partition(descending, count - 1)[count - 1]
        # If the `count`-th largest is NaN, every entry may be among the largest.
        reached = reached if np.isnan(last) else np.flatnonzero(descending <= last)
    return np.asarray(reached[np.argsort(descending[reached], kind="stable")[:count]])
