"""OptRate: one kept fraction for the whole cohort, larger in rounds in which compression is more harmful.

Cui, Su, Zhou and Liu, "Optimal Rate Adaption in Federated Learning with Compressed Communications", INFOCOM 2022
(arXiv:2112.06694).

Deviations
----------
Reconstructed: in the paper each round's compression error enters the convergence bound, multiplied by the square of the
learning rate, and the rate is adapted to maximise the final accuracy. The closed form was not at hand.

Here the budget is an average kept fraction of `kept-fraction` a round. It is divided over the rounds so that sum_t
eta_t^2 err(theta_t) is minimal, with theta_min = `kept_min` <= theta_t <= 1. err is measured, not modelled: it is the
share of the squared norm that top-k loses, averaged over the clients of round 1, which send everything. This round is
not part of the budget; if no update arrives in it, the next round replaces it. err is convex, so the greedy solution is
exact: it takes the steepest pieces of all the rounds' curves first. The cohort is drawn uniformly and averaged by
examples.
"""

from typing import final

import numpy as np

from fedsel_app.config import ConfigError, Settings, SharedSettings
from fedsel_app.wire.codec import Update
from strategies.base import SelectionStrategy
from strategies.method import MethodContext
from strategies.roster import Floats, Outcome, Roster, RoundInfo, Selection

PIECES = 256
"""Linear pieces of the measured error curve."""


def top_k_error(update: Update, pieces: int) -> Floats:
    """err(theta) at theta = 0, 1/pieces, ..., 1: the share of ||u||^2 outside the theta N largest entries.

    float64 (pieces + 1,), convex, from 1 to 0. For the zero update it is not defined.
    """
    squares = np.sort(np.square(update.values, dtype=np.float64))[::-1]
    kept = np.concatenate([[0.0], np.cumsum(squares)])
    share = np.interp(np.linspace(0.0, update.size, pieces + 1), np.arange(kept.size), kept / kept[-1])
    return np.asarray(1.0 - share)


def spread(importance: Floats, error: Floats, budget: float, least: float) -> Floats:
    """The theta_t, float64 (T,), that minimise sum_t importance_t err(theta_t) subject to sum_t theta_t = budget.

    Every theta_t is in [least, 1]; a `budget` beyond these bounds is used as far as they allow. `error` (G + 1,) holds
    err at 0, 1/G, ..., 1 and is convex. The solution is exact for the piecewise linear curve: above `least`, it takes
    the pieces with the largest gain per unit of theta first, and of equal ones those of the earlier round.
    """
    grid = np.linspace(0.0, 1.0, error.size)
    widths = np.maximum(grid[1:] - np.maximum(grid[:-1], least), 0.0)
    gains = np.outer(importance, -np.diff(error)).ravel()
    order = np.argsort(-gains, kind="stable")
    wide = np.tile(widths, importance.size)[order]
    spent = np.cumsum(wide) - wide
    taken = np.empty(gains.size)
    taken[order] = np.clip(budget - least * importance.size - spent, 0.0, wide)
    return np.asarray(np.minimum(least + taken.reshape(importance.size, -1).sum(axis=1), 1.0))


@final
class OptRate(SelectionStrategy):
    """A uniform cohort with one kept fraction, which is chosen to minimise the error over all rounds."""

    name = "optrate"
    paper = "Cui et al. 2022, INFOCOM (reconstructed)"
    state_fields = ("_error", "_measured_in")

    def __init__(self, context: MethodContext) -> None:
        super().__init__(context)
        self._error = np.zeros(0)
        """The error curve; empty until it is measured."""
        self._measured_in = 0
        """The round in which it was measured."""

    @classmethod
    def check_settings(cls, config: Settings, shared: SharedSettings) -> None:
        """Refuse compressors other than top-k."""
        if shared.compression.compressor != "top-k":
            raise ConfigError("Set 'compressor' to top-k: the strategy optrate sets its kept fraction in each round.")

    def fraction(self, round_info: RoundInfo) -> float:
        """The round's kept fraction theta_t; 1 until the error curve is known."""
        context = self.context
        if not self._error.size:
            return 1.0
        rounds = range(min(self._measured_in + 1, round_info.number), max(round_info.total, round_info.number) + 1)
        rates = np.array([context.training.learning_rate(number, round_info.total) for number in rounds])
        budget = len(rounds) * context.budget.kept_fraction
        fractions = spread(rates**2, self._error, budget, context.compression.kept_min)
        return float(fractions[round_info.number - rounds.start])

    def select(self, roster: Roster, round_info: RoundInfo, count: int, rng: np.random.Generator) -> Selection:
        """A uniform draw of `count` clients, all with the round's kept fraction."""
        clients = np.sort(rng.choice(roster.ids, size=count, replace=False))
        return Selection(clients, kept_fractions=np.full(count, self.fraction(round_info)))

    def update(self, outcome: Outcome) -> None:
        """Measure the error curve on the first updates that are not all zero."""
        if self._error.size:
            return
        curves = [top_k_error(update, PIECES) for update in outcome.updates if update.values.any()]
        if curves:
            self._error = np.mean(curves, axis=0)
            self._measured_in = outcome.round_info.number
