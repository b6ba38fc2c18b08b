"""Active Federated Learning: clients with a large loss are drawn more often. The loss dates from their last training.

Goetz, Malik, Bui, Moon, Liu and Kumar, "Active Federated Learning", 2019 (arXiv:1909.12641). A round selects as in
FLSim, the library of the authors' organisation, and in the code of FedCor:

1. It leaves out the alpha_1 n clients with the smallest valuation (`eligible`).
2. It draws m - floor(alpha_3 m) of the others without replacement, with probabilities in proportion to exp(alpha_2 v).
3. It draws the rest uniformly from all clients that are not drawn yet.

The valuation is v_k = sqrt(n_k) times the mean loss of the received model over k's training examples. Participants
renew their valuation; all others keep theirs. `valuation` = mean leaves the factor sqrt(n_k) out. `valuation` = current
asks every client in every round for the mean loss of the current model.

Deviations
----------
- The paper itself was not at hand. Constants and steps agree in three independent codes, but their rounding of the
  active part differs by one client. Here the active part is m - floor(alpha_3 m), as in FLSim.
- `valuation` = mean and current are not rules of the authors. A comparison with FedCVR-Bolt depends on the valuation,
  and its paper does not say which one it uses.
- The server asks every client once for its loss, of the first model that the client could have received. A client that
  does not answer is drawn in step 3 only.
- With the paper's alpha_3 = 0.1, a cohort below 10 clients has no uniform part.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import Settings, setting
from fedsel_app.messages.scalars import Report
from strategies.base import SelectionStrategy
from strategies.method import MethodContext
from strategies.roster import Floats, Ints, Needs, Outcome, Roster, RoundInfo, Selection
from strategies.selection_math.sampling import LARGEST_LOSS, finite, gumbel_top


@dataclass(frozen=True)
class ActiveFLConfig(Settings):
    """Settings of active federated learning: the three alphas, and the valuation."""

    excluded: float = setting(
        0.75, "share alpha_1 of the clients that is left out, those with the lowest valuations", low=0.0, high=1.0
    )
    sharpness: float = setting(0.01, "alpha_2 in the selection probability, proportional to exp(alpha_2 v)", low=0.0)
    uniform: float = setting(0.1, "share alpha_3 of the cohort that is drawn uniformly", low=0.0, high=1.0)
    valuation: str = setting(
        "sqrt-n",
        "valuation v of a client: sqrt(n) times its mean loss when it last took part, that mean loss alone, or its"
        " loss of the current model, which asks every client",
        choices=("sqrt-n", "mean", "current"),
    )


def valuations(losses: Floats, examples: Ints, valuation: str = "sqrt-n") -> Floats:
    """v_k = sqrt(n_k) L_k, or L_k for another `valuation`; float64 (n,), clipped to be finite, NaN for a NaN loss."""
    factors = np.sqrt(examples) if valuation == "sqrt-n" else np.ones(examples.size)
    return np.asarray(np.clip(factors * np.clip(losses, -LARGEST_LOSS, LARGEST_LOSS), -LARGEST_LOSS, LARGEST_LOSS))


def eligible(values: Floats, excluded: float) -> NDArray[np.bool_]:
    """Step 1, bool (n,): True for all but the floor(alpha_1 n) smallest of `values` (n,). NaN counts as smallest.

    Among equal valuations, the later position is left out first. NaN (unknown) is never eligible.
    """
    measured = ~np.isnan(values)
    ascending = np.lexsort((-np.arange(values.size), np.where(measured, values, -np.inf)))
    kept = measured.copy()
    kept[ascending[: int(excluded * values.size)]] = False
    return kept


def draw(values: Floats, count: int, config: ActiveFLConfig, rng: np.random.Generator) -> Ints:
    """Positions of `count` distinct clients by steps 1-3, ascending. `values` is float64 (n,), NaN where unknown."""
    candidates = np.flatnonzero(eligible(values, config.excluded))
    active = min(count - int(config.uniform * count), candidates.size)
    # Drawn in log space, so that no valuation overflows.
    chosen = candidates[gumbel_top(config.sharpness * values[candidates], active, rng)]
    free = np.ones(values.size, bool)
    free[chosen] = False
    rest = np.flatnonzero(free)
    return np.sort(np.concatenate([chosen, rng.choice(rest, size=count - chosen.size, replace=False)]))


@final
class ActiveFL(SelectionStrategy[ActiveFLConfig]):
    """Softmax draws by the last valuations; the rest of the cohort is drawn uniformly."""

    name = "active-fl"
    paper = "Goetz et al. 2019 (AFL)"
    explores = False
    state_fields = ("_valuations",)

    def __init__(self, context: MethodContext) -> None:
        super().__init__(context)
        self._valuations = np.full(context.run.clients, np.nan)
        """Every client's valuation; NaN where there is none."""

    @classmethod
    def needs(cls, config: ActiveFLConfig) -> Needs:
        """Participants' loss of the received model, and a probe of all clients or of those without a valuation."""
        if config.valuation == "current":
            return Needs(loss_probe=True, probe_batches=0, round_updates=False)
        reports = frozenset({Report.INITIAL_LOSS})
        return Needs(loss_probe=True, probe_batches=0, reports=reports, round_updates=False)

    def candidates(self, roster: Roster, round_info: RoundInfo, count: int, rng: np.random.Generator) -> Ints:
        """Clients without a valuation; all clients if `valuation` is current."""
        ids = roster.ids
        if self.config.valuation == "current":
            return ids
        return np.asarray(ids[np.isnan(self._valuations[ids])])

    def select(self, roster: Roster, round_info: RoundInfo, count: int, rng: np.random.Generator) -> Selection:
        """Steps 1-3 on the known valuations, which include this round's probe."""
        ids = roster.ids
        values = self._with_probe(roster)[ids]
        picked = draw(values, count, self.config, rng)
        return Selection(ids[picked], components={"valuation": np.nan_to_num(values[picked])})

    def update(self, outcome: Outcome) -> None:
        """Store this round's probe and the losses of the participants."""
        self._valuations = self._with_probe(self.roster)
        if outcome.clients.size and self.config.valuation != "current":
            measured, examples = finite(outcome.reports[Report.INITIAL_LOSS]), self.roster.examples[outcome.clients]
            self._valuations[outcome.clients] = valuations(measured, examples, self.config.valuation)

    def _with_probe(self, roster: Roster) -> Floats:
        """Copy of the valuations, float64 (K,), with this round's probe for clients without one."""
        probed = valuations(roster.losses, roster.examples, self.config.valuation)
        if self.config.valuation == "current":
            return probed
        return np.where(np.isnan(self._valuations), probed, self._valuations)
