"""Uniform random selection: the baseline of every comparison, and the selection of FedAvg.

McMahan, Moore, Ramage, Hampson and Aguera y Arcas, "Communication-Efficient Learning of Deep Networks from
Decentralized Data", AISTATS 2017 (arXiv:1602.05629), Algorithm 1: m clients uniformly without replacement, their
updates averaged by examples. What clients send and how they train are settings: the preset fedavg has the paper's, and
with local proximal steps it is FedProx (Li et al., MLSys 2020, arXiv:1812.06127).
"""

from typing import final

import numpy as np

from strategies.base import SelectionStrategy
from strategies.roster import Roster, RoundInfo, Selection


@final
class RandomSelection(SelectionStrategy):
    """m clients uniformly without replacement."""

    name = "random"
    paper = "McMahan et al. 2017: the draw of FedAvg alone (`--preset fedavg` is FedAvg)"
    looks_at = ()

    def select(self, roster: Roster, round_info: RoundInfo, count: int, rng: np.random.Generator) -> Selection:
        """Uniform draw of `count` available clients."""
        clients = np.sort(rng.choice(roster.ids, size=count, replace=False))
        return Selection(clients)
