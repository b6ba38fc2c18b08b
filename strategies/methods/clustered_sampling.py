"""Clustered sampling: draws one client from each of m distributions over the clients. It is unbiased and has less
variance than multinomial (MD) sampling.

Fraboni, Vidal, Kameni and Lorenzi, "Clustered Sampling: Low-Variance and Improved Representativity for Clients
Selection in Federated Learning", ICML 2021 (arXiv:2105.05883), Algorithm 2.
`strategies.selection_math.sampling_rows` builds the distributions, one row each.

Deviations
----------
- A client that is drawn in several rows trains once and gets the weight 1/m for each of them. So a round may have fewer
  than m clients.
- With m clients or fewer available, all take part, with weights in proportion to p_k.
- Clients are grouped by the angle between their last updates as the server received them (compressed, where the run
  compresses), by average linkage. The authors' code uses Ward's linkage, with the rows of the distance matrix as
  feature vectors. L1 and L2 distances, and Algorithm 1 (groups by size), are not implemented.
- A client with p_k >= 1/m gets floor(m p_k) rows of its own before the rest is grouped. The authors' code does not do
  this and is biased.
- Weights are renormalised over the aggregated clients. A client that fails is missing from them.
"""

from typing import final

import numpy as np

from fedsel_app.config import Settings
from strategies.base import SelectionStrategy
from strategies.method import MethodContext
from strategies.roster import Floats, Needs, Outcome, Roster, RoundInfo, Selection
from strategies.selection_math.sampling import shares
from strategies.selection_math.sampling_rows import draw, rows_by_similarity
from strategies.selection_math.similarity import among, angles, refreshed_gram


@final
class ClusteredSampling(SelectionStrategy):
    """Draws one client from each of m rows, which are distributions over the clients."""

    name = "clustered-sampling"
    paper = "Fraboni et al. 2021, arXiv:2105.05883"
    exact_cohort = False
    needs_whole_cohort = needs_all_selected = "the weights of its draws are right only for a whole cohort"
    state_fields = ("_gram",)

    def __init__(self, context: MethodContext) -> None:
        super().__init__(context)
        self._gram = np.zeros((context.run.clients, context.run.clients))
        """Inner products of the clients' last updates."""

    @classmethod
    def needs(cls, config: Settings) -> Needs:
        """Every client's last update."""
        return Needs(updates=True)

    def rows(self, roster: Roster, count: int, rng: np.random.Generator) -> Floats:
        """The `count` distributions over the available clients, float64 (count, n) by ascending id."""
        ids = roster.ids
        p = shares(roster.examples[ids])
        return rows_by_similarity(p, angles(among(self._gram, ids)), count, rng)

    def select(self, roster: Roster, round_info: RoundInfo, count: int, rng: np.random.Generator) -> Selection:
        """One draw from each row. The weight of a client is the number of rows that drew it, times 1/m."""
        ids = roster.ids
        if count >= ids.size:
            return Selection(ids, weights=shares(roster.examples[ids]))
        picked, times = np.unique(draw(self.rows(roster, count, rng), rng), return_counts=True)
        return Selection(ids[picked], weights=times / count)

    def update(self, outcome: Outcome) -> None:
        """Compute the inner products of the new updates with all others."""
        self._gram = refreshed_gram(self._gram, self.last_updates, outcome.clients.tolist())
