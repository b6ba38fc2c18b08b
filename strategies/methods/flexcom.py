"""FlexCom: the kept fraction of each client depends on its own computing and link.

Li, Shi, Hou, Li, Pan and Han, "To Talk or to Work: Flexible Communication Compression for Energy Efficient Federated
Learning over Heterogeneous Mobile Edge Devices", INFOCOM 2021 (arXiv:2012.11804).

Deviations
----------
Reconstructed: the paper balances the energy of computing and of sending, and its closed form was not at hand. Here
FlexCom is what studies of time use as a baseline: a uniform cohort whose members finish at the same time.
theta_i = clip((T - a_i) b_i / M, theta_min, 1), where a_i is the seconds of client i's training, b_i its uplink, M the
bits of a full update and T the cohort's median duration at its average kept fraction. theta_min is `kept_min`, and the
average kept fraction is `kept-fraction`. The cohort is averaged by examples.
"""

from typing import final

import numpy as np

from fedsel_app.config import ConfigError, Settings, SharedSettings
from fedsel_app.config.compression import COMPRESSORS
from fedsel_app.config.settings import named
from strategies.base import SelectionStrategy
from strategies.roster import Needs, Roster, RoundInfo, Selection
from strategies.round.budget import client_seconds, fitting_fractions


@final
class FlexCom(SelectionStrategy[Settings]):
    """A uniform cohort; the upload of each member takes the time that its training leaves."""

    name = "flexcom"
    paper = "Li et al. 2021, INFOCOM (reconstructed)"

    @classmethod
    def needs(cls, config: Settings) -> Needs:
        """Every client's link and seconds a step."""
        return Needs(links=True)

    @classmethod
    def check_settings(cls, config: Settings, shared: SharedSettings) -> None:
        """Refuse a compressor without a kept fraction of each client."""
        if not shared.compression.own_fractions:
            sparse = named(COMPRESSORS, lambda traits: traits.sparse and not traits.common)
            raise ConfigError(
                f"Set 'compressor' to {sparse}, or choose another 'strategy': flexcom sets the number of entries that "
                "each client sends."
            )

    def select(self, roster: Roster, round_info: RoundInfo, count: int, rng: np.random.Generator) -> Selection:
        """A uniform draw of `count` clients, with kept fractions that let them finish together."""
        ids = roster.ids
        picked = np.sort(rng.choice(ids.size, size=count, replace=False))
        usual, least = self.context.budget.kept_fraction, self.context.compression.kept_min
        compute_s, upload_s = client_seconds(roster, ids, self.context.initial.size, usual, self.context.compression)
        deadline_s = float(np.median((compute_s + usual * upload_s)[picked]))
        return Selection(
            clients=ids[picked],
            components={"deadline_s": np.full(count, deadline_s)},
            kept_fractions=fitting_fractions(deadline_s, compute_s[picked], upload_s[picked], least),
        )
