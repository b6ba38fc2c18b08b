"""Robust aggregation: rules that limit the influence of a few hostile clients (setting `aggregation`), and bounds of
single entries.

Coordinate-wise median and trimmed mean: D. Yin, Y. Chen, K. Ramchandran, P. Bartlett, "Byzantine-Robust Distributed
Learning: Towards Optimal Statistical Rates", ICML 2018, arXiv 1803.01498. Krum and Multi-Krum: P. Blanchard, E. M. El
Mhamdi, R. Guerraoui, J. Stainer, "Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent", NeurIPS
2017. Before every rule each update is scaled down to at most `update-clip` times the cohort's median norm: Z. Sun, P.
Kairouz, A. T. Suresh, H. B. McMahan, "Can You Really Backdoor Federated Learning?", 2019, arXiv 1911.07963.

Absent entries. A client that compresses with error feedback sends a few entries and keeps the rest. If an absent entry
were a vote for zero, the median of ten clients that send a fifth each would be zero nearly everywhere. If an entry that
few clients send were returned to them, these clients would send it for ever (docs/security.md has the numbers for
both). So the median and the trimmed mean of an entry use only the clients that sent it. They are multiplied by the
share of these clients in the cohort, which is the scale of the mean. They need a quorum: if less than the share
`QUORUM` of the cohort sent an entry, its centre is the mean, in which a client has at most the effect of its clipped
update. Then two colluders who send every entry are outvoted if honest clients send it too, and otherwise have the
effect of two honest clients. Krum compares whole updates and treats absent entries as zeros.

All clients have the same weight. Only the sum of the weights is used, because hostile clients choose their scores and
numbers of examples.

Clipping rejects a part of an update, and Krum rejects the updates that it does not choose. Rejected parts return to the
residual of their client. An outvoted value is not rejected: the centre represents all clients that sent the entry. If
outvoted values were returned, an attacker who shifts the centre could make honest clients send larger and larger
values.

Deviations: the trimmed mean removes ceil(share r) values of an entry at each end, where r is the cohort, even if there
are few values (but it leaves one or two). Flower's `aggregate_median`, `aggregate_trimmed_avg` and `aggregate_krum` do
the same for dense updates without clipping (tests compare them). But they need all updates as dense arrays at once, do
not support absent entries, and do not return Krum's choice. Here only `BLOCK` entries are dense at a time.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from fedsel_app.config import AggregationConfig
from fedsel_app.exact_sums import weighted_sum
from fedsel_app.messages.reported_values import lower_median
from fedsel_app.wire.codec import Update
from strategies.checkpoint import Saved
from strategies.roster import Floats, Ints

BLOCK = 2**14
Centre = Callable[[Floats, Ints], Floats]
"""(values (r, b) in ascending order with NaN last, number of values (b,), at least 1) -> their centre (b,)."""

Bound = Callable[[Sequence[Update]], tuple[Update, ...]]


def median(ordered: Floats, counts: Ints) -> Floats:
    """Median: the middle value, or the mean of the two."""
    below = np.take_along_axis(ordered, ((counts - 1) // 2)[None], axis=0)[0]
    above = np.take_along_axis(ordered, (counts // 2)[None], axis=0)[0]
    middle: Floats = 0.5 * (below + above)
    return middle


def trimmed_mean(ordered: Floats, counts: Ints, share: float) -> Floats:
    """Trimmed mean: the mean without the ceil(share r) smallest and largest values of an entry; one or two remain."""
    cut = np.minimum(math.ceil(share * len(ordered) - 1e-9), (counts - 1) // 2)
    rank = np.arange(len(ordered))[:, None]
    kept = (rank >= cut) & (rank < counts - cut)
    mean: Floats = np.where(kept, ordered, 0.0).sum(axis=0) / (counts - 2 * cut)
    return mean


def clipped(updates: Sequence[Update], multiple: float) -> tuple[tuple[Update, ...], Floats]:
    """Norm clipping: updates of at most `multiple` (0: any) times the median norm, and the remaining share of each.

    The median is the smaller of two middle norms. The shares are float64 (r,), in [0, 1].
    """
    norms = np.array([update.norm() for update in updates])
    most = multiple * lower_median(norms) if multiple else math.inf
    shares = np.divide(most, norms, out=np.ones(norms.size), where=norms > most)
    scaled = (
        update if share == 1.0 else Update(update.size, update.indices, update.values * np.float32(share))
        for update, share in zip(updates, shares.tolist(), strict=True)
    )
    return tuple(scaled), shares


def coordinate_wise(updates: Sequence[Update], centre: Centre) -> Floats:
    """Coordinate-wise centre of the sent values of each entry, times the share of clients that sent it, float64 (N,).

    If less than the share `QUORUM` of the clients sent an entry, its centre is the mean.
    """
    total = np.zeros(updates[0].size)
    for start, block in _blocks(updates, absent=np.nan):
        counts = np.isfinite(block).sum(axis=0)
        voted = counts >= max(QUORUM * len(updates), 1)
        entries = total[start : start + voted.size]
        entries[voted] = centre(np.sort(block[:, voted], axis=0), counts[voted]) * (counts[voted] / len(updates))
        entries[~voted] = np.nansum(block[:, ~voted], axis=0) / len(updates)
    return total


def squared_distances(updates: Sequence[Update]) -> Floats:
    """Squared Euclidean distances between the updates, float64 (r, r)."""
    distances = np.zeros((len(updates), len(updates)))
    for _, block in _blocks(updates, absent=0.0):
        for row, one in zip(distances, block, strict=True):
            row += np.square(block - one).sum(axis=1)
    return distances


QUORUM = 0.5
"""Share of the cohort that must have sent an entry for its median or trimmed mean to count."""
CENTRES: Mapping[str, Callable[[AggregationConfig], Centre]] = {
    "median": lambda config: median,
    "trimmed-mean": lambda config: partial(trimmed_mean, share=config.trim_share),
}
"""Rules that combine each entry on its own, and the centre that they take."""


def krum_order(distances: Floats, malicious: int) -> Ints:
    """Krum's order: places of the updates, ascending by the sum of the r - f - 2 smallest distances to others."""
    others = distances + np.diag(np.full(len(distances), np.inf))
    closest = max(len(distances) - malicious - 2, 1)
    scores = np.sort(others, axis=1)[:, :closest].sum(axis=1)
    return np.argsort(scores, kind="stable")


