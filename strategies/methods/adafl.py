"""AdaFL's attention: clients whose models are far from the new global model are drawn more often.

Chen, Chong and Quek, "Dynamic Attention-based Communication-Efficient Federated Learning", 2021 (arXiv:2108.05765).
This file has its attention-based selection. Its growing fraction of clients is a participation policy.

Attention starts at a_k = n_k / n. S_t is drawn without replacement with probabilities a. After the round, let d_k =
||w_{t+1} - w_k|| for k in S_t. Then a_k <- alpha a_k + (1 - alpha) (d_k / sum_{S_t} d) sum_{S_t} a for k in S_t. The
others keep their attention, and the sum of all stays 1.

Deviations
----------
- The formulas are reconstructed: only the paper's abstract was readable, and no code of the authors was found.
- Attention is kept in units of examples (a_k = n_k at the start) and divided by its sum where it is used. The update
  rule is the same in every unit. So a client that joins late starts with its share by size.
- w_{t+1} is taken before the server's optimiser: d_k is the distance of the client's decoded (compressed) update from
  the aggregated update. With a server that applies the mean with learning rate 1 this is the distance to w_{t+1}.
- S_t contains only the clients whose update was aggregated.
- With `distance` = norm the server knows only the norms of the updates u_k and their mean m. Then d_k^2 = ||u_k||^2 -
  ||m||^2, and 0 if that is negative. Its mean over S_t is that of the true squares, weighted as m is.
"""

from dataclasses import dataclass
from typing import final

import numpy as np

from fedsel_app.config import Settings, setting
from fedsel_app.wire.codec import Update
from strategies.base import SelectionStrategy
from strategies.method import MethodContext
from strategies.roster import Floats, Needs, Outcome, Roster, RoundInfo, Selection
from strategies.selection_math.sampling import weighted_draws

DECAY = 0.9
"""Share alpha of the old attention in the new one."""


@dataclass(frozen=True)
class AdaFLConfig(Settings):
    """Settings of AdaFL."""

    distance: str = setting(
        "exact", "distance from the mean update: of the updates, or with secure sums by norm", choices=("exact", "norm")
    )


def distance(update: Update, aggregate: Floats) -> float:
    """||aggregate - update||, float64 (N,) each: how far the client's model is from the averaged one."""
    return float(np.sqrt(np.square(aggregate - update.dense()).sum()))


def refreshed(attention: Floats, distances: Floats, decay: float) -> Floats:
    """The new attention of the participants, from their old attention and d_k; float64 (r,) each. The sum is unchanged.

    If all distances are 0, attention does not change.
    """
    total = distances.sum()
    if not total > 0:
        return attention.copy()
    return np.asarray(decay * attention + (1.0 - decay) * (distances / total) * attention.sum())


@final
class AdaFL(SelectionStrategy[AdaFLConfig]):
    """Clients drawn without replacement in proportion to their attention."""

    name = "adafl"
    paper = "Chen et al. 2021 (AdaFL, attention), reconstructed"
    without_updates = "'adafl.distance' to norm"
    state_fields = ("_attention",)

    def __init__(self, context: MethodContext) -> None:
        super().__init__(context)
        self._attention = np.full(context.run.clients, np.nan)
        """Attention of each client, (K,), in examples. NaN until the client takes part for the first time."""

    @classmethod
    def needs(cls, config: AdaFLConfig) -> Needs:
        """The updates of a round, or only their norms."""
        return Needs(round_updates=config.distance == "exact", norms=config.distance == "norm")

    def attention(self, roster: Roster) -> Floats:
        """Every client's attention, float64 (K,), in units of examples."""
        return np.where(np.isnan(self._attention), roster.examples, self._attention)

    def select(self, roster: Roster, round_info: RoundInfo, count: int, rng: np.random.Generator) -> Selection:
        """`count` sequential draws without replacement, in proportion to attention. The score is a_k."""
        attention = self.attention(roster)
        attention /= max(attention.sum(), 1.0)
        clients = np.sort(roster.ids[weighted_draws(attention[roster.ids], count, rng)])
        return Selection(clients, attention[clients], {"attention": attention[clients]})

    def update(self, outcome: Outcome) -> None:
        """Redistribute the participants' attention: more to those that are far from the average."""
        if outcome.aggregate is None:
            return
        if self.config.distance == "norm":
            distances = np.sqrt(np.maximum(np.square(outcome.norms) - np.square(outcome.aggregate).sum(), 0.0))
        else:
            distances = np.array([distance(update, outcome.aggregate) for update in outcome.updates])
        old = self.attention(self.roster)[outcome.clients]
        self._attention[outcome.clients] = refreshed(old, distances, DECAY)
