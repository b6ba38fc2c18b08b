"""Active Federated Learning: clients with a large loss are drawn more often, from valuations as old as their last part.

Goetz, Malik, Bui, Moon, Liu and Kumar, "Active Federated Learning", 2019 (arXiv:1909.12641). The rule of a round,
as in the authors' organisation's FLSim and the code of FedCor:

1. the alpha_1 n clients with the smallest valuation are left out (`eligible`);
2. m - floor(alpha_3 m) of the others without replacement with probabilities in proportion to exp(alpha_2 v);
3. the rest uniformly from the clients not drawn yet.

The valuation is v_k = sqrt(n_k) times the mean loss, over k's training examples, of the model that k received;
participants refresh theirs, all others stay. `valuation` mean leaves the factor out; current asks every client in
every round for the mean loss of its model.

Deviations
----------
- The paper itself was not readable; constants and steps agree in three independent codes. They differ by one client in
  how the active part is rounded; here it is m - floor(alpha_3 m), as in FLSim.
- `valuation` mean and current are no rules of the authors: a comparison with FedCVR-Bolt depends on the valuation, and
  that paper does not say which it takes.
- `cold-start` probe asks every client once on the first model it could have received; uniform asks none, and a client
  that has no valuation yet is drawn in step 3 only.
- With the alpha_3 = 0.1 of the paper a cohort under 10 has no uniform part.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import Settings, setting
from fedsel_app.messages.scalars import Report
from strategies.base import SelectionStrategy
from strategies.roster import Floats, Ints, Needs, Outcome, Roster, RoundInfo, Selection
from strategies.run_context import RunContext
from strategies.selection_math.sampling import LARGEST_LOSS, finite, gumbel_top


@dataclass(frozen=True)
class ActiveFLConfig(Settings):
    """Settings of active federated learning: the three alphas, and the start."""

    excluded: float = setting(
        0.75, "share alpha_1 of the clients that is left out, those with the lowest valuations", low=0.0, high=1.0
    )
    sharpness: float = setting(0.01, "alpha_2 in the selection probability, proportional to exp(alpha_2 v)", low=0.0)
    uniform: float = setting(0.1, "share alpha_3 of the cohort that is drawn uniformly", low=0.0, high=1.0)
    valuation: str = setting(
        "sqrt-n",
        "valuation v of a client: sqrt(n) times its mean loss when it last took part, that mean loss alone, or its"
        " loss of the current model, for which every client is asked",
        choices=("sqrt-n", "mean", "current"),
    )
    cold_start: str = setting(
        "probe",
        "clients that were never measured: measured once, or selected by the uniform draw only",
        choices=("probe", "uniform"),
    )


def valuations(losses: Floats, examples: Ints, valuation: str = "sqrt-n") -> Floats:
    """v_k = sqrt(n_k) L_k, or L_k for another `valuation`; float64 (n,), cut to stay finite, NaN where the loss is."""
    factors = np.sqrt(examples) if valuation == "sqrt-n" else np.ones(examples.size)
    return np.asarray(np.clip(factors * np.clip(losses, 0.0, LARGEST_LOSS), 0.0, LARGEST_LOSS))


def eligible(values: Floats, excluded: float) -> NDArray[np.bool_]:
    """Step 1, bool (n,): all but the floor(alpha_1 n) smallest of `values` (n,), unknown (NaN) ones being smallest.

    Of equal valuations the later position is left out first. Unknown ones are never eligible.
    """
    known = ~np.isnan(values)
    ascending = np.lexsort((-np.arange(values.size), np.where(known, values, -np.inf)))
    kept = known.copy()
    kept[ascending[: int(excluded * values.size)]] = False
    return kept


def probabilities(values: Floats, excluded: float, sharpness: float) -> Floats:
    """The probabilities of step 2's first draw, float64 (n,); all 0 where no client is eligible."""
    kept = eligible(values, excluded)
    odds = np.zeros(values.size)
    if kept.any():
        odds[kept] = np.exp(sharpness * (values[kept] - values[kept].max()))
        odds /= odds.sum()
    return odds


def draw(values: Floats, count: int, config: ActiveFLConfig, rng: np.random.Generator) -> Ints:
    """Positions of `count` distinct clients by steps 1-3, ascending. `values` is float64 (n,), NaN where unknown."""
    count = min(count, values.size)
    candidates = np.flatnonzero(eligible(values, config.excluded))
    active = min(count - int(config.uniform * count), candidates.size)
    # Drawn in log space: no valuation is too large for it.
    chosen = candidates[gumbel_top(config.sharpness * values[candidates], active, rng)]
    free = np.ones(values.size, bool)
    free[chosen] = False
    rest = np.flatnonzero(free)
    return np.sort(np.concatenate([chosen, rng.choice(rest, size=count - chosen.size, replace=False)]))


@final
class ActiveFL(SelectionStrategy[ActiveFLConfig]):
    """Softmax draws on stale valuations, and a uniform rest."""

    name = "active-fl"
    paper = "Goetz et al. 2019 (AFL)"
    looks_at = ("losses", "reports", "examples")
    explores = False
    state_fields = ("_valuations",)

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._valuations = np.full(context.run.clients, np.nan)
        """Every client's valuation; NaN where there is none."""

    @classmethod
    def needs(cls, config: ActiveFLConfig) -> Needs:
        """Participants' loss of the received model, with `cold-start` probe all clients' once; or always all."""
        if config.valuation == "current":
            return Needs(loss_probe=True, probe_batches=0)
        probes = config.cold_start == "probe"
        return Needs(loss_probe=probes, probe_batches=0, reports=frozenset({Report.INITIAL_LOSS}))

    def candidates(self, roster: Roster, round_info: RoundInfo, count: int, rng: np.random.Generator) -> Ints:
        """Those without a valuation; every client under `valuation` current."""
        ids = roster.ids
        if self.config.valuation == "current":
            return ids
        return np.asarray(ids[np.isnan(self._valuations[ids])])

    def select(self, roster: Roster, round_info: RoundInfo, count: int, rng: np.random.Generator) -> Selection:
        """Steps 1-3 on the valuations known by now, this round's probe included."""
        ids = roster.ids
        values = self._with_probe(roster)[ids]
        picked = draw(values, count, self.config, rng)
        return Selection(ids[picked], components={"valuation": np.nan_to_num(values[picked])})

    def update(self, outcome: Outcome) -> None:
        """Take up this round's probe and the participants' measurements."""
        self._valuations = self._with_probe(self.roster)
        if outcome.clients.size and self.config.valuation != "current":
            measured, examples = finite(outcome.reports[Report.INITIAL_LOSS]), self.roster.examples[outcome.clients]
            self._valuations[outcome.clients] = valuations(measured, examples, self.config.valuation)

    def _with_probe(self, roster: Roster) -> Floats:
        """The valuations, float64 (K,), with this round's probe where there was none; a copy."""
        config = self.config
        probed = valuations(roster.losses, roster.examples, config.valuation)
        if config.valuation == "current":
            return probed
        if config.cold_start != "probe":
            return self._valuations.copy()
        return np.where(np.isnan(self._valuations), probed, self._valuations)
