"""Full participation: every available client trains in every round, whatever the cohort.

The "100 %" rows of the comparisons: FedAvg (McMahan, Moore, Ramage, Hampson and Aguera y Arcas, AISTATS 2017,
arXiv:1602.05629) with C = 1, its models averaged by examples.

Deviations
----------
- None. The setting `cohort` and the participation policies have no say here.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedsel_app.config import Settings
from strategies.base import SelectionStrategy
from strategies.roster import Needs, Roster, RoundInfo, Selection


@dataclass(frozen=True)
class FullConfig(Settings):
    """Full participation has no settings."""


class FullParticipation(SelectionStrategy):
    """Everybody."""

    name: ClassVar[str] = "full"
    paper: ClassVar[str] = "McMahan et al. 2017 (FedAvg with C = 1)"
    Config: ClassVar[type[Settings]] = FullConfig
    exact_cohort: ClassVar[bool] = False
    free_cohort: ClassVar[bool] = False

    @classmethod
    def needs(cls, config: Settings) -> Needs:
        """Nothing."""
        return Needs()

    def select(self, roster: Roster, round_info: RoundInfo, count: int, rng: np.random.Generator) -> Selection:
        """All available clients; `count` is not read."""
        return Selection(roster.ids, np.ones(roster.ids.size))
