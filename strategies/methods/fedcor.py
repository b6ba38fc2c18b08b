"""FedCor: a Gaussian process predicts which clients' training lowers the losses of all clients most.

Tang, Ning, Wang, Sun, Wang, Li and Chen, "FedCor: Correlation-Based Active Client Selection Strategy for Heterogeneous
Federated Learning", CVPR 2022 (arXiv:2103.13822). The loss changes of all clients in a round are Normal(mu, Sigma).
Sigma = X^T X + s^2 I has a column of X for each client. Adam fits X to observed changes by the discounted marginal
likelihood. Selection is greedy: each step selects the client with the largest alpha_k / sqrt(Sigma_kk) sum_{i left} p_i
Sigma_ik, and then conditions Sigma on it. alpha_k is beta to the power of k's selections since the last fit. The first
rounds draw a uniform cohort and observe its effect; after them every `interval`-th round does.

Deviations
----------
- Reconstructed from the authors' code: the paper's text was not at hand. The code's leave-one-out objective is not
  implemented (it loops over samples instead of clients).
- Losses come from a probe of every client's whole training data at the start of a round (the code holds out 20%). A
  change is the difference of two successive probes. So it is known one round later, and the fit uses one change fewer.
- The later observed rounds are normal rounds with a uniform cohort; the code trains a model that it discards. So every
  `interval` rounds a uniform cohort replaces the selected one.
- A client that was absent, or whose loss was not finite, at one of the two probes is left out of that observation. A
  change beyond 100 nats counts as 100. Clients that are absent from a round are not part of its sums.
- If the server does not wait for its cohort, Sigma is first conditioned on the clients under way.
- Weights are equal. Epsilon-greedy, dynamic stopping and other kernels are not implemented.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
from threadpoolctl import threadpool_limits

from fedsel_app.config import RunConfig, Settings, setting
from fedsel_app.seeds import Purpose, stream
from strategies.base import SelectionStrategy
from strategies.method import MethodContext
from strategies.roster import NOBODY, Floats, Ints, Needs, Outcome, Roster, RoundInfo, Selection
from strategies.selection_math.sampling import shares

NOISE_VARIANCE = 0.01**2
ADAM_RATE = 0.01
LARGEST_CHANGE = 100.0
DIMENSION = 15
"""Length of the embedding of a client, d."""
DISCOUNT = 0.95
"""Weight of an observation, to the power of its age in rounds."""
ANNEALING = 0.95
"""Factor on alpha of a client each time it is selected."""
HISTORY = 100
"""Largest age of an observation in rounds (group_size in the authors' code)."""

Observed = tuple[Ints | slice, Floats, Floats]
"""Clients, the rows of observations of them, and the rows' weights."""


@dataclass(frozen=True)
class FedCorConfig(Settings):
    """Settings of FedCor: the observed rounds and the fit."""

    warmup: int = setting(15, "number of uniform rounds before the first fit, from which the process learns", low=1)
    interval: int = setting(
        10, "number of rounds from one later uniform round to the next, from which the process learns", low=2
    )
    first_steps: int = setting(1000, "number of Adam steps at the end of the warm-up", low=1, high=10_000_000)
    steps: int = setting(100, "number of Adam steps after each later observation", low=1, high=10_000_000)


def discounted_mean(changes: Floats, weights: Floats) -> Floats:
    """Mean of observations (e, K) with weights (e,); for each client over its known entries, 0 if it has none."""
    finite = np.isfinite(changes)
    total = weights @ finite
    return np.asarray(
        np.divide(weights @ np.where(finite, changes, 0.0), total, out=np.zeros_like(total), where=total > 0)
    )


def by_pattern(centred: Floats, weights: Floats) -> list[Observed]:
    """Observations (e, K) with weights (e,), grouped by the set of clients with known entries."""
    finite = np.isfinite(centred)
    groups: list[Observed] = []
    for pattern in np.unique(finite, axis=0):
        rows = (finite == pattern).all(axis=1)
        clients = slice(None) if pattern.all() else np.flatnonzero(pattern)
        groups.append((clients, np.ascontiguousarray(centred[rows][:, pattern]), weights[rows]))
    return groups


def likelihood_gradient(embeddings: Floats, groups: list[Observed], noise_variance: float) -> Floats:
    """Gradient in X (d, K) of sum_e w_e (-log N(y_e | 0, X^T X + s^2 I)); y_e has the known entries of observation e.

    With A = X X^T + s^2 I and u = A^-1 X y it is sum_e w_e (A^-1 X - u (y - X^T u)^T / s^2). The cost is O(K d^2), not
    O(K^3): every array with K columns is a product of X or y with a small matrix.
    """
    gradient = np.zeros_like(embeddings)
    for clients, y, w in groups:
        x = embeddings[:, clients]
        inverse = np.linalg.inv(x @ x.T + noise_variance * np.eye(len(x)))
        u = inverse @ (x @ y.T)
        pull = u * w / noise_variance
        gradient[:, clients] += (w.sum() * inverse + pull @ u.T) @ x - pull @ y
    return gradient


def fitted(embeddings: Floats, centred: Floats, weights: Floats, noise_variance: float, steps: int) -> Floats:
    """X (d, K) after `steps` Adam steps on the discounted likelihood of the observations."""
    x, first, second = embeddings.copy(), np.zeros_like(embeddings), np.zeros_like(embeddings)
    groups = by_pattern(centred, weights)
    # One thread: sums then have one order, and for products this small, starting threads takes longer.
    with threadpool_limits(1):
        for step in range(1, steps + 1):
            gradient = likelihood_gradient(x, groups, noise_variance)
            first += 0.1 * (gradient - first)
            second += 0.001 * (np.square(gradient) - second)
            x -= ADAM_RATE * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
    return x


def greedy(
    embeddings: Floats, noise_variance: float, p: Floats, annealing: Floats, count: int, start: Ints = NOBODY
) -> tuple[Ints, Floats]:
    """Positions and gains, each (count,), of the clients in the order of picking, for X (d, n), p and alpha (n,).

    Sigma is conditioned on the clients `start` before.

    Sigma itself is never formed. Conditioning on a pick subtracts an outer product v v^T from it. So its diagonal and
    Sigma p are enough; the entries of picked clients vanish in both.
    """
    variance = np.square(embeddings).sum(axis=0) + noise_variance
    effect = embeddings.T @ (embeddings @ p) + noise_variance * p
    free = np.ones(p.size, bool)
    steps = start.size + count
    taken = np.zeros((steps, p.size))
    picked, gains = np.zeros(steps, np.int64), np.zeros(steps)
    for step in range(steps):
        gain = np.where(free, annealing * effect / np.sqrt(variance), -np.inf)
        best = int(start[step]) if step < start.size else int(gain.argmax())
        picked[step], gains[step], free[best] = best, gain[best], False
        column = embeddings.T @ embeddings[:, best] - taken[:step, best] @ taken[:step]
        column[best] += noise_variance
        taken[step] = column / np.sqrt(variance[best])
        variance = np.maximum(variance - np.square(taken[step]), noise_variance)
        effect = effect - (p @ taken[step]) * taken[step]
    return picked[start.size :], gains[start.size :]


@final
class FedCor(SelectionStrategy[FedCorConfig]):
    """Selects clients greedily by a Gaussian process of the loss changes."""

    name = "fedcor"
    paper = "Tang et al. 2022, arXiv:2103.13822"
    state_fields = ("_embeddings", "_annealing", "_before", "_changes", "_rounds")

    def __init__(self, context: MethodContext) -> None:
        super().__init__(context)
        clients = context.run.clients
        shape = DIMENSION, clients
        normal = stream(context.run.seed, Purpose.SELECT, 0, 1).standard_normal(shape)
        self._embeddings = normal / np.sqrt(DIMENSION)
        self._annealing = np.ones(clients)
        self._before = np.full(clients, np.nan)
        """Losses at the start of the last round if it was observed; otherwise NaN."""
        self._changes = np.zeros((0, clients))
        """Observed changes of the losses, one row for each of `_rounds`."""
        self._rounds = np.zeros(0, np.int64)

    @classmethod
    def needs(cls, config: FedCorConfig) -> Needs:
        """Loss of every client over its training data, in the rounds that `candidates` chooses."""
        return Needs(loss_probe=True, probe_batches=0, round_updates=False)

    @classmethod
    def uniform_rounds(cls, config: FedCorConfig, run: RunConfig) -> int:
        """The warm-up, and the round after which the process is fitted."""
        return config.warmup + 1

    def _warms_up(self, number: int) -> bool:
        return number <= self.uniform_rounds(self.config, self.context.run)

    def _uniform(self, number: int) -> bool:
        """True if round `number` has a uniform cohort, whose effect is observed."""
        return self._warms_up(number) or (number - 1) % self.config.interval == 0

    def candidates(self, roster: Roster, round_info: RoundInfo, count: int, rng: np.random.Generator) -> Ints:
        """All clients before and after an observed round, none otherwise."""
        number = round_info.number
        after = self._uniform(number - 1) and number > self.config.warmup + 2
        return roster.ids if self._uniform(number) or after else np.zeros(0, np.int64)

    def select(self, roster: Roster, round_info: RoundInfo, count: int, rng: np.random.Generator) -> Selection:
        """A uniform cohort in observed rounds, the greedy cohort in all others."""
        ids = roster.ids
        if self._uniform(round_info.number):
            return Selection(np.sort(rng.choice(ids, count, replace=False)), weights=np.ones(count))
        ids, start = roster.compared, np.flatnonzero(roster.under_way[roster.compared])
        alpha, p = self._annealing[ids], shares(roster.examples[ids])
        picked, gains = greedy(self._embeddings[:, ids], NOISE_VARIANCE, p, alpha, count, start)
        order = np.argsort(picked)
        picked, gains = picked[order], gains[order]
        return Selection(ids[picked], components={"gain": gains, "annealing": alpha[picked]}, weights=np.ones(count))

    def update(self, outcome: Outcome) -> None:
        """Lower alpha of the selected clients; after an observed round, store its change and fit."""
        number, losses = outcome.round_info.number, self.roster.losses
        if not self._uniform(number):
            self._annealing[np.concatenate([outcome.clients, outcome.failed])] *= ANNEALING
        both = np.isfinite(losses) & np.isfinite(self._before)
        if both.any():
            change = np.subtract(losses, self._before, out=np.full(losses.size, np.nan), where=both)
            change = np.clip(change, -LARGEST_CHANGE, LARGEST_CHANGE)
            keep = self._rounds >= number - HISTORY
            self._changes = np.concatenate([self._changes[keep], change[None]])
            self._rounds = np.append(self._rounds[keep], number)
        steps = self._steps(number, observed=bool(both.any()))
        if steps and self._rounds.size:
            weights = DISCOUNT ** (number - self._rounds).astype(np.float64)
            centred = self._changes - discounted_mean(self._changes, weights)
            self._embeddings = fitted(self._embeddings, centred, weights, NOISE_VARIANCE, steps)
            self._annealing = np.ones(losses.size)
        watched = self._uniform(number) and outcome.aggregate is not None
        self._before = losses.copy() if watched else np.full(losses.size, np.nan)

    def _steps(self, number: int, *, observed: bool) -> int:
        """Adam steps after round `number`."""
        config = self.config
        if self._warms_up(number):
            return config.first_steps if number == config.warmup + 1 else 0
        return config.steps if observed else 0
