"""HeteRo-Select: one informativeness score drives selection, compression and aggregation.

Masud, Jahin and Hasan, "HeteRo-Select: Informativeness as the Participation Driver in Heterogeneous Federated
Learning", arXiv:2508.06692v2, 2026. This file has Eqs. 1-6 (score and selection). Eqs. 7-8 (budget) are in
`strategies.round.budget`, Eqs. 9-11 (error feedback, curvature) in `clients`, Eqs. 12 and 18 (local
training) in `clients.local_training`, Eqs. 13-14 (server) in `strategies.aggregation.server_optimizer`.

Deviations
----------
- A component that is equal for all clients is 0 after min-max; a score that is equal for all is 1. (The authors' code
  uses 1 for both. A constant component shifts every score by the same amount, which the min-max of Eq. 1 removes, so
  the two agree.)
- The running average of Eq. 3 is the last aggregate in the text (`average-decay` 0, the default), and 0.9 old + 0.1 new
  in the authors' code.
- An infinite loss counts as the largest finite one, and a NaN loss as an average one.
- The paper probes every client in every round. `probe-candidates` and `probe-every` probe fewer: a client that is not
  probed keeps the loss of its last probe. Before its first probe its loss counts as average.
"""

from dataclasses import dataclass
from typing import final

import numpy as np

from fedsel_app.config import Settings, setting, unless
from fedsel_app.config.settings import ReadBy
from strategies.base import SelectionStrategy
from strategies.method import MethodContext
from strategies.roster import Floats, Ints, Needs, Outcome, Roster, RoundInfo, Selection
from strategies.selection_math.sampling import finite, gumbel_top, min_max
from strategies.selection_math.similarity import inner_products

COLD_START_DIVERSITY = 0.5
STALENESS_SCALE = 0.5
"""Scale gamma_St of the staleness, before min-max."""
LARGEST_ADAPTIVE_RATE = 0.15
"""Largest score-adaptive learning rate, as in the authors' code."""
FEW = 3
"""Largest number of clients whose scores are not their weights. Of two or three, min-max makes one 0 and one 1,
however close they were, so that one of two hospitals would never count."""


PROBED: ReadBy = {"without": unless("loss"), "loss-weight": unless(0.0), "loss-source": ("probe",)}
DIVERSE: ReadBy = {"without": unless("diversity"), "diversity-weight": unless(0.0)}
"""Conditions with which settings of the score are read: see `setting`."""


@dataclass(frozen=True)
class HeteroSelectConfig(Settings):
    """Settings of HeteRo-Select: the weights of the score (Eq. 1) and the sources of its parts."""

    loss_weight: float = setting(
        1.0,
        "weight of the loss component V' in the score; 0 leaves it out",
        low=0.0,
        read_by={"without": unless("loss")},
    )
    diversity_weight: float = setting(
        0.3,
        "weight lambda_D of the gradient diversity D in the score",
        low=0.0,
        read_by={"without": unless("diversity")},
    )
    fairness_weight: float = setting(
        0.2,
        "weight lambda_F of the fairness F' in the score",
        low=0.0,
        read_by={"without": unless("fairness-staleness")},
    )
    staleness_weight: float = setting(
        0.2,
        "weight lambda_St of the staleness St' in the score",
        low=0.0,
        read_by={"without": unless("fairness-staleness")},
    )
    without: str = setting(
        "none",
        "components that are left out of the score regardless of their weights, for ablations",
        choices=("none", "loss", "diversity", "fairness-staleness"),
    )
    temperature: float = setting(1.0, "softmax temperature tau_0 of the selection; it halves over the run", above=0.0)
    loss_source: str = setting(
        "probe",
        "source of the loss component: a probe of the current model on probe-batches, or the loss that the client"
        " reported when it last trained",
        choices=("probe", "last-fit"),
    )
    probe_candidates: int = setting(
        0, "number of clients drawn for the loss probe of a round; 0 probes all", low=0, read_by=PROBED
    )
    probe_every: int = setting(1, "number of rounds from one loss probe to the next", low=1, read_by=PROBED)
    average_decay: float = setting(
        0.0,
        "share of the old value in the running average update, from which D measures distances",
        low=0.0,
        below=1.0,
        read_by=DIVERSE,
    )
    average_start: str = setting(
        "zero",
        "running average update before the first round: zero, or the first aggregate",
        choices=("zero", "first"),
        read_by=DIVERSE | {"average-decay": unless(0.0)},
    )
    score_adaptive_lr: bool = setting(
        False, "raises a client's local learning rate with its score S_k, to eta (1 + S_k), at most 0.15"
    )

    def weights(self) -> dict[str, float]:
        """Component -> weight in the score; 0 for what is left out."""
        weights = {
            "loss": self.loss_weight,
            "diversity": self.diversity_weight,
            "fairness": self.fairness_weight,
            "staleness": self.staleness_weight,
        }
        return weights | dict.fromkeys(weights.keys() & set(self.without.split("-")), 0.0)


def fairness(selections: Ints) -> Floats:
    """F'_k = clip(1 - h_k / mean(h), -1, 1), or 0 while no client was selected (Eq. 4). int64 (n,) -> float64 (n,)."""
    mean = selections.mean()
    return np.clip(1.0 - selections / mean, -1.0, 1.0) if mean > 0 else np.zeros(selections.shape)


def staleness(last_selected: Ints, server_round: int) -> Floats:
    """St'_k = gamma log(1 + t - l_k) before min-max (Eq. 5). int64 (n,) -> float64 (n,)."""
    return np.asarray(STALENESS_SCALE * np.log1p(server_round - last_selected))


