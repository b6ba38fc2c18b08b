"""Equations of the local solvers: what each adds to a client's gradient, keeps and sends, and what the server does.

SCAFFOLD: S. P. Karimireddy, S. Kale, M. Mohri, S. J. Reddi, S. U. Stich, A. T. Suresh, "SCAFFOLD: Stochastic
Controlled Averaging for Federated Learning", ICML 2020, arXiv 1910.06378 (Algorithm 1, option II). FedDyn: D. A. E.
Acar, Y. Zhao, R. Matas Navarro, M. Mattina, P. N. Whatmough, V. Saligrama, "Federated Learning Based on Dynamic
Regularization", ICLR 2021, arXiv 2111.04263 (Algorithm 1). FedNova: J. Wang, Q. Liu, H. Liang, G. Joshi, H. V. Poor,
"Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization", NeurIPS 2020, arXiv 2007.07481.
FedProx and plain SGD have no equations here: the proximal term is in `clients.local_training`.

Deviations: SCAFFOLD's c and FedDyn's H are unweighted means over all K clients, as in their papers, for any weights of
the updates. So they lead to the minimum of the unweighted mean loss. If a reply fails, the change of its control
variate is missing in c. With local momentum, SCAFFOLD counts `TrainingConfig.effective_steps` as its K steps, so that
its control variate stays a mean gradient. FedDyn needs whole updates: a client's linear term is the gradient of its
loss at its own model, and the server keeps the mean of these terms. From compressed updates it would get another mean,
and a client that remembered only what it sent would no longer keep its gradient. FedDyn's coefficient alpha is the same
for every client (the authors' code divides it by the client's weight). Gradients are clipped together with these terms,
as in the code of FedDyn's authors. FedNova normalises on the server instead of at the client, by the number that is
reported with the update. The sum is the same, and the update keeps the units of its residual.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedsel_app.wire.codec import Update

Vector = NDArray[np.float32]
Floats = NDArray[np.float64]
State = Mapping[str, NDArray[Any]]


class Steps(NamedTuple):
    """A client's local steps in a round.

    Attributes
    ----------
    delta : float32 (N,), change of the weights
    number : effective number of steps
    lr : learning rate
    pull : proximal coefficient
    """

    delta: Vector
    number: float
    lr: float
    pull: float


class Received(NamedTuple):
    """What the server received in a round.

    Attributes
    ----------
    total : sum of the clients' vectors that the solver's `summed` names, float64 (N,)
    clients : number of all clients of the run, K
    pull : proximal coefficient
    """

    total: Floats
    clients: int
    pull: float


class Weights(NamedTuple):
    """Weights of r updates in their sum: those of each client's own, divided by a number that all have in common.

    Attributes
    ----------
    own : float64 (r,)
    divisor : positive
    """

    own: Floats
    divisor: float


Kept = tuple[dict[str, NDArray[Any]], Vector | None]
"""Arrays that a client keeps, and the change of its control variate, float32 (N,); None if it sends none."""


def no_term(state: State, control: Vector) -> Vector | None:
    """The gradient of the loss, with the proximal term at most."""
    return None


def no_state(state: State, control: Vector, steps: Steps) -> Kept:
    """Nothing to keep and nothing to send."""
    return {}, None


def given_weights(weights: Weights, reports: Mapping[str, Floats]) -> Weights:
    """The weights as they are."""
    return weights


def plain_step(mean: Floats, aggregate: Floats, received: Received) -> Floats:
    """The aggregate."""
    return aggregate


class Equations(NamedTuple):
    """Equations of a solver, two of the client and two of the server. By default they are those of plain SGD.

    Attributes
    ----------
    term : (what `state` returned when the client last trained, control variate of the server (N,)) -> constant term of
        the local gradient, float32 (N,); None for none
    state : (as above, as above, the local steps) -> what the client keeps and sends
    weights : (weights of r updates, name -> numbers that the clients reported (r,)) -> weights
    summed : the vectors of clients of which `step` needs the plain sum: 0 the updates, 1 the changes of control
        variates; None for none
    step : (mean that the server keeps, float64 (N,), which changes; aggregate of the updates, float64 (N,); what the
        server received) -> the update to apply, float64 (N,)
    """

    term: Callable[[State, Vector], Vector | None] = no_term
    state: Callable[[State, Vector, Steps], Kept] = no_state
    weights: Callable[[Weights, Mapping[str, Floats]], Weights] = given_weights
    summed: int | None = None
    step: Callable[[Floats, Floats, Received], Floats] = plain_step

    def terms(self, vectors: Sequence[Update], weight: float) -> list[tuple[Update, float]]:
        """A client's terms in the sums that the server needs: its update with its weight, and what `summed` names."""
        return [(vectors[0], weight)] + ([] if self.summed is None else [(vectors[self.summed], 1.0)])


def scaffold_term(state: State, control: Vector) -> Vector:
    """SCAFFOLD's term c - c_i."""
    return control - state["control"] if "control" in state else control


def scaffold_state(state: State, control: Vector, steps: Steps) -> Kept:
    """SCAFFOLD's c_i <- c_i - c + (x - y) / (K lr) with K steps, zero at first, and the change of it."""
    change = steps.delta / np.float32(-steps.lr * steps.number) - control
    return {"control": state["control"] + change if "control" in state else change}, change


def scaffold_step(mean: Floats, aggregate: Floats, received: Received) -> Floats:
    """SCAFFOLD's c <- c + (1/K) sum of the changes; the step is the aggregate."""
    mean += received.total / received.clients
    return aggregate


def feddyn_term(state: State, control: Vector) -> Vector | None:
    """FedDyn's term -h_i."""
    return -state["gradient"] if "gradient" in state else None


def feddyn_state(state: State, control: Vector, steps: Steps) -> Kept:
    """FedDyn's h_i <- h_i - alpha (y - x), zero at first."""
    change = np.float32(-steps.pull) * steps.delta
    return {"gradient": state["gradient"] + change if "gradient" in state else change}, None


def feddyn_step(mean: Floats, aggregate: Floats, received: Received) -> Floats:
    """FedDyn's H <- H - (alpha/K) sum of the updates, and x <- mean y - H / alpha, as the aggregate less H / alpha."""
    mean -= received.total * (received.pull / received.clients)
    return aggregate - mean / received.pull


def nova_weights(weights: Weights, effective_steps: Floats) -> Weights:
    """FedNova's weights of the plain updates: w_i tau_eff / ||a_i||_1 with tau_eff = sum_i w_i ||a_i||_1 / sum_i w_i.

    The paper's weights sum to 1; those of an unbiased selection do so only on average. If all clients take equally many
    steps, the weights stay as they are. A reported number below one step counts as one step.
    """
    steps = np.maximum(effective_steps, 1.0)
    total = math.fsum(weights.own)
    if total == 0:
        return weights
    effective = math.fsum(weights.own * steps) / total
    return Weights(weights.own / steps, weights.divisor / effective)


EQUATIONS = {
    "fedprox": Equations(),
    "sgd": Equations(),
    "scaffold": Equations(term=scaffold_term, state=scaffold_state, summed=1, step=scaffold_step),
    "feddyn": Equations(term=feddyn_term, state=feddyn_state, summed=0, step=feddyn_step),
    "fednova": Equations(weights=lambda weights, reports: nova_weights(weights, reports["effective_steps"])),
}
"""Equations of each choice of `fedsel_app.config.training.SOLVERS`."""
