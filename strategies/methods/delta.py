"""DELTA: unbiased sampling by the diversity and the variance of clients' gradients.

Wang, Zhang, Chen, Gao, Sun, Huang, Yang and Lin, "DELTA: Diverse Client Sampling for Fasting Federated Learning",
NeurIPS 2023 (arXiv:2205.13925). p_i is proportional to r_i = sqrt(a1 zeta_i^2 + a2 sigma_i^2). zeta_i is the distance
of the client's gradient from the mean gradient, and sigma_i^2 is the variance of its mini-batch gradients. This is the
practical version: p = 1/N at first. After each round the participants divide the sum of their probabilities again, in
proportion to their r; the others keep theirs. Aggregation over m independent draws is w <- w + (1/m) sum (omega_i /
p_i) Delta_i with omega_i = n_i / n. It is unbiased, and its weights do not sum to 1.

Deviations
----------
- The constants follow a third-party configuration (a1 0.8, a2 0.2): the paper's constants need the smoothness L.
- g_i is the client's mean gradient over its local steps, inferred from its update as the server received it
  (`mean_gradient`). So it includes the effects of the proximal term, clipping and compression.
- Draws are with replacement, because unbiasedness needs it. A client that is drawn twice trains once with twice the
  weight, so a round may have fewer than m clients. `draws` = distinct is the authors' code: m different clients with
  the same weights, which is biased.
- p is mixed with the uniform distribution, of the share 0.05, which bounds every weight by omega_i N / 0.05.
- p is renormalised over the available clients. If there are at most m of them, all take part with weights omega_i.
- The share of a client that fails is lost and not given to the others: the weights are used without normalisation.
- FedIS (r_i = ||g_i||) is not implemented, nor the rule of the authors' code, (n_i / n) ((1 - beta) ||g_i|| + beta
  ||g_i - mean g||) without sigma, nor its server momentum.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import RunConfig, Settings, setting
from fedsel_app.messages.scalars import Report
from strategies.base import SelectionStrategy
from strategies.method import MethodContext
from strategies.roster import Floats, Ints, Needs, Outcome, Roster, RoundInfo, Selection
from strategies.selection_math.sampling import finite, gumbel_top, shares

SIGMA = Report.GRADIENT_DEVIATION
UNIFORM_SHARE = 0.05
"""Share of the uniform distribution in the selection probabilities."""


@dataclass(frozen=True)
class DeltaConfig(Settings):
    """Settings of DELTA: the terms of the sampling probabilities, and how clients are drawn."""

    diversity_weight: float = setting(0.8, "weight a1 of the diversity zeta^2", low=0.0)
    variance_weight: float = setting(0.2, "weight a2 of the variance sigma^2", low=0.0)
    draws: str = setting(
        "replacement",
        "how clients are drawn: in m independent draws, which is unbiased, or as m different clients",
        choices=("replacement", "distinct"),
    )


def mean_gradient(update: NDArray[np.float32], effective_steps: float, lr: float) -> Floats:
    """The constant gradient with which heavy-ball steps, started at rest, add up to `update` (N,).

    Under a constant gradient g, step j moves the model by -lr (1 - momentum^j) / (1 - momentum) g. All steps together
    move it by -lr (effective steps of `TrainingConfig`) g.
    """
    return np.asarray(-update.astype(np.float64) / (lr * effective_steps))


def scores_by_diversity(gradients: list[Floats], sigma: Floats, a1: float, a2: float) -> Floats:
    """r_i = sqrt(a1 ||g_i - mean g||^2 + a2 sigma_i^2), float64 (r,)."""
    mean = np.mean(gradients, axis=0)
    zeta = np.sqrt([np.square(gradient - mean).sum() for gradient in gradients])
    return np.asarray(np.hypot(np.sqrt(a1) * zeta, np.sqrt(a2) * sigma))


def shared_out(probabilities: Floats, clients: Ints, scores: Floats) -> Floats:
    """Copy of p (K,) in which `clients` divide their total again, in proportion to `scores`; unchanged if all are 0."""
    fresh = probabilities.copy()
    total = scores.sum()
    if total > 0:
        fresh[clients] = scores / total * probabilities[clients].sum()
    return fresh


@final
class Delta(SelectionStrategy[DeltaConfig]):
    """Importance sampling by diversity and variance."""

    name = "delta"
    paper = "Wang et al. 2023, arXiv:2205.13925"
    exact_cohort = False
    needs_whole_cohort = needs_all_selected = "the weights of its draws are right only for a whole cohort"
    state_fields = ("_probabilities",)

    def __init__(self, context: MethodContext) -> None:
        super().__init__(context)
        self._probabilities = np.full(context.run.clients, 1.0 / context.run.clients)

    @classmethod
    def needs(cls, config: DeltaConfig) -> Needs:
        """The participants' sigma."""
        return Needs(reports=frozenset({SIGMA}))

    @classmethod
    def uniform_rounds(cls, config: DeltaConfig, run: RunConfig) -> int:
        """The first round, before any gradient deviation is known."""
        return 1

    def probabilities(self, roster: Roster) -> Floats:
        """Sampling probabilities of the available clients, float64 (n,) by ascending id."""
        mixed = (1.0 - UNIFORM_SHARE) * self._probabilities + UNIFORM_SHARE / self._probabilities.size
        return np.asarray(mixed[roster.ids] / mixed[roster.ids].sum())

    def select(self, roster: Roster, round_info: RoundInfo, count: int, rng: np.random.Generator) -> Selection:
        """`count` draws. A client's weight is omega_i / (m p_i) times its number of draws, not normalised."""
        ids = roster.ids
        omega = shares(roster.examples[ids])
        if count >= ids.size:
            return Selection(ids, weights=omega, normalise=False)
        p = self.probabilities(roster)
        if self.config.draws == "replacement":
            picked, times = np.unique(rng.choice(ids.size, size=count, p=p), return_counts=True)
        else:
            picked = gumbel_top(np.log(p), count, rng)
            times = np.ones(count, np.int64)
        return Selection(
            ids[picked],
            components={"probability": p[picked]},
            weights=times * omega[picked] / (count * p[picked]),
            normalise=False,
        )

    def update(self, outcome: Outcome) -> None:
        """Divide the participants' probabilities again, in proportion to their r."""
        training = self.context.training
        lr = training.learning_rate(outcome.round_info.number, outcome.round_info.total)
        if not outcome.updates or lr <= 0:
            return
        gradients = [
            mean_gradient(update.dense(), training.effective_steps(steps), lr)
            for update, steps in zip(outcome.updates, outcome.local_steps.tolist(), strict=True)
        ]
        sigma = finite(outcome.reports[SIGMA])
        scores = scores_by_diversity(gradients, sigma, self.config.diversity_weight, self.config.variance_weight)
        self._probabilities = shared_out(self._probabilities, outcome.clients, scores)
