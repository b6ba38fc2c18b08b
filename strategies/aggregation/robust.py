"""Robust aggregation: rules that a few hostile clients cannot steer, by the setting `aggregation`.

Coordinate-wise median and trimmed mean: D. Yin, Y. Chen, K. Ramchandran, P. Bartlett, "Byzantine-Robust Distributed
Learning: Towards Optimal Statistical Rates", ICML 2018, arXiv 1803.01498. Krum and Multi-Krum: P. Blanchard,
E. M. El Mhamdi, R. Guerraoui, J. Stainer, "Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent",
NeurIPS 2017.

Absent entries. A client that compresses with error feedback sends a few entries and keeps the rest back, so
an entry that it does not send is no vote for zero; as such a vote, the median of ten clients that send a tenth each is
zero nearly everywhere, and nothing is ever learned. So the median and the trimmed mean of an entry are those of the
clients that sent it, times their share of the cohort (times the sum of the weights, 1 but for unbiased methods): the
scale that the mean has. An entry that one or two clients send cannot be judged: there each of them counts as if its
whole update had been scaled down to the cohort's median norm, as in Z. Sun, P. Kairouz, A. T. Suresh, H. B. McMahan,
"Can You Really Backdoor Federated Learning?", 2019, arXiv 1911.07963, so that a hostile client is worth one honest one
there. Krum compares whole updates, absent entries as zeros.

Every client counts alike: of the weights only the sum is used, since hostile clients choose their scores and numbers
of examples. Values that are left out are dropped, and not put back into their client's residual: a client that is
outvoted would otherwise send an ever larger update.

Deviations: the trimmed mean cuts ceil(share s) of the s values of an entry from each end (at most what leaves one or
two), so that already of three values the outer ones go. Flower's `aggregate_median`, `aggregate_trimmed_avg` and
`aggregate_krum` do the same for dense updates (tests compare), but need all of them as dense arrays at once, have no
notion of an absent entry, and do not return Krum's choice; here the dense form exists for `BLOCK` entries at a time.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import AggregationConfig
from fedsel_app.wire.codec import Update, add_weighted
from strategies.roster import Floats, Ints

BLOCK = 2**14
JUDGED = 3
"""The fewest values of an entry among which a wrong one can be recognised."""
Centre = Callable[[Floats, Ints], Floats]
"""(values (r, b) in ascending order with NaN last, values that are there (b,), at least 1) -> their centre (b,)."""


def median(ordered: Floats, counts: Ints) -> Floats:
    """Median: the middle value, or the mean of the two."""
    below = np.take_along_axis(ordered, ((counts - 1) // 2)[None], axis=0)[0]
    above = np.take_along_axis(ordered, (counts // 2)[None], axis=0)[0]
    middle: Floats = 0.5 * (below + above)
    return middle


def trimmed_mean(ordered: Floats, counts: Ints, share: float) -> Floats:
    """Trimmed mean: the mean without the ceil(share s) least and most of s values."""
    cut = np.minimum(np.ceil(share * counts - 1e-9).astype(np.int64), (counts - 1) // 2)
    rank = np.arange(len(ordered))[:, None]
    kept = (rank >= cut) & (rank < counts - cut)
    mean: Floats = np.where(kept, ordered, 0.0).sum(axis=0) / (counts - 2 * cut)
    return mean


def coordinate_wise(updates: Sequence[Update], centre: Centre) -> Floats:
    """Coordinate-wise centre of the values sent of each entry, times the share of clients that sent it, float64 (N,).

    Of an entry that fewer than `JUDGED` sent it is the mean, of updates no larger than their median norm.
    """
    norms = np.array([update.norm() for update in updates])
    most = np.sort(norms)[(norms.size - 1) // 2]
    shares = np.divide(most, norms, out=np.ones(norms.size), where=norms > most)
    total = np.zeros(updates[0].size)
    for start, block in _blocks(updates, absent=np.nan):
        counts = np.isfinite(block).sum(axis=0)
        many = counts >= JUDGED
        found = total[start : start + many.size]
        found[many] = centre(np.sort(block[:, many], axis=0), counts[many]) * (counts[many] / len(updates))
        found[~many] = np.nansum(block[:, ~many] * shares[:, None], axis=0) / len(updates)
    return total


def squared_distances(updates: Sequence[Update]) -> Floats:
    """Squared Euclidean distances between the updates, float64 (r, r)."""
    distances = np.zeros((len(updates), len(updates)))
    for _, block in _blocks(updates, absent=0.0):
        for row, one in zip(distances, block, strict=True):
            row += np.square(block - one).sum(axis=1)
    return distances


def krum_order(distances: Floats, malicious: int) -> Ints:
    """Krum's order: places of the updates, the smallest sum of the r - f - 2 least distances to others first."""
    others = distances + np.diag(np.full(len(distances), np.inf))
    closest = max(len(distances) - malicious - 2, 1)
    scores = np.sort(others, axis=1)[:, :closest].sum(axis=1)
    return np.argsort(scores, kind="stable")


def combine(updates: Sequence[Update], weights: Floats, config: AggregationConfig) -> tuple[Floats, Floats]:
    """The aggregate of r >= 1 updates, float64 (N,), and the weight of each in it, float64 (r,)."""
    count, rule = len(updates), config.aggregation
    if rule in ("krum", "multi-krum"):
        order = krum_order(squared_distances(updates), config.krum_malicious)
        chosen = order[: 1 if rule == "krum" else max(count - config.krum_malicious, 1)]
        share = weights.sum() / chosen.size
        weights = np.zeros(count)
        weights[chosen] = share
    elif rule != "mean":
        total = float(weights.sum())
        centre: Centre = median
        if rule == "trimmed-mean":
            centre = lambda ordered, counts: trimmed_mean(ordered, counts, config.trim_share)  # noqa: E731
        return total * coordinate_wise(updates, centre), np.full(count, total / count)
    aggregate = np.zeros(updates[0].size)
    add_weighted(aggregate, updates, weights.tolist())
    return aggregate, weights


def _blocks(updates: Sequence[Update], *, absent: float) -> Iterator[tuple[int, Floats]]:
    """The updates as dense float64 (r, at most BLOCK) pieces, each with the place of its first entry."""
    size = updates[0].size
    for start in range(0, size, BLOCK):
        stop = min(start + BLOCK, size)
        block = np.full((len(updates), stop - start), absent)
        for row, update in zip(block, updates, strict=True):
            _fill(row, update, start, stop)
        yield start, block


def _fill(row: NDArray[np.float64], update: Update, start: int, stop: int) -> None:
    if update.indices is None:
        row[:] = update.values[start:stop]
        return
    # The same type as the indices: another would copy all of them for every block.
    first, last = np.searchsorted(update.indices, np.array([start, stop]).astype(np.uint32))
    row[update.indices[first:last] - np.uint32(start)] = update.values[first:last]
