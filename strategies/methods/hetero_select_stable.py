"""HeteRo-Select for stability: loss, label diversity, momentum, fairness, staleness and update norm in one score.

Masud, Jahin and Hasan, "Stabilizing Federated Learning under Extreme Heterogeneity with HeteRo-Select". This file has
Eqs. 1-12: the additive score (Eq. 1, the default), the multiplicative one (Eq. 2), and softmax selection. The proximal
term of Eq. 13 is the setting `mu`. The models are averaged with equal weights (Alg. 1, line 27).

Deviations
----------
- Losses are measured on `probe-batches` mini-batches. A component that is equal for all clients is 0 after the min-max
  of Eq. 3, whose epsilon is left out.
- The average distribution of Eq. 4 is the unweighted mean of the available clients' label distributions.
- Eq. 5 compares the last two measured losses of a client (of consecutive rounds unless it was away). m is 0 until there
  are two losses, and if both are 0. It divides by the size of the earlier loss, because a loss may be negative. An
  infinite loss counts as the largest finite one, and a NaN loss as an average one.
- Eq. 11 uses the norms of the uploaded, compressed updates, and their mean over the available clients that have one.
  The paper gives no value for its alpha; the default 0.5 is our choice.
- Score-proportional kept fractions and weights, if they are set, use the score after min-max.
"""

from dataclasses import dataclass
from typing import final

import numpy as np

from fedsel_app.config import Settings, setting
from strategies.base import SelectionStrategy
from strategies.method import MethodContext
from strategies.roster import Floats, Ints, Needs, Outcome, Roster, RoundInfo, Selection
from strategies.selection_math.sampling import finite, gumbel_top, min_max

STALENESS_ROUNDS = 20
"""Number of rounds after which staleness no longer grows (Sec. III-A)."""
COOLING_ROUNDS = 100
"""Number of rounds in which the temperature and the weight of D halve."""


@dataclass(frozen=True)
class HeteroSelectStableConfig(Settings):
    """Settings of the stable HeteRo-Select: the form of the score, and the constants of its components."""

    combination: str = setting(
        "additive",
        "how the components form the score: as their sum, or as their product",
        choices=("additive", "multiplicative"),
    )
    fairness_scale: float = setting(0.3, "scale eta of the fairness F", low=0.0)
    staleness_scale: float = setting(0.7, "scale gamma of the staleness St", low=0.0)
    norm_penalty: float = setting(0.5, "largest reduction alpha of the score by the norm penalty N", low=0.0, high=1.0)
    temperature: float = setting(2.0, "softmax temperature tau_0 of the selection", above=0.0)


def cooling(server_round: int, rounds: int) -> float:
    """1 - 0.5 min(t / rounds, 1), in Eq. 4 and in tau(t)."""
    return 1.0 - 0.5 * min(server_round / rounds, 1.0)


def label_divergence(counts: Ints) -> Floats:
    """JS(P_k || P_avg) in nats, float64 (n,), from examples per class, int64 (n, classes); 0 without examples."""
    totals = counts.sum(axis=1, keepdims=True)
    if not totals.any():
        return np.zeros(counts.shape[0])
    average = (counts / np.maximum(totals, 1))[totals[:, 0] > 0].mean(axis=0)
    label_shares = np.where(totals > 0, counts / np.maximum(totals, 1), average)
    middle = (label_shares + average) / 2.0
    averages = np.broadcast_to(average, label_shares.shape)
    return np.maximum((_divergence(label_shares, middle) + _divergence(averages, middle)) / 2.0, 0.0)


def _divergence(of: Floats, against: Floats) -> Floats:
    """KL(of || against) by row, 0 log 0 = 0; `against` is positive wherever `of` is."""
    ratio = np.divide(of, against, out=np.ones(of.shape), where=of > 0)
    return np.asarray((of * np.log(ratio)).sum(axis=1))


def momentum(before: Floats, after: Floats) -> Floats:
    """M_k = 2 / (1 + exp(-5 m_k)) - 0.5, m_k = (before - after) / |before| (Eq. 5), float64 (n,) in [-0.5, 1.5].

    It is 0.5 (m_k = 0) where one of the losses is NaN (never measured).
    """
    unknown = np.isnan(before) | np.isnan(after)
    drop = np.where(unknown, 0.0, before - after)
    # Beyond 10 the sigmoid is constant in float64, so the quotient is clipped there before it can overflow.
    size = np.abs(before)
    change = np.divide(np.clip(drop, -10.0 * size, 10.0 * size), size, out=10.0 * np.sign(drop), where=size > 0)
    return np.where(unknown, 0.5, 0.5 + np.tanh(2.5 * change))


