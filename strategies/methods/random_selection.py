"""Uniform random selection: the baseline of every comparison, and the selection of FedAvg.

McMahan, Moore, Ramage, Hampson and Aguera y Arcas, "Communication-Efficient Learning of Deep Networks from
Decentralized Data", AISTATS 2017 (arXiv:1602.05629), Algorithm 1: m clients are drawn uniformly without replacement,
and their updates are averaged by examples. Settings determine what clients send and how they train: the preset fedavg
has the values of the paper. With local proximal steps the method is FedProx (Li et al., MLSys 2020, arXiv:1812.06127).
"""

from typing import final

import numpy as np

from strategies.base import SelectionStrategy
from strategies.roster import Roster, RoundInfo, Selection


@final
class RandomSelection(SelectionStrategy):
    """Draws m clients uniformly without replacement."""

    name = "random"
    paper = "McMahan et al. 2017: only the draw of FedAvg (`--preset fedavg` is FedAvg)"

    def select(self, roster: Roster, round_info: RoundInfo, count: int, rng: np.random.Generator) -> Selection:
        """Uniform draw of `count` available clients."""
        return Selection(np.sort(rng.choice(roster.ids, size=count, replace=False)))
