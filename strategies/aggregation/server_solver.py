"""SCAFFOLD, FedDyn and FedNova on the server; the clients' part and the citations are in `clients.training.solvers`.

Deviations: SCAFFOLD's c and FedDyn's H are unweighted means over all K clients, as in their papers, for any weights of
the updates. So they lead to the minimum of the unweighted mean loss. If a reply fails, the change of its control
variate is missing in c. FedNova normalises here instead of at the client, by the number that is reported with the
update. The sum is the same, and the update keeps the units of its residual.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from fedsel_app.config import TrainingConfig
from fedsel_app.messages.scalars import Report
from fedsel_app.wire.codec import Update
from strategies.checkpoint import Saved
from strategies.roster import Floats
from strategies.round.federation import SentModel


def nova_weights(weights: Floats, effective_steps: Floats) -> Floats:
    """FedNova's weights of the plain updates: w_i tau_eff / ||a_i||_1 with tau_eff = sum_i w_i ||a_i||_1 / sum_i w_i.

    The paper's weights sum to 1; those of an unbiased selection do so only on average. If all clients take equally many
    steps, the weights stay as they are. A reported number below one step counts as one step.
    """
    steps = np.maximum(effective_steps, 1.0)
    total = float(weights.sum())
    if total == 0:
        return weights
    effective = float((weights * steps).sum()) / total
    return weights * effective / steps


class ServerSolver(Saved):
    """The server's part of the setting `solver`: c of scaffold, H of feddyn, the weights of fednova.

    Attributes
    ----------
    reports : numbers that clients must report for the solver
    payloads : number of wire payloads in each reply
    """

    state_fields = ("_mean",)

    def __init__(self, size: int, clients: int, training: TrainingConfig) -> None:
        self._solver, self._alpha, self._clients = training.solver, training.feddyn_alpha, clients
        self._mean = np.zeros(size if self._solver in ("scaffold", "feddyn") else 0)
        self.reports = frozenset({Report.EFFECTIVE_STEPS} if self._solver == "fednova" else ())
        self.payloads = 2 if self._solver == "scaffold" else 1

    def with_control(self, model: SentModel) -> SentModel:
        """The model as it is sent to the cohort; with scaffold, followed by the control variate c."""
        if self._solver != "scaffold":
            return model
        return SentModel((*model.arrays, self._mean.astype(np.float32)))

    def weights(self, weights: Floats, reports: Mapping[str, Floats]) -> Floats:
        """The weights (r,) of the updates, given the numbers that the clients reported with them."""
        return nova_weights(weights, reports[Report.EFFECTIVE_STEPS]) if self._solver == "fednova" else weights

    def step(self, aggregate: Floats, updates: Sequence[Update], controls: Sequence[Update]) -> Floats:
        """The update to apply, float64 (N,); c or H is updated.

        SCAFFOLD: c <- c + (1/K) sum of the changes `controls`. FedDyn: H <- H - (alpha/K) sum of `updates`, and
        x <- mean y - H / alpha, that is `aggregate` - H / alpha.
        """
        feddyn = self._solver == "feddyn"
        changes, scale = (updates, -self._alpha) if feddyn else (controls, 1.0)
        for change in changes:
            change.add_to(self._mean, scale / self._clients)
        return aggregate - self._mean / self._alpha if feddyn else aggregate
