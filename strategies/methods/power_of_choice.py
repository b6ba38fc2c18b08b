"""Power-of-Choice: draw candidates by data size, and select those with the largest losses.

Cho, Wang and Joshi, "Client Selection in Federated Learning: Convergence Analysis and Power-of-Choice Selection
Strategies", 2020 (arXiv:2010.01243); "Towards Understanding Biased Client Selection in Federated Learning", AISTATS
2022. Steps as in Sec. 4 and the authors' code:

1. Draw d candidates A without replacement, with probabilities p_k = n_k / n (`weighted_keys`).
2. pow-d: each candidate reports the loss of the current model over all its training examples. rpow-d: no client is
   probed; the server uses the mean loss of the client's last local training, or +inf if it was never selected.
3. S is the m candidates with the largest loss; among equals the order of the draw decides.
4. Average the updates with equal weights.

Deviations
----------
- Round 1 probes the candidates on the initial model (the authors' code draws round 1 uniformly). rpow-d has no losses
  then, so it draws round 1 with probabilities p_k.
- `loss` = test is not a rule of the authors: in the paper of FedCVR-Bolt (App. B.1) Power-of-Choice ranks by test loss.
  Here this is the loss on the candidates' own test parts. In any other comparison the method must not see these.
- If d <= m, all candidates are selected regardless of their losses, so none is probed.
- Step 3 of pow-d breaks ties by a new draw with probabilities p_k among the candidates, because
  `select` does not know the order in which they were drawn.
- A candidate whose probe failed ranks below all others. In rpow-d a client that was selected but never reported a loss
  counts as average, so that a client that always fails is not selected for ever.
- cpow-d (the loss of one mini-batch) and adapow-d (a falling d) are not implemented.
"""

from dataclasses import dataclass
from typing import final

import numpy as np

from fedsel_app.config import ConfigError, Settings, SharedSettings, setting
from strategies.base import SelectionStrategy
from strategies.roster import Floats, Ints, Needs, Roster, RoundInfo, Selection
from strategies.selection_math.sampling import finite, largest, weighted_keys


@dataclass(frozen=True)
class PowerOfChoiceConfig(Settings):
    """Settings of Power-of-Choice: the candidates, and the losses by which they are compared."""

    variant: str = setting(
        "pow-d",
        "losses that are compared: of the current model over all training data, or as reported at the last training",
        choices=("pow-d", "rpow-d"),
    )
    candidates: int = setting(0, "number of candidates d, at least the cohort; 0 takes twice the cohort", low=0)
    loss: str = setting(
        "train", "data of the loss probes: the training data, or the clients' own test parts", choices=("train", "test")
    )


def candidate_count(config: PowerOfChoiceConfig, count: int, available: int) -> int:
    """Number of candidates d in a round that selects `count` clients, in `count` ... `available`."""
    return min(max(config.candidates or 2 * count, count), available)


@final
class PowerOfChoice(SelectionStrategy[PowerOfChoiceConfig]):
    """Selects the m largest losses among d candidates, which are drawn by data size."""

    name = "power-of-choice"
    paper = "Cho, Wang and Joshi 2020 (pow-d, rpow-d)"
    explores = False

    @classmethod
    def needs(cls, config: PowerOfChoiceConfig) -> Needs:
        """A probe of the candidates with all their examples; none in rpow-d."""
        return Needs(loss_probe=config.variant == "pow-d", probe_batches=0, probe_test_part=config.loss == "test")

    @classmethod
    def check_settings(cls, config: PowerOfChoiceConfig, shared: SharedSettings) -> None:
        """Refuse too few candidates, as many for a single place, and a test loss that no client measures."""
        if config.candidates and shared.waiting.waiting != "synchronous":
            raise ConfigError(
                "Set 'power-of-choice.candidates' to 0, or 'waiting' to synchronous: so many candidates for a whole"
                " cohort would be as many for each single place."
            )
        if config.loss == "test" and config.variant == "rpow-d":
            raise ConfigError(
                "Set 'power-of-choice.loss' to train, or choose another 'power-of-choice.variant': rpow-d ranks by the "
                "last training losses."
            )
        if 0 < config.candidates < shared.run.cohort:
            raise ConfigError(
                f"The 'power-of-choice.candidates' parameter must be at least 'cohort' ({shared.run.cohort}). "
                f"Got {config.candidates}."
            )

    @classmethod
    def probe_count(cls, config: PowerOfChoiceConfig, round_info: RoundInfo, count: int, available: int) -> int:
        """d; 0 where all candidates will be selected."""
        drawn = candidate_count(config, count, available)
        return drawn if drawn > count else 0

    def candidates(self, roster: Roster, round_info: RoundInfo, count: int, rng: np.random.Generator) -> Ints:
        """Step 1, ascending."""
        ids = roster.ids
        drawn = self.probe_count(self.config, round_info, count, ids.size)
        return np.sort(ids[largest(_by_size(roster, rng), drawn)]) if drawn else np.zeros(0, np.int64)

    def select(self, roster: Roster, round_info: RoundInfo, count: int, rng: np.random.Generator) -> Selection:
        """Steps 1 (rpow-d) and 3."""
        ids, keys = roster.ids, _by_size(roster, rng)
        if self.config.variant == "rpow-d":
            drawn = ids[largest(keys, candidate_count(self.config, count, ids.size))]
            losses = np.where(roster.selections[drawn] == 0, np.inf, finite(roster.fit_losses[drawn]))
        else:
            probed = np.flatnonzero(~np.isnan(roster.losses[ids]))
            compared = probed if probed.size >= count else np.arange(ids.size)
            drawn = ids[compared[np.argsort(-keys[compared], kind="stable")]]
            losses = roster.losses[drawn]
        clients = np.sort(drawn[largest(losses, count)])
        return Selection(clients, weights=np.ones(clients.size))


def _by_size(roster: Roster, rng: np.random.Generator) -> Floats:
    return weighted_keys(roster.examples[roster.ids].astype(np.float64), rng)
