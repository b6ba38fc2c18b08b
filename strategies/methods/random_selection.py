"""Uniform random selection: the baseline of every comparison.

McMahan, Moore, Ramage, Hampson and Aguera y Arcas, "Communication-Efficient Learning of Deep Networks from
Decentralized Data", AISTATS 2017 (arXiv:1602.05629), Algorithm 1: m clients uniformly without replacement, their
updates averaged by examples. With local proximal steps it is FedProx (Li et al., MLSys 2020, arXiv:1812.06127).
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedsel_app.config import Settings
from strategies.base import SelectionStrategy
from strategies.roster import Needs, Roster, RoundInfo, Selection


@dataclass(frozen=True)
class RandomConfig(Settings):
    """Random selection has no settings."""


class RandomSelection(SelectionStrategy):
    """m clients uniformly without replacement."""

    name: ClassVar[str] = "random"
    paper: ClassVar[str] = "McMahan et al. 2017 (FedAvg); Li et al. 2020 (FedProx)"
    Config: ClassVar[type[Settings]] = RandomConfig

    @classmethod
    def needs(cls, config: Settings) -> Needs:
        """Nothing."""
        return Needs()

    def select(self, roster: Roster, round_info: RoundInfo, count: int, rng: np.random.Generator) -> Selection:
        """Uniform draw of `count` available clients."""
        clients = np.sort(rng.choice(roster.ids, size=count, replace=False))
        return Selection(clients, np.ones(count))
