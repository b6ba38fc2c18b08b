"""Random selection in proportion to data size, with equal weights: HBase in the tables of Terraform.

Li, Sahu, Zaheer, Sanjabi, Talwalkar and Smith, "Federated Optimization in Heterogeneous Networks" (FedProx), MLSys 2020
(arXiv:1812.06127), Algorithm 2: client k is drawn with probability p_k = n_k / n, and the models are averaged with
equal weights. The tables of Terraform call it HBase, after the baseline of HiCS-FL (Chen and Vikalo, NeurIPS 2024).

Deviations
----------
- Draws are sequential and without replacement, so that a cohort has the requested number of clients. So the mean of the
  models is biased if the p_k differ.
"""

from typing import final

import numpy as np

from strategies.base import SelectionStrategy
from strategies.roster import Roster, RoundInfo, Selection
from strategies.selection_math.sampling import weighted_draws


@final
class RandomWeighted(SelectionStrategy):
    """Draws m clients without replacement with probabilities p_k. Their weights are equal."""

    name = "random-weighted"
    paper = "Li et al. 2020 (FedProx); HBase in Terraform"

    def select(self, roster: Roster, round_info: RoundInfo, count: int, rng: np.random.Generator) -> Selection:
        """`count` sequential draws with probabilities in proportion to the training examples."""
        ids = roster.ids
        clients = np.sort(ids[weighted_draws(roster.examples[ids].astype(np.float64), count, rng)])
        return Selection(clients, weights=np.ones(clients.size))
