"""Full participation: every available client trains in every round.

It gives the "100 %" rows of the comparisons: FedAvg (McMahan, Moore, Ramage, Hampson and Aguera y Arcas, AISTATS 2017,
arXiv:1602.05629) with C = 1. Models are averaged by examples.

Deviations
----------
- None. The setting `cohort` and the participation policies have no effect here.
"""

from typing import final

import numpy as np

from strategies.base import SelectionStrategy
from strategies.roster import Roster, RoundInfo, Selection


@final
class FullParticipation(SelectionStrategy):
    """Selects all available clients."""

    name = "full"
    paper = "McMahan et al. 2017: all clients, FedAvg with C = 1"
    exact_cohort = False
    needs_whole_cohort = "it trains all clients in every round"
    free_cohort = False

    def select(self, roster: Roster, round_info: RoundInfo, count: int, rng: np.random.Generator) -> Selection:
        """All available clients; `count` is ignored."""
        return Selection(roster.ids)