CHOSEN: Mapping[str, Callable[[int, AggregationConfig], int]] = {
    "krum": lambda count, config: 1,
    "multi-krum": lambda count, config: max(count - config.krum_malicious, 1),
}
"""Rules that choose updates by Krum's order, and how many of the round's updates they choose."""


@dataclass(frozen=True)
class Combined:
    """Combination of r updates by the setting `aggregation`.

    Attributes
    ----------
    updates : the updates that were combined: clipped, if the rule is robust
    aggregate : float64 (N,)
    weights : float64 (r,), of each update in the aggregate
    taken : float64 (r,), share of each update that was taken; the rest is rejected, and its client sends it again
    """

    updates: tuple[Update, ...]
    aggregate: Floats
    weights: Floats
    taken: Floats


def combine(
    updates: tuple[Update, ...],
    weights: Floats,
    config: AggregationConfig,
    bound: Bound | None = None,
    divisor: float = 1.0,
) -> Combined:
    """Combine r >= 1 updates; the mean is their sum with these `weights`, float64 (r,), divided by `divisor`.

    A robust rule gets the result of `bound` for the clipped updates: see `strategies.aggregation.robust`.
    """
    count, rule, total = len(updates), config.aggregation, math.fsum(weights) / divisor
    taken = np.ones(count)
    if config.traits.robust:
        updates, taken = clipped(updates, config.update_clip)
        updates = bound(updates) if bound is not None else updates
        weights = np.full(count, total / count)
    if rule in CENTRES:
        centre = CENTRES[rule](config)
        return Combined(updates, total * coordinate_wise(updates, centre), weights, taken)
    if rule in CHOSEN:
        order = krum_order(squared_distances(updates), config.krum_malicious)
        chosen = order[: CHOSEN[rule](count, config)]
        choice = np.zeros(count)
        choice[chosen] = 1.0
        mean = weighted_sum([updates[place] for place in chosen], [1.0] * chosen.size) / chosen.size
        return Combined(updates, total * mean, choice * (total / chosen.size), choice * taken)
    return Combined(updates, weighted_sum(updates, weights.tolist()) / divisor, weights / divisor, taken)