def diversity(dots: Floats, norms: Floats, average_norm: float) -> Floats:
    """D_k = clip(1 - cos, 0, 1) of clients' last updates and the average one (Eq. 3), (n,); 0.5 without an update."""
    scale = norms * average_norm
    cosines = np.divide(dots, scale, out=np.full(scale.shape, 1.0 - COLD_START_DIVERSITY), where=scale > 0)
    return np.asarray(np.clip(1.0 - cosines, 0.0, 1.0))


def temperature(round_info: RoundInfo, start: float) -> float:
    """tau(t) = tau_0 (1 - 0.5 min(t/T, 1)) (below Eq. 6)."""
    return start * (1.0 - 0.5 * min(round_info.number / round_info.total, 1.0))


@final
class HeteroSelect(SelectionStrategy[HeteroSelectConfig]):
    """Softmax selection by the score of Eq. 1, which also sets weights, kept fractions and, if set, learning rates."""

    name = "hetero-select"
    paper = "Masud, Jahin & Hasan 2026, arXiv:2508.06692"
    state_fields = ("_diversity", "_average", "_last_probed")

    def __init__(self, context: MethodContext) -> None:
        super().__init__(context)
        self._weights = self.config.weights()
        clients = context.run.clients
        self._diversity = np.full(clients, COLD_START_DIVERSITY)
        self._average = np.zeros(context.initial.size)
        """Running average of the aggregates."""
        self._probes = self.needs(self.config).loss_probe
        self._last_probed = np.full(clients, np.nan)
        """Each client's loss at its last probe."""

    @classmethod
    def needs(cls, config: HeteroSelectConfig) -> Needs:
        """A loss probe of all clients for V' (unless `loss-source` is last-fit), and their last updates for D."""
        weights = config.weights()
        return Needs(
            loss_probe=weights["loss"] > 0 and config.loss_source == "probe",
            updates=weights["diversity"] > 0,
            round_updates=False,
        )

    @classmethod
    def probe_count(cls, config: HeteroSelectConfig, round_info: RoundInfo, count: int, available: int) -> int:
        """All available clients; fewer with `probe-candidates`, none between the probe rounds of `probe-every`."""
        if (round_info.number - 1) % config.probe_every:
            return 0
        return min(config.probe_candidates or available, available)

    def candidates(self, roster: Roster, round_info: RoundInfo, count: int, rng: np.random.Generator) -> Ints:
        """In a round with a loss probe, all clients or a uniform draw of `probe-candidates`."""
        probed = self.probe_count(self.config, round_info, count, roster.ids.size)
        if probed == roster.ids.size:
            return roster.ids
        return np.sort(rng.choice(roster.ids, probed, replace=False))

    def components(self, roster: Roster, round_info: RoundInfo) -> dict[str, Floats]:
        """V', D, F' and St' of the available clients (Eqs. 2-5), each float64 (n,) by ascending id."""
        ids = roster.ids
        losses = self._last_probed if self.config.loss_source == "probe" else roster.fit_losses
        if self._probes:
            losses = np.where(np.isnan(roster.losses), self._last_probed, roster.losses)
        stale = staleness(roster.last_selected[ids], round_info.number)
        return {
            "loss": min_max(finite(losses[ids]), flat=0.0),
            "diversity": self._diversity[ids],
            "fairness": fairness(roster.selections[ids]),
            "staleness": min_max(stale, flat=0.0),
        }

    def select(self, roster: Roster, round_info: RoundInfo, count: int, rng: np.random.Generator) -> Selection:
        """`count` clients without replacement, with probabilities softmax(S / tau(t)) (Eqs. 1 and 6).

        Their own weights are their scores. In a federation of at most `FEW` clients they have none: examples count.
        """
        config = self.config
        components = self.components(roster, round_info)
        total = sum((self._weights[name] * values for name, values in components.items()), np.zeros(roster.ids.size))
        score = min_max(total, flat=1.0)
        picked = gumbel_top(score / temperature(round_info, config.temperature), count, rng)
        rates = None
        if config.score_adaptive_lr:
            rate = self.context.training.learning_rate(round_info.number, round_info.total)
            rates = np.minimum(rate * (1.0 + score[picked]), LARGEST_ADAPTIVE_RATE)
        return Selection(
            clients=roster.ids[picked],
            scores=score[picked],
            components={name: values[picked] for name, values in components.items()},
            weights=score[picked] if self.context.run.clients > FEW else None,
            learning_rates=rates,
        )

    def update(self, outcome: Outcome) -> None:
        """Recompute every D_k against the new average (Eq. 3), and keep the losses that later rounds need."""
        if self._probes and (self.config.probe_candidates or self.config.probe_every > 1):
            losses = self.roster.losses
            self._last_probed = np.where(np.isnan(losses), self._last_probed, losses)
        if outcome.aggregate is None or not self._weights["diversity"]:
            return
        newest = outcome.aggregate.astype(np.float32)
        decay = self.config.average_decay
        if self.config.average_start == "first" and not self._average.any():
            decay = 0.0
        self._average = decay * self._average + (1.0 - decay) * newest
        average_norm = float(np.sqrt(np.square(self._average).sum()))
        updates = list(self.last_updates.values())
        (dots,) = inner_products(updates, [self._average])
        norms = np.array([update.norm() for update in updates])
        self._diversity[list(self.last_updates)] = diversity(dots, norms, average_norm)
