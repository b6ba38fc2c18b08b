"""AdaSample: unbiased sampling that balances the variance of the average against the time of a round.

Luo, Xiao, Wang, Huang and Tassiulas, "Tackling System and Statistical Heterogeneity for Federated Learning with
Adaptive Client Sampling", INFOCOM 2022 (arXiv:2112.11256); "Adaptive Heterogeneous Client Sampling for Federated
Learning over Wireless Networks", IEEE Transactions on Mobile Computing, 2024 (arXiv:2404.13804).

The server draws m clients with replacement from q and averages them with weights p_i / (m q_i). After R rounds the
bound on the error is (A sum_i p_i^2 G_i^2 / q_i + B) / R. So the time to a target is proportional to (sum_i q_i t_i)
(sum_i p_i^2 G_i^2 / q_i + B/A), where t_i is the time of client i in seconds. q minimises this product over the
simplex. For B = 0 the minimum is at q_i in proportion to p_i G_i / sqrt(t_i).

Deviations
----------
Reconstructed: the bound is from memory, and its optimum was checked numerically.

- G_i is the largest ||update|| / (local learning rate) of client i so far, which grows with its gradients. A client
  without an update has the mean of the others.
- B is 0. The paper estimates B/A by two pilot runs, from R_uniform / R_p = (A n sum p^2 G^2 + B) / (A sum p G^2 + B),
  and a larger one prefers fast clients.
- q is mixed with the uniform distribution, of the share 0.1. So no weight exceeds p_i n / (0.1 m), and a client with a
  zero update can be drawn again. The estimate stays unbiased.
- A client that is drawn twice trains once and counts twice. A client that fails is missing from the sum.
"""

from typing import final

import numpy as np

from fedsel_app.config import Settings
from strategies.base import SelectionStrategy
from strategies.method import MethodContext
from strategies.roster import Floats, Needs, Outcome, Roster, RoundInfo, Selection
from strategies.round.budget import client_seconds, round_fraction
from strategies.selection_math.sampling import shares

UNIFORM_SHARE = 0.1
"""Share of the uniform distribution in the selection probabilities q."""


def sampling_distribution(reach: Floats, seconds: Floats) -> Floats:
    """The q, float64 (n,), that minimises (sum q t) (sum reach^2 / q); uniform if reach is 0.

    `reach` (n,) is p_i G_i; `seconds` (n,) are above 0.
    """
    if not reach.any():
        return np.full(reach.size, 1.0 / reach.size)
    q = reach / np.sqrt(seconds)
    return np.asarray(q / q.sum())


def expected_slowest(q: Floats, seconds: Floats, draws: int) -> float:
    """E[max t] of K = `draws` draws from `q`: sum_i [(sum_{j<=i} q_j)^K - (sum_{j<i} q_j)^K] t_i, t ascending."""
    order = np.argsort(seconds, kind="stable")
    upto = np.concatenate([[0.0], np.cumsum(q[order])]) ** draws
    return float(np.diff(upto) @ seconds[order])


@final
class AdaSample(SelectionStrategy):
    """m draws with replacement from the distribution that minimises the time to a target; unbiased weights."""

    name = "adasample"
    paper = "Luo et al. 2022, INFOCOM (reconstructed)"
    exact_cohort = False
    needs_whole_cohort = needs_all_selected = "the weights of its draws are right only for a whole cohort"
    state_fields = ("_norms",)

    def __init__(self, context: MethodContext) -> None:
        super().__init__(context)
        self._norms = np.full(context.run.clients, np.nan)
        """The largest ||update|| / lr of each client; NaN if it has none yet."""

    @classmethod
    def needs(cls, config: Settings) -> Needs:
        """Every client's link and seconds a step, and the norms of the updates."""
        return Needs(links=True, norms=True, round_updates=False)

    def distribution(self, roster: Roster, round_info: RoundInfo) -> tuple[Floats, Floats, Floats]:
        """p, q and the seconds t of the available clients; float64 (n,) each."""
        ids = roster.ids
        p = shares(roster.examples[ids])
        norms = self._norms[ids]
        typical = float(np.nanmean(norms)) if np.isfinite(norms).any() else 1.0
        reach = p * np.where(np.isnan(norms), typical, norms)
        compression = self.context.compression
        fraction = round_fraction(round_info, self.context) if compression.sparsifies else 1.0
        compute_s, upload_s = client_seconds(roster, ids, self.context.initial.size, fraction, compression)
        seconds = compute_s + fraction * upload_s
        q = (1.0 - UNIFORM_SHARE) * sampling_distribution(reach, seconds) + UNIFORM_SHARE / ids.size
        return p, q, seconds

    def select(self, roster: Roster, round_info: RoundInfo, count: int, rng: np.random.Generator) -> Selection:
        """The distinct clients of `count` draws from q, with weights p_i / (m q_i) times how often each was drawn."""
        p, q, seconds = self.distribution(roster, round_info)
        picked, times = np.unique(rng.choice(q.size, size=count, p=q), return_counts=True)
        round_s = expected_slowest(q, seconds, count)
        return Selection(
            clients=roster.ids[picked],
            components={
                "probability": q[picked],
                "draws": times.astype(np.float64),
                "expected_round_s": np.full(picked.size, round_s),
            },
            weights=times * p[picked] / (count * q[picked]),
            normalise=False,
        )

    def update(self, outcome: Outcome) -> None:
        """Raise G_i if a client's update is larger than before."""
        rate = self.context.training.learning_rate(outcome.round_info.number, outcome.round_info.total)
        if rate > 0:
            self._norms[outcome.clients] = np.fmax(self._norms[outcome.clients], outcome.norms / rate)
