"""Fed-CBS: cohorts whose joint label distribution is balanced.

Zhang, Li, Li, Yin, Chen, Chen and Chen, "Fed-CBS: A Heterogeneity-Aware Client Sampling Mechanism for Federated
Learning via Class-Imbalance Reduction", ICML 2023. The quadratic class-imbalance degree of a set S is QCID(S) = sum_b
(share of label b in S - 1/B)^2. Clients are drawn one after the other without replacement. The first draw has weights
QCID({c})^-1 + lambda sqrt(3 ln t / (2 T_c)), where T_c is 1 + the number of selections of c. The j-th draw has weights
QCID(S + c)^-j (exponents b_j = j).

Deviations
----------
- Reconstructed: the paper's text was not at hand; the rule follows two third-party accounts that agree on it.
- Clients send their label counts once, in the clear; the paper protects the products of the counts by encryption.
- T_c counts from 1, as in one of these accounts, so that the bonus of a client without selections is finite.
- If the server does not wait for its cohort, S starts from the clients under way. The draws count from 1, so that each
  selection explores.
- QCID is at least 1e-20, so a perfectly balanced set is drawn almost surely.
"""

from dataclasses import dataclass
from typing import final

import numpy as np

from fedsel_app.config import Settings, setting
from strategies.base import SelectionStrategy
from strategies.roster import Floats, Ints, Needs, Roster, RoundInfo, Selection

BLOCK = 2**13
"""Clients whose weights are computed at a time, so that intermediate arrays fit into the processor's cache."""

BALANCED = 1e-20
"""QCID of a balanced set: above the rounding error (1e-32) and below every positive QCID of real counts."""
WHOLE = 2.0**53
"""Integers below it are exact in float64."""


@dataclass(frozen=True)
class FedCBSConfig(Settings):
    """Settings of Fed-CBS: the weight of exploration."""

    exploration: float = setting(10.0, "weight lambda of the exploration bonus in the first draw of a round", low=0.0)


def qcid(counts: Ints | Floats) -> Floats:
    """Quadratic class-imbalance degree of label counts (..., B), float64 (...), at least 1e-20."""
    share = counts / np.maximum(counts.sum(axis=-1, keepdims=True), 1)
    imbalance = np.square(share - 1.0 / max(counts.shape[-1], 1)).sum(axis=-1)
    return np.asarray(np.maximum(imbalance, BALANCED))


def joined_qcid(held: Floats, counts: Floats, totals: Floats, squares: Floats) -> Floats:
    """`qcid` of the set with label counts `held` (B,) and one more client, for each client in `counts` (n, B).

    The result is float64 (n,), with less rounding error than `qcid(held + counts)`. `totals` and `squares` (n,) are the
    sums of `counts` and of their squares over the labels. All counts are whole numbers.
    """
    labels = counts.shape[-1]
    total = held.sum() + totals
    area = labels * total**2
    if area.max(initial=0.0) >= WHOLE:
        return qcid(held + counts)
    # sum_b (share_b - 1/B)^2 = sum_b share_b^2 - 1/B: exact up to the division.
    excess = labels * (held @ held + 2.0 * (counts @ held) + squares) - total**2
    imbalance = np.divide(excess, area, out=np.full(total.shape, 1.0 / max(labels, 1)), where=total > 0)
    return np.asarray(np.maximum(imbalance, BALANCED))


def exploration_bonus(selections: Ints, server_round: int, weight: float) -> Floats:
    """lambda sqrt(3 ln t / (2 T_c)), T_c = 1 + `selections`, float64 (n,); 0 in round 1."""
    return np.asarray(weight * np.sqrt(1.5 * np.log(server_round) / (1.0 + selections)))


def log_weights(imbalance: Floats, draw: int, bonus: Floats) -> Floats:
    """Log weights (n,) of the `draw`-th draw (from 1), if the set with each client has the QCID `imbalance` (n,)."""
    return np.asarray(np.log(1.0 / imbalance + bonus) if draw == 1 else -draw * np.log(imbalance))


@final
class FedCBS(SelectionStrategy[FedCBSConfig]):
    """Draws clients one after the other, so that the labels of the cohort become balanced."""

    name = "fed-cbs"
    paper = "Zhang et al. 2023, ICML"

    @classmethod
    def needs(cls, config: FedCBSConfig) -> Needs:
        """Every client's label counts, once."""
        return Needs(label_counts=True)

    def select(self, roster: Roster, round_info: RoundInfo, count: int, rng: np.random.Generator) -> Selection:
        """`count` sequential draws by `log_weights`, in O(count K B)."""
        ids = roster.ids
        counts = roster.label_counts[ids].astype(np.float64)
        bonus = exploration_bonus(roster.selections[ids], round_info.number, self.config.exploration)
        totals, squares = counts.sum(axis=1), np.einsum("ij,ij->i", counts, counts)
        free = np.ones(ids.size, bool)
        held = roster.label_counts[roster.under_way].sum(axis=0, dtype=np.float64)
        for draw in range(1, count + 1):
            # The argmax of log weights + Gumbel noise is a draw by those weights, and does not overflow.
            best, highest = 0, -np.inf
            for start in range(0, ids.size, BLOCK):
                rows = slice(start, start + BLOCK)
                imbalance = joined_qcid(held, counts[rows], totals[rows], squares[rows])
                noisy = log_weights(imbalance, draw, bonus[rows]) + rng.gumbel(size=imbalance.size)
                noisy[~free[rows]] = -np.inf
                if noisy.max() > highest:
                    best, highest = start + int(noisy.argmax()), noisy.max()
            free[best] = False
            held = held + counts[best]
        picked = np.flatnonzero(~free)
        return Selection(ids[picked], components={"imbalance": qcid(counts[picked]), "exploration": bonus[picked]})
