"""Pure score arithmetic that several methods share."""

import numpy as np

from strategies.roster import Floats, Ints


def min_max(values: Floats, *, flat: float) -> Floats:
    """Map finite `values` (n,) onto [0, 1]; all `flat` where they do not differ. NaN entries stay NaN."""
    if not np.isfinite(values).any():
        return np.where(np.isnan(values), np.nan, flat)
    low, high = np.nanmin(values), np.nanmax(values)
    if high == low:
        return np.where(np.isnan(values), np.nan, flat)
    return np.asarray((values - low) / (high - low))


def finite(values: Floats) -> Floats:
    """Loss-like `values` made safe to rank: +inf becomes the largest finite value, NaN the mean of the finite ones.

    A client whose loss diverged counts as the worst known one; one that was never measured as an average one.
    """
    known = values[np.isfinite(values)]
    if not known.size:
        return np.zeros_like(values)
    top = np.where(values == np.inf, known.max(), np.where(values == -np.inf, known.min(), values))
    return np.where(np.isnan(top), known.mean(), top)


def gumbel_top(logits: Floats, count: int, rng: np.random.Generator) -> Ints:
    """Positions of `count` draws without replacement with probabilities softmax(`logits`), in O(n).

    The `count` largest of logits + Gumbel noise are exactly a sequence of softmax draws, each renormalised over
    what is left (Kool, van Hoof and Welling, ICML 2019). Returned ascending.
    """
    noisy = logits + rng.gumbel(size=logits.size)
    if count >= logits.size:
        return np.arange(logits.size)
    return np.sort(np.argpartition(-noisy, count - 1)[:count])
