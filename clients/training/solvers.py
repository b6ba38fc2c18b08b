"""Local solvers: the constant term that each adds to the gradient, and the state that each keeps and sends.

SCAFFOLD: S. P. Karimireddy, S. Kale, M. Mohri, S. J. Reddi, S. U. Stich, A. T. Suresh, "SCAFFOLD: Stochastic
Controlled Averaging for Federated Learning", ICML 2020, arXiv 1910.06378 (Algorithm 1, option II). FedDyn: D. A. E.
Acar, Y. Zhao, R. Matas Navarro, M. Mattina, P. N. Whatmough, V. Saligrama, "Federated Learning Based on Dynamic
Regularization", ICLR 2021, arXiv 2111.04263 (Algorithm 1). FedNova: J. Wang, Q. Liu, H. Liang, G. Joshi, H. V. Poor,
"Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization", NeurIPS 2020, arXiv 2007.07481.
FedProx and plain SGD add nothing here: the proximal term is in `clients.training.steps`.

Deviations: with local momentum, SCAFFOLD counts `TrainingConfig.effective_steps` as its K steps, so that its control
variate stays a mean gradient. FedDyn's coefficient alpha is the same for every client (the authors' code divides it by
the client's weight). Gradients are clipped together with these terms, as in the code of FedDyn's authors.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import TrainingConfig

Vector = NDArray[np.float32]
State = Mapping[str, NDArray[Any]]

REMEMBERING = ("scaffold", "feddyn")
"""Solvers that keep state on the client between rounds."""


def correction(state: State, control: Vector | None) -> Vector | None:
    """Constant term of the local gradient, float32 (N,): c - c_i of SCAFFOLD, -h_i of FedDyn; None for none.

    `state` is what `finish` returned when the client last trained; `control` is the server's c.
    """
    if control is not None:
        return control - state["control"] if "control" in state else control
    return -state["gradient"] if "gradient" in state else None


def finish(
    training: TrainingConfig, state: State, control: Vector | None, delta: Vector, steps: int, lr: float
) -> tuple[dict[str, NDArray[Any]], Vector | None]:
    """Update the solver's state after `steps` steps at `lr` that moved the weights by `delta`, float32 (N,).

    Returns the arrays to store, and the change of the control variate to send, float32 (N,); None if there is none.
    SCAFFOLD: c_i <- c_i - c + (x - y) / (K lr). FedDyn: h_i <- h_i - alpha (y - x). Both are zero at first.
    """
    if control is not None:
        mean_gradient = delta / np.float32(-lr * training.effective_steps(steps))
        change = mean_gradient - control
        return {"control": state["control"] + change if "control" in state else change}, change
    if training.solver == "feddyn":
        step = np.float32(-training.feddyn_alpha) * delta
        return {"gradient": state["gradient"] + step if "gradient" in state else step}, None
    return {}, None