def fairness(selections: Ints, scale: float) -> Floats:
    """F_k = (1 + eta h_k / max h)^-2 (Eq. 6); 1 while no client was selected. int64 (n,) -> float64 (n,)."""
    most = max(int(selections.max(initial=0)), 1)
    return np.asarray((1.0 + scale * selections / most) ** -2)


def staleness(last_selected: Ints, server_round: int, scale: float) -> Floats:
    """St_k = 1 + gamma log(1 + min(t - l_k, 20)) (Eq. 7). int64 (n,) -> float64 (n,)."""
    return np.asarray(1.0 + scale * np.log1p(np.minimum(server_round - last_selected, STALENESS_ROUNDS)))


def norm_factor(square_norms: Floats, penalty: float) -> Floats:
    """N_k = 1 - alpha (2 / (1 + exp(-3 r_k)) - 1), r_k = ||update||^2 / their mean (Eq. 11), float64 (n,).

    It is 1 where `square_norms` is NaN (never trained).
    """
    norms = square_norms[~np.isnan(square_norms)]
    mean = norms.mean() if norms.size else 0.0
    ratio = np.nan_to_num(square_norms) / mean if mean > 0 else np.zeros(square_norms.shape)
    return np.asarray(1.0 - penalty * np.tanh(1.5 * ratio))


@final
class HeteroSelectStable(SelectionStrategy[HeteroSelectStableConfig]):
    """Softmax selection on the score of Eq. 1 or Eq. 2; equal weights."""

    name = "hetero-select-stable"
    paper = "Masud, Jahin and Hasan (HeteRo-Select, stability)"
    state_fields = ("_losses_before", "_square_norms")

    def __init__(self, context: MethodContext) -> None:
        super().__init__(context)
        self._losses_before = np.full(context.run.clients, np.nan)
        """Every client's loss at its last probe; NaN before the first."""
        self._square_norms = np.full(context.run.clients, np.nan)
        """The square norm of its last update; NaN before the first."""

    @classmethod
    def needs(cls, config: HeteroSelectStableConfig) -> Needs:
        """A loss probe of every client and the norms of the updates in every round, and the label counts once."""
        return Needs(loss_probe=True, label_counts=True, norms=True, round_updates=False)

    def factors(self, roster: Roster, round_info: RoundInfo) -> dict[str, Floats]:
        """V', D, M, F, St and N of the available clients (Eqs. 3-7 and 11), each float64 (n,) by ascending id."""
        config, ids = self.config, roster.ids
        measured = roster.losses[ids]
        losses = finite(measured)
        weight = 2.0 * cooling(round_info.number, COOLING_ROUNDS)
        return {
            "loss": min_max(losses, flat=0.0),
            "diversity": weight * label_divergence(roster.label_counts[ids]),
            "momentum": momentum(self._losses_before[ids], np.where(np.isnan(measured), np.nan, losses)),
            "fairness": fairness(roster.selections[ids], config.fairness_scale),
            "staleness": staleness(roster.last_selected[ids], round_info.number, config.staleness_scale),
            "norm": norm_factor(self._square_norms[ids], config.norm_penalty),
        }

    def score(self, factors: dict[str, Floats]) -> Floats:
        """S_k, float64 (n,): Eq. 1, with 1 subtracted from F, St and N (Eqs. 8-10), or Eq. 2."""
        if self.config.combination == "multiplicative":
            return np.asarray(np.prod(list(factors.values()), axis=0))
        return np.asarray(
            factors["loss"]
            + factors["diversity"]
            + factors["momentum"]
            + (factors["fairness"] - 1.0)
            + (factors["staleness"] - 1.0)
            + (factors["norm"] - 1.0)
        )

    def select(self, roster: Roster, round_info: RoundInfo, count: int, rng: np.random.Generator) -> Selection:
        """`count` clients without replacement, with probabilities softmax(S / tau(t)) (Eq. 12)."""
        config = self.config
        factors = self.factors(roster, round_info)
        score = self.score(factors)
        picked = gumbel_top(score / (config.temperature * cooling(round_info.number, COOLING_ROUNDS)), count, rng)
        return Selection(
            clients=roster.ids[picked],
            scores=min_max(score, flat=1.0)[picked],
            components={name: values[picked] for name, values in factors.items()},
            weights=np.ones(picked.size),
        )

    def update(self, outcome: Outcome) -> None:
        """Keep this round's losses for the momentum of the next round, and the norms of the updates."""
        measured = np.flatnonzero(~np.isnan(self.roster.losses))
        self._losses_before[measured] = finite(self.roster.losses[measured])
        self._square_norms[outcome.clients] = [norm**2 for norm in outcome.norms.tolist()]