def _blocks(updates: Sequence[Update], *, absent: float) -> Iterator[tuple[int, Floats]]:
    """The updates as dense float64 (r, at most BLOCK) pieces, each with the place of its first entry."""
    size = updates[0].size
    for start in range(0, size, BLOCK):
        stop = min(start + BLOCK, size)
        block = np.full((len(updates), stop - start), absent)
        for row, update in zip(block, updates, strict=True):
            if update.indices is None:
                row[:] = update.values[start:stop]
                continue
            # The type of the indices: another type would copy all indices for every block.
            first, last = np.searchsorted(update.indices, np.array([start, stop], np.uint32))
            row[update.indices[first:last] - np.uint32(start)] = update.values[first:last]
        yield start, block


FADING = 0.95
"""Factor on a size after each round."""


class EntryBounds(Saved):
    """Bounds of single entries: `malicious` (f) clients cannot move an entry further than others have moved it lately.

    Few clients send some entries, such as the weights of a pixel that is dark in honest images. The centre of such an
    entry is a mean, which a backdoor can use. So for each entry the server keeps the f + 1 largest absolute values that
    different clients have sent, and multiplies each by `FADING` every round. It clips every value to the smallest of
    them. So f hostile clients cannot exceed the value that another client has sent, and they have no effect if no other
    client has sent one. This is the idea of the trimmed mean, applied over rounds to absolute values.

    All sizes (absolute values) fade at the same rate, and grow only if a client sends the entry. So the server need not
    keep the sizes of all K clients: the state is the (f + 1) N largest sizes and the ids of their clients. The part of
    a value that is clipped does not return to its client, nor does an outvoted value.
    """

    state_fields = ("_sizes", "_senders")

    def __init__(self, size: int, malicious: int) -> None:
        self._sizes = np.zeros((malicious + 1, size), np.float32)
        """Descending along the first axis; 0 if fewer clients have sent the entry."""
        self._senders = np.full((malicious + 1, size), -1, np.int32)

    def bound(self, clients: Ints, updates: Sequence[Update]) -> tuple[Update, ...]:
        """Learn the sizes in a round's updates, one for each of `clients`, and clip their values to the bounds."""
        self._sizes *= np.float32(FADING)
        for client, update in zip(clients.tolist(), updates, strict=True):
            self._learn(client, update)
        return tuple(self._cut(update) for update in updates)

    def _learn(self, client: int, update: Update) -> None:
        places = slice(None) if update.indices is None else update.indices
        sizes, senders = self._sizes[:, places], self._senders[:, places]
        sent_by_client = senders == client
        size = np.maximum(np.abs(update.values), np.where(sent_by_client, sizes, 0.0).max(axis=0))
        sizes = np.concatenate([np.where(sent_by_client, 0.0, sizes), size[None]])
        senders = np.concatenate([senders, np.full((1, size.size), client, np.int32)])
        order = np.argsort(-sizes, axis=0, kind="stable")[:-1]
        self._sizes[:, places] = np.take_along_axis(sizes, order, axis=0)
        self._senders[:, places] = np.take_along_axis(senders, order, axis=0)

    def _cut(self, update: Update) -> Update:
        bounds = self._sizes[-1] if update.indices is None else self._sizes[-1][update.indices]
        return Update(update.size, update.indices, np.clip(update.values, -bounds, bounds))
